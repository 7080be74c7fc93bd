"""Oracles: the schema of the Model Garden's reader, the original's defaults, the text itself."""

import dataclasses
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf import create_pretraining_data
from bert_tf.create_pretraining_data import Options, run

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


def test_more_text_has_more_workers(files, monkeypatch):
    """Oracle: by hand, of text that is used four times."""
    work = create_pretraining_data._work(Options(**files, dupe_factor=4))
    monkeypatch.setattr("bert_tf.workers.available_cores", lambda: 8)
    assert create_pretraining_data._num_workers(work) == 1
    size = os.path.getsize(files["input_file"])
    for per_worker, wanted in ((6 * size + 1, 1), (3 * size, 3), (1, 8)):
        monkeypatch.setattr(create_pretraining_data, "_BYTES_PER_WORKER", per_worker)
        assert create_pretraining_data._num_workers(work) == wanted


def test_flags_and_defaults_are_those_of_the_original():
    """Oracle: google-research/bert create_pretraining_data.py; None stands for its default here."""
    fields = {field.name: field.default for field in dataclasses.fields(Options)}
    assert {name for name in fields if fields[name] is dataclasses.MISSING} == {
        "output_file",
        "vocab_file",
    }
    original = {
        "do_lower_case": True,
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
    """What official/nlp/data/pretrain_dataloader.py parses with."""
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
    assert labels == {1}  # the only sentence of its document: it has no next one
    assert {label for _, label in seen} == {0, 1}
    printed = capsys.readouterr().out
    assert "Read 3 documents, 7 sentences, 34 tokens; 0.000% of the tokens are [UNK]." in printed
    assert "; 0 sentences are longer than an example" in printed
    assert "--max_predictions_per_seq=4" in printed.splitlines()[-1]
    assert outputs[0] in printed and outputs[1] in printed


def test_a_corpus_of_one_document_is_said(files, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(DOCUMENTS[0]))
    statistics = run(Options(**files))
    assert statistics.examples.examples > 0 and statistics.examples.random_next == 0
    assert "WARNING: the text is one document" in capsys.readouterr().out


def test_long_sentences_are_counted(files, capsys):
    run(Options(**files, max_seq_length=9))
    # Two sentences are of more than six pieces.
    assert "; 2 sentences are longer than an example by themselves." in capsys.readouterr().out


def test_bad_lines_are_counted(files, tmp_path, capsys):
    (tmp_path / "text.txt").write_bytes(b"The c\xffat.\nA zebra.\n\x00\n\nThe dog.\n\n\x00\n")
    run(Options(**files))
    printed = capsys.readouterr().out
    assert "1 lines are not valid UTF-8" in printed
    assert "Left out: 2 lines and 1 whole documents" in printed
    assert "9 tokens; 11.111% of the tokens are [UNK]" in printed
    assert "WARNING: so many [UNK]" in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_file": "{}/none*.txt"}, "no file matches .*none"),
        ({"input_file": "{}/empty.txt"}, "empty.txt is empty"),
        ({"input_file": "{}/blank.txt"}, "no text in .*blank.txt"),
        ({"input_file": "{}/one.txt"}, "only one sentence in .*one.txt"),
        ({"vocab_file": "{}/nomask.txt"}, r"nomask.txt.*\[MASK\]"),
        ({"vocab_file": "{}/none.txt"}, "none.txt"),
        ({"output_file": "{}/text.txt"}, "text.txt is an input file too"),
        ({"output_file": "{}/sub/../vocab.txt"}, "vocab.txt is an input file too"),
        ({"output_file": "{}/x,{}/./x"}, "named twice"),
        ({"output_file": "{}"}, "is a directory"),
        ({"output_file": ","}, "names no file"),
        ({"output_file": "{}/text.txt/x"}, "cannot create the folder .*text.txt/x"),
        ({"output_file": "{}/x,{}/y", "num_shards": 2}, "--num_shards needs one name"),
        ({"tfds": "wikipedia"}, "one of --input_file and --tfds"),
        (
            {"masking": "span", "do_whole_word_mask": True},
            "--masking=span and --do_whole",
        ),
        ({"lexicon_file": "{}/text.txt"}, "--lexicon_file is for --masking=entity"),
        ({"masking": "entity", "lexicon_file": "{}/blank.txt"}, "blank.txt is empty"),
        ({"masking": "entity", "lexicon_file": "{}/none.txt"}, "lexicon .*none.txt"),
        ({"segmenter": "nowhere:cut"}, "nowhere"),
        ({"max_seq_length": 4}, "max_seq_length is 4"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq is 0"),
        ({"dupe_factor": 0}, "dupe_factor is 0"),
        ({"random_seed": -1}, "random_seed is -1"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(files, tmp_path, change, message):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text("\n\r\n \n\n")
    (tmp_path / "one.txt").write_text("the cat\n")
    (tmp_path / "nomask.txt").write_text("\n".join(SPECIAL[:-1] + WORDS))
    for name, value in change.items():
        files[name] = value.replace("{}", str(tmp_path)) if isinstance(value, str) else value

    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    with pytest.raises((ValueError, OSError), match=message):
        run(Options(**files))
    assert contents() == before


def test_the_command_ends_with_one_line_and_exit_code_1(files):
    arguments = [f"--{name}={value}" for name, value in files.items()]
    command = [sys.executable, "-m", "bert_tf.create_pretraining_data", *arguments]
    done = subprocess.run([*command, "--max_seq_length=3"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("create_pretraining_data: error: max_seq_length is 3")
    assert "Traceback" not in done.stderr
