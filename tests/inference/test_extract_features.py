"""extract_features, against the encoder itself."""

import gzip
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import from_numpy_dtype, list_, parquet
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client

import bert_tf
from bert_tf.extract_features import Options, run
from bert_tf.inference import extraction, vector_files
from bert_tf.inference.encoding import encode_lines
from bert_tf.inference.vectors import chosen_layers
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer

# Tokens, words, spaces at both ends, a pair with too many tokens, an empty line, a text with too
# many tokens, bytes of no character, for which there are no vectors.
LINES = (
    b"the cats sat.",
    b"  caf\xc3\xa9  cats ",
    b"the cat ||| cats on a b c d e",
    b"",
    b" ".join([b"a", b"b"] * 9),
    b"mat\xff",
)
TOKENS = (
    "[CLS] the cat ##s sat . [SEP]",
    "[CLS] [UNK] cat ##s [SEP]",
    "[CLS] the cat [SEP] cat ##s on a b c d [SEP]",
    "[CLS] [SEP]",
    "[CLS] a b a b a b a b a b a b a b a b a b [SEP]",
    "",
)
WORDS = (
    ["the", "cats", "sat."],
    ["café", "cats"],
    ["the", "cat", "cats", "on", "a", "b", "c", "d"],
    [],
    ["a", "b"] * 9,
    [],
)
LENGTH = 12
# Where the windows over the words of the long line begin, and the words with most context in each.
LONG, WINDOWS = 4, {0: range(8), 5: range(8, 12), 8: range(12, 18)}
LAYERS = ("embeddings", -1, 0)


@pytest.fixture(scope="module")
def oracle(pretrained, vocab) -> list[np.ndarray]:
    """What the encoder returns at `LAYERS` for every line or window alone, without padding."""
    encoder = bert_tf.load(pretrained[0]).encoder

    def compute(tokens: list[str]) -> np.ndarray:
        ids = tf.constant([[vocab.ids[token] for token in tokens]])
        types = np.zeros_like(ids)
        if tokens.count("[SEP]") == 2:
            types[0, tokens.index("[SEP]") + 1 :] = 1
        inputs = dict(input_word_ids=ids, input_mask=tf.ones_like(ids), input_type_ids=types)
        outputs = encoder(inputs, training=False)["encoder_outputs"]
        embeddings = encoder.embeddings(ids, types, training=False)
        return np.stack([embeddings[0], outputs[-1][0], outputs[0][0]], axis=1)

    expected = [compute(line.split()) for line in TOKENS[:-1]]
    expected.append(np.zeros((0, *expected[0].shape[1:]), np.float32))
    words = WORDS[LONG]
    parts = {start: words[start : start + LENGTH - 2] for start in WINDOWS}
    windows = {start: compute(["[CLS]", *part, "[SEP]"]) for start, part in parts.items()}
    rows = [windows[start][1 + word - start] for start, own in WINDOWS.items() for word in own]
    cls, sep = (np.mean([values[end] for values in windows.values()], axis=0) for end in (0, -1))
    expected[LONG] = np.stack([cls, *rows, sep])
    return expected


@pytest.fixture
def extract(pretrained, tmp_path):
    """A function that runs the command on `LINES` and returns the path of the output."""
    (tmp_path / "lines.txt").write_bytes(b"\n".join(LINES) + b"\n")

    def call(ending: str, **flags) -> str:
        values = dict(checkpoint=pretrained[0], input_file=str(tmp_path / "lines.txt"))
        values |= dict(layers="embeddings,-1,0", max_seq_length=LENGTH, batch_size=4)
        run(Options(**values | flags, output_file=f"{tmp_path}/vectors{ending}"))
        return f"{tmp_path}/vectors{ending}"

    return call


def arrays(path: str) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def words_of(tokens: str) -> list[list[int]]:
    """Returns the tokens of every word; "." ends the word before it."""
    words = []
    for index, token in enumerate(tokens.split()):
        if token.startswith("##") or token == ".":
            words[-1].append(index)
        elif token not in ("[CLS]", "[SEP]"):
            words.append([index])
    return words


def test_vectors_of_tokens_are_those_of_the_encoder(extract, oracle, vocab, tmp_path, capsys):
    """Oracles: the encoder on every line alone; the tokens and the text they span, by hand."""
    found = arrays(extract(".npz"))
    assert found["values"].dtype == np.float32
    assert found["layers"].tolist() == ["embeddings", "-1", "0"]
    np.testing.assert_array_equal(found["row_splits"], np.cumsum([0, *map(len, oracle)]))
    np.testing.assert_allclose(found["values"], np.concatenate(oracle), atol=1e-5)
    assert " ".join(vocab.tokens[i] for i in found["ids"]) == " ".join(TOKENS[:-1])
    spans = list(zip(found["starts"], found["limits"], strict=True))
    rows = np.split(np.array(spans), found["row_splits"][1:-1])
    of_lines = zip(LINES, rows, strict=True)
    texts = [line[a:b] if a >= 0 else b"|" for line, row in of_lines for a, b in row]
    assert b" ".join(texts).decode() == (
        "| the cat s sat . | | café cat s | | the cat | cat s on a b c d | | | "
        "| a b a b a b a b a b a b a b a b a b |"
    )
    printed = capsys.readouterr().out
    assert "Wrote 46 vectors of 3 x 16 numbers for 6 lines to " in printed
    assert "Read 1 of 6 lines in overlapping windows of 12 tokens: --max_seq_length" in printed
    assert "WARNING: truncated 1 of 6 lines, which are pairs, to 12 tokens: --max_seq" in printed
    assert "WARNING: left out 1 row of 6; " in printed
    rejected = pathlib.Path(f"{tmp_path}/vectors.npz.rejected.jsonl").read_text()
    expected = {"file": f"{tmp_path}/lines.txt", "line": 6, "reason": "line 6 is not UTF-8"}
    assert json.loads(rejected) == expected


@pytest.mark.parametrize("pooling", ["word_first", "word_mean", "cls", "mean"])
def test_pooled_vectors(extract, oracle, pooling):
    """Oracles: means over the encoder's outputs; the words, by hand."""
    found = arrays(extract(".npz", pooling=pooling))
    assert "ids" not in found
    expected, texts = [], []
    for values, tokens, words, line in zip(oracle, TOKENS, WORDS, LINES, strict=True):
        if pooling in ("cls", "mean") and tokens:
            expected.append(values[0] if pooling == "cls" else values.mean(axis=0))
            texts.append(line.decode("utf-8", "replace"))
            continue
        texts += words
        for indices in words_of(tokens):
            expected.append(values[indices[: 1 if pooling == "word_first" else None]].mean(axis=0))
    np.testing.assert_allclose(found["values"], expected, atol=1e-5)
    rows = np.repeat(np.arange(len(LINES)), np.diff(found["row_splits"]))
    spans = zip(rows, found["starts"], found["limits"], strict=True)
    assert [LINES[i][a:b].decode("utf-8", "replace") for i, a, b in spans] == texts


def test_json_lines_are_those_of_the_original(extract, oracle):
    """Oracle: the names and the rounding of extract_features.py; the encoder's outputs."""
    with open(extract(".jsonl")) as file:
        rows = [json.loads(line) for line in file]
    assert [row["linex_index"] for row in rows] == list(range(len(LINES)))
    for row, tokens, values in zip(rows, TOKENS, oracle, strict=True):
        assert [feature["token"] for feature in row["features"]] == tokens.split()
        for feature, vectors in zip(row["features"], values, strict=True):
            assert [layer["index"] for layer in feature["layers"]] == list(LAYERS)
            for layer, vector in zip(feature["layers"], vectors, strict=True):
                np.testing.assert_allclose(layer["values"], vector, atol=1e-5)
                assert layer["values"] == [round(value, 6) for value in layer["values"]]
    assert [rows[0]["features"][i]["start"] for i in (0, 1, 2, 3)] == [-1, 0, 4, 7]


def test_records_hold_half_precision(extract, oracle, vocab, monkeypatch):
    """Oracle: tf.io.parse_tensor, with the encoder's outputs in float16, computed in four parts."""
    monkeypatch.setattr(extraction, "_CHUNK_BYTES", 20 * 3 * 16 * 4)
    path = extract(".tfrecord", dtype="float16")
    for index, record in enumerate(tf.data.TFRecordDataset(path)):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        values = tf.io.parse_tensor(feature["values"].bytes_list.value[0], tf.float16)
        np.testing.assert_allclose(values, oracle[index], atol=1e-2)
        ids = feature["ids"].int64_list.value
        assert " ".join(vocab.tokens[i] for i in ids) == TOKENS[index]
        assert feature["line_index"].int64_list.value == [index]
    assert index == len(LINES) - 1


@pytest.mark.parametrize(("pooling", "dtype"), [("tokens", "float16"), ("mean", "float32")])
def test_parquet_has_a_row_per_vector(extract, monkeypatch, pooling, dtype):
    """Oracles: the arrays of .npz; the tokens, or the lines, by hand. Groups have few rows."""
    monkeypatch.setattr(vector_files, "_GROUP_ROWS", 7)
    flags = {"pooling": pooling, "dtype": dtype}
    expected = arrays(extract(".npz", **flags))
    table = parquet.read_table(extract(".parquet", **flags))
    columns = table.to_pydict()
    counts = np.diff(expected["row_splits"])
    assert columns["line"] == np.repeat(np.arange(len(LINES)), counts).tolist()
    assert columns["start"] == expected["starts"].tolist()
    assert columns["limit"] == expected["limits"].tolist()
    whole = [line.decode("utf-8", "replace") for line in LINES[:-1]]
    tokens = [token for line in TOKENS[:-1] for token in line.split()]
    assert columns["text"] == (tokens if pooling == "tokens" else whole)
    names = [f"layer_{layer}" for layer in LAYERS]
    found = np.stack([np.stack(columns[name]) for name in names], axis=1)
    np.testing.assert_array_equal(found.astype(dtype), expected["values"])
    width = expected["values"].shape[-1]
    kind = list_(from_numpy_dtype(np.dtype(dtype)), width)
    assert [table.schema.field(name).type for name in names] == [kind] * 3


@pytest.mark.parametrize("ending", [".jsonl", ".npz", ".parquet", ".tsv"])
def test_files_appear_whole_or_not_at_all(ending, pretrained, tmp_path, monkeypatch):
    """Oracle: what is in the folder while a file is written, after that failed, and at last."""
    path = tmp_path / f"vectors{ending}"
    flags = dict(layers="-1", max_seq_length=LENGTH, overwrite=True)
    path.write_bytes(b"old")
    (tmp_path / "a.txt").write_text("the cat\n")
    flags |= dict(checkpoint=pretrained[0], input_file=f"{tmp_path}/a.txt", output_file=str(path))
    read = extraction.vector_files.read_records

    def lines(*arguments):
        yield from read(*arguments)
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extraction.vector_files, "read_records", lines)
        run(Options(**flags))
    unfinished = f"{path.name}.unfinished"
    assert {x.name for x in tmp_path.iterdir()} == {path.name, "a.txt", unfinished}
    assert path.read_bytes() == b"old"
    run(Options(**flags))
    others = {"vectors.metadata.tsv", "projector_config.pbtxt"} if ending == ".tsv" else set()
    assert {x.name for x in tmp_path.iterdir()} == {path.name, "a.txt"} | others
    assert path.stat().st_size > 100


def test_texts_without_words_in_the_projector(pretrained, tmp_path):
    """Oracle: no vectors, so an empty file and labels without a row."""
    (tmp_path / "a.txt").write_text("\n\n")
    flags = dict(input_file=f"{tmp_path}/a.txt", output_file=f"{tmp_path}/v.tsv", layers="-1")
    flags |= dict(pooling="word_mean", max_seq_length=LENGTH)
    run(Options(checkpoint=pretrained[0], **flags))
    assert not (tmp_path / "v.tsv").read_bytes()
    assert (tmp_path / "v.metadata.tsv").read_text() == "text\tline\tcontext\n"
    (config := tmp_path / "projector_config.pbtxt").write_text("mine")
    with pytest.raises(FileExistsError, match=f"{config} is not a projector .* move it away"):
        run(Options(checkpoint=pretrained[0], **flags, overwrite=True))
    assert config.read_text() == "mine"
    assert (tmp_path / "v.tsv.unfinished" / "chunks").exists()  # what was computed


@pytest.mark.parametrize("length", [5, 6, 9, 10, 30])
def test_pairs_are_packed_as_for_training(vocab, length):
    """Oracle: `pack_segments`."""
    tokenizer = WordPieceTokenizer(vocab, lower_case=False)
    pairs = [("a b c d e f", "g h"), ("a b", "c d e f g h"), ("a b c d", "e f g h"), ("", "a")]
    lines = [f"{a} ||| {b}".encode() for a, b in pairs]
    segments = [tokenizer.tokenize(list(texts)) for texts in zip(*pairs, strict=True)]
    packed = pack_segments(segments, length, vocab)
    for row, line in enumerate(encode_lines(lines, tokenizer, length)):
        count = int(packed["input_mask"][row].numpy().sum())
        np.testing.assert_array_equal(line.ids, packed["input_word_ids"][row, :count])
        np.testing.assert_array_equal(line.types, packed["input_type_ids"][row, :count])
        tokens = sum(len(text.split()) for text in pairs[row])
        assert line.truncated == (tokens + 3 > length)


def test_default_length_and_layers(extract):
    """Oracles: the vectors for the 24 positions; google-research/bert's layers, at least four."""
    found = arrays(extract(".npz", max_seq_length=None))
    expected = arrays(extract(".npz", max_seq_length=24, overwrite=True))
    np.testing.assert_array_equal(found["values"], expected["values"])
    assert chosen_layers(None, 12) == [-1, -2, -3, -4]
    assert chosen_layers(None, 2) == [-1, -2]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"layers": "-1,3"}, "--layers=-1,3: '3' is not a layer of this model: choose from 0 to 2"),
        ({"layers": "last"}, "--layers=last: 'last' is not a layer of this model"),
        ({"max_seq_length": 25}, "max_seq_length 25 is more than the max_position_embeddings 24"),
        ({"ending": ".csv"}, "its name must end with .npz, .parquet, .tfrecord"),
        ({"ending": ".jsonl", "dtype": "float16"}, "--dtype has no effect on .jsonl"),
        ({"ending": ".tsv", "layers": None}, "vectors.tsv holds one layer: give --layers=-1"),
        ({"ending": ".tsv", "layers": "-1,-2"}, "vectors.tsv holds one layer: give --layers=-1"),
        ({"input_file": "none.gz"}, "none.gz is empty"),
    ],
)
def test_what_users_do_wrong(extract, tmp_path, monkeypatch, flags, line):
    """Oracle: the line."""
    monkeypatch.chdir(tmp_path)
    gzip.open("none.gz", "w").close()
    with pytest.raises(ValueError, match=line):
        extract(**{"ending": ".npz"} | flags)


def test_the_projector_of_tensorboard_shows_words(extract, tmp_path):
    """Oracles: the numbers of the arrays; the words by hand; what TensorBoard itself answers."""
    flags = {"pooling": "word_first", "layers": "-1"}
    expected = arrays(extract(".npz", **flags))["values"][:, 0]
    path = extract(".tsv", **flags)
    np.testing.assert_allclose(np.loadtxt(path, delimiter="\t"), expected, rtol=1e-5)
    labels = (tmp_path / "vectors.metadata.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in labels]
    assert rows[0] == ["text", "line", "context"]
    assert [row[0] for row in rows[1:]] == [word for words in WORDS for word in words]
    assert rows[4] == ["café", "2", "café cats"]
    # Another file in the same folder, and the same one again.
    other = shutil.copy(path, tmp_path / "other.tsv")
    for name in (str(other), path):
        vector_files.add_to_projector(name, str(tmp_path / "vectors.metadata.tsv"))
    provider = MultiplexerDataProvider(EventMultiplexer(), str(tmp_path))
    plugin = ProjectorPlugin(TBContext(logdir=str(tmp_path), data_provider=provider))
    answer = Client(plugin.get_plugin_apps()["/info"]).get("/?run=.").get_json()
    shown = {name: list(expected.shape) for name in ("other", "vectors")}
    assert {e["tensorName"]: e["tensorShape"] for e in answer["embeddings"]} == shown
    assert len(answer["embeddings"]) == 2
