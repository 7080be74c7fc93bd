"""Tests the command. Oracles: the Model Garden's schema, the original's defaults, the text."""

import dataclasses
import gzip
import json
import os
import pathlib
import re
import shlex
import sys
import textwrap

import fsspec
import pytest
import tensorflow as tf
from fsspec.implementations.dirfs import DirFileSystem

from bert_tf.base.files import expand_files
from bert_tf.create_pretraining_data import Options, run
from bert_tf.examples import job as jobs
from bert_tf.examples import steps
from bert_tf.examples.job import make_job
from bert_tf.jobs import workers
from bert_tf.vocabulary.counting import count_words
from tfrecords.manifest import find_manifests, read_manifest

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "##s", "a", "."]
DOCUMENTS = [
    ["The cat sat.", "The cats ran on a mat.", "A dog."],
    ["A dog ran on the mat.", "The dogs sat.", "The cat ran."],
    ["Mats."],
]
TOKENIZED = [
    "the cat sat . the cat ##s ran on a mat . a dog .",
    "a dog ran on the mat . the dog ##s sat . the cat ran .",
    "mat ##s .",
]


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL + WORDS))
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines) for lines in DOCUMENTS))
    return {
        "input_file": str(tmp_path / "text.txt"),
        "output_file": str(tmp_path / "out" / "data.tfrecord"),
        "vocab_file": str(tmp_path / "vocab.txt"),
    }


def test_more_text_gets_more_workers(files, monkeypatch):
    """Oracle: by hand for four passes, which with tokenizing take as long as six."""
    job = make_job(Options(**files, dupe_factor=4))
    monkeypatch.setattr(workers, "available_cores", lambda: 8)
    assert workers.num_processes(None, steps.useful_workers(job)) == 1
    size = os.path.getsize(files["input_file"])
    for per_worker, wanted in ((6 * size + 1, 1), (2 * size, 3), (1, 8)):
        monkeypatch.setattr(steps, "_BYTES_PER_WORKER", per_worker)
        assert workers.num_processes(None, steps.useful_workers(job)) == wanted


def test_fewer_workers_than_asked_for_are_announced(monkeypatch, capsys):
    """Oracle: by hand, eight processes for each of two cores."""
    monkeypatch.setattr(workers, "available_cores", lambda: 2)
    assert [workers.num_processes(asked, 1) for asked in (16, 17)] == [16, 16]
    assert capsys.readouterr().out == "--num_workers=17 is more than 8 per core: using 16.\n"


def test_flags_and_defaults_are_those_of_the_original():
    """Oracle: google-research/bert create_pretraining_data.py. None stands for its default."""
    fields = {field.name: field.default for field in dataclasses.fields(Options)}
    assert {name for name in fields if fields[name] is dataclasses.MISSING} == {
        "output_file",
        "vocab_file",
    }
    original = {
        "do_lower_case": None,
        "do_whole_word_mask": False,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "random_seed": 12345,
        "dupe_factor": None,
        "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1,
        "max_ngram_size": None,
        "gzip_compress": False,
        "use_v2_feature_names": False,
    }
    assert original.items() <= fields.items()


def _garden_schema(v2: bool, seq: int, predictions: int) -> dict:
    """Returns the features that official/nlp/data/pretrain_dataloader.py parses."""
    return {
        "input_mask": tf.io.FixedLenFeature([seq], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([predictions], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
        ("input_word_ids" if v2 else "input_ids"): tf.io.FixedLenFeature([seq], tf.int64),
        ("input_type_ids" if v2 else "segment_ids"): tf.io.FixedLenFeature([seq], tf.int64),
    }


@pytest.mark.parametrize("v2", [False, True])
def test_the_files_hold_the_text(files, capsys, v2):
    outputs = [files["output_file"], files["output_file"] + "-2"]
    options = Options(
        **files | {"output_file": ", ".join(outputs)},
        max_seq_length=20,
        max_predictions_per_seq=4,
        do_whole_word_mask=v2,
        gzip_compress=v2,
        use_v2_feature_names=v2,
    )
    statistics = run(options)
    vocab = SPECIAL + WORDS
    sizes, seen = [], set()
    for output in outputs:
        dataset = tf.data.TFRecordDataset(output, "GZIP" if v2 else "")
        size = 0
        for serialized in dataset:
            parsed = tf.io.parse_single_example(serialized, _garden_schema(v2, 20, 4))
            example = tf.train.Example.FromString(serialized.numpy())
            assert example.features.feature.keys() == parsed.keys()
            ids = parsed["input_word_ids" if v2 else "input_ids"].numpy()
            number = int(sum(parsed["masked_lm_weights"].numpy()))
            positions = parsed["masked_lm_positions"].numpy()[:number]
            ids[positions] = parsed["masked_lm_ids"].numpy()[:number]
            tokens = " ".join(vocab[index] for index in ids if index)
            seen.add((tokens, int(parsed["next_sentence_labels"][0])))
            size += 1
        sizes.append(size)
    assert min(sizes) > max(sizes) / 2 and sum(sizes) == statistics.examples.examples
    for tokens, _ in seen:
        for segment in tokens.removeprefix("[CLS] ").removesuffix(" [SEP]").split(" [SEP] "):
            assert any(segment in document for document in TOKENIZED)
    labels = {label for tokens, label in seen if tokens.startswith("[CLS] mat ##s . [SEP]")}
    assert labels == {1}  # The only sentence of its document has no next one.
    assert {label for _, label in seen} == {0, 1}
    printed = capsys.readouterr().out
    assert "Read 3 documents, 7 sentences, 34 tokens (0.000% [UNK])." in printed
    assert " 0 sentences are longer than an example" in printed
    names = shlex.quote(", ".join(outputs))
    assert f"  python -m tfrecords.inspect --input_file={names}\n" in printed
    assert f"  python -m bert_tf.run_pretraining --input_file={names} --preset=" in printed
    assert outputs[0] in printed and outputs[1] in printed


def test_parquet_files_give_the_records_of_json_lines(files, tmp_path):
    """Oracles: the records of the same texts as JSON lines; the words of build_vocab."""
    from pyarrow import parquet
    from pyarrow import table as arrow_table

    texts = ["\n".join(lines) for lines in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": x}) + "\n" for x in texts))
    parquet.write_table(arrow_table({"body": texts, "id": [1, 2, 3]}), tmp_path / "a.parquet")
    records = []
    for name in ("a.jsonl", "a.parquet"):
        output = str(tmp_path / f"{name}.tfrecord")
        read = dict(input_file=str(tmp_path / name), text_field="body")
        run(Options(**files | read | {"output_file": output}))
        layout = Options(**files | read).with_corpus_defaults()
        words = count_words({name: [read["input_file"]]}, True, layout).texts[name]
        records.append((pathlib.Path(output).read_bytes(), words))
    assert records[0] == records[1] and records[0][1]["cat"] == 2


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder that fsspec opens in place of the Hugging Face Hub; returns that of a dataset."""

    class Hub(DirFileSystem):
        protocol, cachable = "hf", False

        def __init__(self, **_):
            super().__init__(str(tmp_path / "hub"), fsspec.filesystem("file"))

        def info(self, path, **options):
            return super().info(path, **options) | {"blob_id": f"id of {path}"}

    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "hf", Hub)
    (folder := tmp_path / "hub" / "datasets" / "OWNER" / "NAME").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("runner", ["local", "DirectRunner"])
@pytest.mark.slow
def test_articles_of_the_hub_give_the_records_of_a_text_file(
    files, hub, tmp_path, monkeypatch, runner
):
    """Oracles: the records of the same articles as plain text on the disk, in many chunks; the
    words of the vocabulary's command; the identity that the hub states."""
    from pyarrow import parquet
    from pyarrow import table as arrow_table

    monkeypatch.setattr(jobs, "_MIN_BLOCK_BYTES", 2**8)
    sentences = ["The cat sat on a mat.", "A dog ran to the cats, and the cats ran.", "Dogs sat."]
    articles = [
        [f"Title {n}", " ".join(sentences[: 1 + n % 3] * 3), " ".join(sentences)] for n in range(60)
    ]
    text = "\n\n".join("\n".join(lines) for lines in articles)
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(text.encode()))
    table = arrow_table({"id": [*range(60)], "body": ["\n\n".join(x) for x in articles]})
    parquet.write_table(table, hub / "a.parquet", row_group_size=7)
    names = {"text.txt.gz": f"{tmp_path}/text.txt.gz", "a": "hf:datasets/OWNER/NAME/*.parquet"}
    flags = dict(split_sentences=True, dupe_factor=2, max_seq_length=32, runner=runner)
    records, words = [], []
    for name, input_file in names.items():
        output = {"input_file": input_file, "output_file": f"{tmp_path}/{name}.tfrecord"}
        field = {"text_field": "body"} if name == "a" else {}
        options = Options(**files | output | flags | field)
        assert run(options).examples.examples > 100
        records.append(pathlib.Path(output["output_file"]).read_bytes())
        resolved = options.with_corpus_defaults()
        words.append(count_words({"": expand_files(input_file)}, True, resolved).texts[""])
    assert records[0] == records[1] and words[0] == words[1]
    (entry,) = read_manifest(f"{tmp_path}/a.manifest.json")["inputs"]
    path = "datasets/OWNER/NAME/a.parquet"
    assert (entry["file"], entry["modified"]) == (f"hf://{path}", f"id of {path}")
    assert entry["bytes"] == (hub / "a.parquet").stat().st_size and len(entry) == 3
    assert run(options) is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:datasets/OWNER/NAME/*.txt", "no file matches hf:datasets/OWNER/NAME/..txt"),
        ("s3://bucket/a.txt", "cannot download s3://bucket/a.txt: Install s3fs to access S3; "),
        ("hf:datasets/OWNER/NAME/a.zst", "cannot download .*a.zst: the network is gone; check"),
    ],
)
def test_files_of_stores_that_cannot_be_read_are_named(files, hub, monkeypatch, name, message):
    def fail(*_, **__):
        raise RuntimeError("the network\nis gone")

    (hub / "a.zst").write_bytes(b"text")
    monkeypatch.setattr(DirFileSystem, "open", fail)
    with pytest.raises((OSError, ValueError), match=message) as caught:
        run(Options(**files | {"input_file": name}))
    assert "\n" not in str(caught.value)


def test_a_corpus_of_one_document_gives_a_warning(files, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(DOCUMENTS[0] * 9))
    statistics = run(Options(**files, max_seq_length=9, num_workers=1))
    assert statistics.examples.examples > 10 and statistics.examples.random_next == 0
    printed = capsys.readouterr().out
    assert "WARNING: the text is one document" in printed and printed.count("teaches nothing") == 1


_ONE, _THREE = ["The cat sat."], ["The cat sat.", "A dog ran.", "The mats."]


@pytest.mark.parametrize(
    ("objective", "short", "long", "warns"),
    [
        ("nsp", 30, 0, True),
        ("nsp", 95, 5, True),
        ("nsp", 50, 50, False),
        ("mlm", 30, 0, False),
        ("sop", 6, 5, True),
        ("sop", 5, 5, False),
    ],
)
def test_documents_of_one_sentence_give_a_warning(
    files, tmp_path, capsys, objective, short, long, warns
):
    """Oracles: the counts, by hand, and the share of random next segments among the examples."""
    documents = [_ONE] * short + [_THREE] * long
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines) for lines in documents))
    options = Options(**files, objective=objective, max_seq_length=16, num_workers=1)
    run(dataclasses.replace(options, dry_run=True))
    dry = capsys.readouterr().out
    statistics = run(options).examples
    printed = capsys.readouterr().out
    for out in (dry, printed):
        found = re.search("WARNING: (.*) documents are a single sentence, .*--objective=mlm", out)
        assert (found and found[1]) == (f"{short} of {short + long}" if warns else None)
    one_sided = statistics.random_next > 0.9 * statistics.examples
    assert one_sided == ("of the examples, next_sentence_labels is 1 " in printed)
    # Before the hours that examples may take.
    assert not warns or printed.index("WARNING") < printed.index("Created ")


def test_long_sentences_are_counted(files, capsys):
    run(Options(**files, max_seq_length=9))
    # Two sentences have more than six tokens.
    assert " 2 sentences are longer than an example." in capsys.readouterr().out


def test_bad_lines_are_counted(files, tmp_path, capsys):
    (tmp_path / "text.txt").write_bytes(b"The c\xffat.\nA zebra.\n\x00\n\nThe dog.\n\n\x00\n")
    run(Options(**files))
    printed = capsys.readouterr().out
    assert f"invalid bytes in 1 lines that are not UTF-8: {tmp_path}/text.txt (1). " in printed
    assert "Skipped 2 lines and 1 documents without tokens" in printed
    assert "9 tokens (11.111% [UNK])" in printed
    assert "WARNING: with so many [UNK]" in printed


@pytest.fixture
def books(files, tmp_path) -> list[list[str]]:
    """Makes the input three hard-wrapped files and an empty one; returns their paragraphs."""
    sentence = "The cats ran on a mat and the dog sat on a mat. "
    books = [[sentence * (3 + n % 3) + "The dog." for n in range(8)] for _ in range(3)]
    for number, paragraphs in enumerate(books):
        text = "\n\n".join(textwrap.fill(paragraph, 60) for paragraph in paragraphs)
        (tmp_path / f"book-{number}.txt").write_text(text)
    (tmp_path / "book-3.txt").touch()
    files["input_file"] = f"{tmp_path}/book-*.txt"
    return books


def test_hard_wrapped_text_is_noticed(files, books, tmp_path, capsys):
    """Oracle: by hand. The lines of a paragraph but the last are wrapped."""
    wrapped = [textwrap.wrap(text, 60) for book in books for text in book]
    lines = sum(map(len, wrapped))
    full = sum(not line.endswith(".") for text in wrapped for line in text[:-1])
    run(Options(**files, dry_run=True))
    printed = capsys.readouterr().out
    assert f"the text is hard-wrapped: {full} of {lines} lines are full" in printed
    assert "which made 24 documents of 4 files. --unwrap joins" in printed
    assert f"WARNING: 1 of 4 files are empty: {tmp_path}/book-3.txt." in printed


def test_each_wrapped_book_becomes_a_document(files, books, capsys):
    """Oracle: one sentence per line, and no token lost."""
    statistics = run(Options(**files, unwrap=True, num_workers=1))
    assert statistics.text.documents == 3
    assert statistics.text.sentences == sum(text.count(".") for book in books for text in book)
    tokens = sum(text.count(" ") + 1 + text.count(".") for book in books for text in book)
    cats = sum(text.count("cats") for book in books for text in book)
    assert statistics.text.tokens == tokens + cats
    printed = capsys.readouterr().out
    assert "hard-wrapped" not in printed and "cleaning" not in printed
    (manifest,) = find_manifests([files["output_file"]]).values()
    settings = manifest["settings"]
    assert (settings["unwrap"], settings["document_separator"]) == (True, "file")
    with pytest.raises(ValueError, match="document_separator=file, not .The"):
        run(Options(**files, unwrap=True, document_separator="^The"))


def test_a_dry_run_reads_whole_json_lines(files, tmp_path, capsys):
    """Oracle: the 40 documents of about a kilobyte each."""
    text = "\n".join(["The cat sat on a mat."] * 50)
    (tmp_path / "text.jsonl").write_text(f"{json.dumps({'text': text})}\n" * 40)
    run(Options(**files | {"input_file": f"{tmp_path}/text.jsonl"}, dry_run=True))
    assert " MB of text, 40 documents, " in capsys.readouterr().out


@pytest.mark.parametrize(("share", "warns"), [(9, False), (20, True)])
def test_words_that_no_vocabulary_covers_are_noticed(files, tmp_path, capsys, share, warns):
    """Oracle: the share of the text in words of 201 letters, by hand; the advice for it alone."""
    lines = ["ก" * 201] * share + ["the cat sat on a mat" * 10 + "."] * (100 - share)
    (tmp_path / "text.txt").write_text("\n".join(lines))
    run(Options(**files, dry_run=True))
    message = f"WARNING: {share}% of the text is in words of more than 200 characters, each of"
    printed = capsys.readouterr().out
    assert (message in printed) == warns
    assert not warns or "--do_lower_case" not in printed


def test_a_separator_that_divides_nothing_is_noticed(files, capsys):
    """Oracle: the warning, as no line begins with it."""
    run(Options(**files, document_separator="^CHAPTER ", dry_run=True))
    assert "WARNING: --document_separator=^CHAPTER  divides no file" in capsys.readouterr().out


def test_much_lost_text_is_noticed(files, tmp_path, capsys):
    """Oracle: 16 of 56 characters by hand."""
    (tmp_path / "text.txt").write_text(
        "the cat\nThe cat sat on.\nThe dog ran.\n\ndog\nA dog.\nCats.\n"
    )
    run(Options(**files, clean=True, max_seq_length=5))
    printed = capsys.readouterr().out
    assert "WARNING: cleaning dropped 20.8% of the text (10 of 48 characters). --noclean" in printed
    assert "WARNING: truncation dropped " in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_file": "{}/none*.txt"}, "no file matches .*none"),
        ({"input_file": "{}/blank.txt"}, "no text in .*blank.txt"),
        ({"input_file": "{}/one.txt"}, "every document in .*one.txt is a single one"),
        ({"input_file": "{}/two.txt", "objective": "sop"}, "=sop needs documents of several"),
        ({"num_shards": 200}, "too little text for 200 output files"),
        ({"vocab_file": "{}/nomask.txt"}, r"nomask.txt.*\[MASK\]"),
        ({"output_file": "{}/sub/../vocab.txt"}, "vocab.txt is an input file too"),
        ({"output_file": "{}/x,{}/./x"}, "named twice"),
        ({"output_file": "{}"}, "is a directory"),
        ({"output_file": ","}, "names no file"),
        ({"output_file": "{}/text.txt/x"}, "cannot create the folder .*text.txt/x"),
        ({"output_file": "{}/x,{}/y", "num_shards": 2}, "--num_shards needs one --out"),
        ({"tfds": "wikipedia"}, "either --input_file or --tfds"),
        ({"language": "de"}, "--language has no effect without --split_sentences"),
        ({"language": "xx", "split_sentences": True}, "--language=xx is not known: .* de, "),
        ({"document_separator": "("}, r"--document_separator=\( is neither blank_line nor file"),
        ({"input_file": "{}/a.json", "document_separator": "file"}, "--document_separator has no"),
        ({"text_field": "body"}, "--text_field has no effect without a JSON file"),
        ({"cross_documents": False, "objective": "sop"}, "--cross_documents has no effect"),
        ({"beam_options": "--region=R"}, "--beam_options does not suit --runner=local"),
        (
            {"runner": "DirectRunner", "beam_options": "--region='R"},
            "^--beam_options=--region='R: No closing quotation",
        ),
        ({"runner": "DirectRunner", "num_workers": 2}, "has no effect without --runner=local"),
        ({"masking": "span", "do_whole_word_mask": True}, "--masking=span and --do_whole"),
        ({"lexicon_file": "{}/text.txt"}, "no effect without --masking=entity or --masking=dyn"),
        ({"masking": "entity", "lexicon_file": "{}/blank.txt"}, "blank.txt is empty"),
        ({"segmenter": "nowhere:cut", "masking": "whole_word"}, "nowhere"),
        ({"segmenter": "whitespace"}, "--segmenter does not suit --masking=wordpiece"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(files, tmp_path, change, message):
    (tmp_path / "a.json").write_text('{"text": "the cat"}')
    (tmp_path / "blank.txt").write_text("\n\r\n \n\n")
    (tmp_path / "one.txt").write_text("the cat\n")
    (tmp_path / "two.txt").write_text("the cat\n\nthe dog\n")
    (tmp_path / "nomask.txt").write_text("\n".join(SPECIAL[:-1] + WORDS))
    for name, value in change.items():
        files[name] = value.replace("{}", str(tmp_path)) if isinstance(value, str) else value

    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    with pytest.raises((ValueError, OSError), match=message):
        run(Options(**files))
    assert contents() == before
