"""Inspection. Oracles: hand-written records, each with one fault, and sums done by hand."""

import copy
import re

import numpy as np
import pytest

from tfrecords import inspection
from tfrecords.features import ORIGINAL_NAMES, Layout, serialize_examples, write_records
from tfrecords.inspect import Options, run
from tfrecords.inspection import render_record
from tfrecords.manifest import manifest_path, shard_entry, write_manifest
from tfrecords.records import Rules
from tfrecords.vocabulary import load_vocab

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s on mat dog new york".split()
PAD, UNK, CLS, SEP, MASK, THE, CAT, SAT, S_, ON, MAT, DOG, NEW, YORK = range(14)

PREDICTIONS = ("positions", "ids", "weights")
# [CLS] the [MASK→cat] ##s sat [SEP] {on} the [dog→mat] [SEP]
STATIC = {
    "input_word_ids": [CLS, THE, MASK, S_, SAT, SEP, ON, THE, DOG, SEP, PAD, PAD],
    "input_mask": [1] * 10 + [0] * 2,
    "input_type_ids": [0] * 6 + [1] * 4 + [0] * 2,
    "masked_lm_positions": [2, 6, 8, 0],
    "masked_lm_ids": [CAT, ON, MAT, 0],
    "masked_lm_weights": [1.0, 1.0, 1.0, 0.0],
    "next_sentence_labels": [1],
}
# [CLS] the new york ##s [SEP] ##s on [SEP], in which "new york" and "##s" are one unit.
DYNAMIC = {
    "input_word_ids": [CLS, THE, NEW, YORK, S_, SEP, S_, ON, SEP, PAD],
    "input_mask": [1] * 9 + [0],
    "input_type_ids": [0] * 6 + [1] * 3 + [0],
    "word_starts": [0, 1, 1, 0, 0, 0, 1, 1, 0, 0],
    "next_sentence_labels": [0],
}


def arrays(*records: dict) -> dict[str, np.ndarray]:
    columns = {name: np.array([record[name] for record in records]) for name in records[0]}
    return {name: x.astype("f" if x.dtype.kind == "f" else "i") for name, x in columns.items()}


def write(path, *records: dict, compression: str = "", original: bool = False) -> str:
    columns = arrays(*records)
    if original:
        columns = {ORIGINAL_NAMES.get(name, name): values for name, values in columns.items()}
    write_records(str(path), serialize_examples(columns), compression)
    return str(path)


def changed(record: dict, **changes) -> dict:
    """Returns the record with the changes `name={index: value}`."""
    record = copy.deepcopy(record)
    for name, values in changes.items():
        for index, value in values.items():
            record[name][index] = value
    return record


def broken_rules(columns: dict[str, np.ndarray], vocab) -> list[str]:
    layout = Layout.of(serialize_examples(columns)[0])
    rules = Rules(layout, len(vocab) if vocab else 100, vocab=vocab)
    return [rule.decode() for rule in rules.broken(columns).numpy()]


@pytest.fixture
def vocab_file(tmp_path) -> str:
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return str(tmp_path / "vocab.txt")


@pytest.mark.parametrize(("compression", "original"), [("", True), ("GZIP", False)])
def test_sound_records_pass(tmp_path, vocab_file, compression, original, capsys):
    others = [
        changed(STATIC, next_sentence_labels={0: 0}),
        # One segment with [SEP] between documents and without predictions.
        changed(
            STATIC,
            input_type_ids={6: 0, 7: 0, 8: 0, 9: 0},
            **{f"masked_lm_{x}": {0: 0, 1: 0, 2: 0} for x in PREDICTIONS},
        ),
    ]
    records = [STATIC, STATIC, *others]
    file = write(tmp_path / "a", *records, compression=compression, original=original)
    run(Options(input_file=file, vocab_file=vocab_file, num_examples=2))
    out = capsys.readouterr().out
    shown = "(NotNext, label 1) [CLS] the [MASK→cat]s sat [SEP] {on} the [dog→mat] [SEP]"
    assert out.count(shown) == 2
    for line in (
        "records: 4, masked, 12 tokens each",
        "fill: 83.33% (10.0 tokens per record; 0.00% of the records are full)",
        "predictions: 2.25 per record, 22.50% of the tokens; records with none: 1, with all 4: 0",
        "predicted tokens shown: 33.33% as [MASK], 33.33% as a random token, 33.33% as itself",
        "two segments: 75.00% of the records; NotNext (next_sentence_labels 1): 75.00%",
        f"No problems found in {file} (no manifest to compare with).",
    ):
        assert f"{line}\n" in out, out


def test_dynamic_records_pass(tmp_path, vocab_file, capsys, monkeypatch):
    file = write(tmp_path / "a", DYNAMIC, DYNAMIC)
    run(Options(input_file=file, vocab_file=vocab_file, num_examples=1))
    out = capsys.readouterr().out
    manifest = {"shards": [shard_entry(file, 2)], "settings": {"objective": "sop"}}
    write_manifest(manifest_path(file), manifest)
    for line in (
        "1. (IsNext, label 0) [CLS] the new·yorks [SEP] ##s on [SEP]",
        "records: 2, dynamic, 10 tokens each",
        "words: 4.0 per record, masked while reading",
    ):
        assert f"{line}\n" in out
    monkeypatch.setenv("BERT_TF_QUIET", "1")
    run(Options(input_file=file, vocab_file=vocab_file))
    manifest = f"matches {manifest_path(file)}"
    last = out.splitlines(keepends=True)[-1].replace("no manifest to compare with", manifest)
    assert capsys.readouterr() == (last, "")
    monkeypatch.undo()
    run(Options(input_file=file, vocab_file=vocab_file, num_examples=1))
    assert "1. (InOrder, label 0) [CLS] the" in capsys.readouterr().out


def test_what_teaches_nothing_gives_a_warning(tmp_path, vocab_file, capsys):
    """Oracle: nine tenths, by hand; few records prove nothing; masked_lm_weights of zero."""
    other = changed(STATIC, next_sentence_labels={0: 0})
    empty = changed(STATIC, **{f"masked_lm_{x}": {0: 0, 1: 0, 2: 0} for x in PREDICTIONS})
    for records, warning in (
        ([STATIC] * 10, "in 100.0% of the records, next_sentence_labels is 1"),
        ([other] * 30, "in 100.0% of the records, next_sentence_labels is 0"),
        ([STATIC] * 91 + [other] * 9, "in 91.0% of the records, next_sentence_labels is 1"),
        ([STATIC] * 90 + [other] * 10, None),
        ([STATIC] * 9, None),
        ([empty], "the records predict no token"),
    ):
        files = write(tmp_path / "a", *records)
        run(Options(input_file=files, vocab_file=vocab_file, num_examples=0))
        out = capsys.readouterr().out
        assert ("WARNING" in out) == bool(warning)
        assert f"WARNING: {warning}" in out or not warning


def test_ids_stand_for_tokens_without_a_vocabulary():
    record = {name: values[0] for name, values in arrays(STATIC).items()}
    assert render_record(record, None) == "2 5 [4→6] 8 7 3 {9} 5 [11→10] 3"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_mask": {3: 0}}, "input_mask is not ones followed by zeros"),
        ({"input_word_ids": {3: 14}}, "input_word_ids has a value outside 0 to 13"),
        ({"input_word_ids": {11: 5}}, "an id in the padding is not 0"),
        ({"input_type_ids": {2: 2}}, "input_type_ids has a value outside 0 to 1"),
        ({"input_type_ids": {10: 1}}, "a segment id in the padding is not 0"),
        ({"input_type_ids": {2: 1}}, "the segment ids are not zeros followed by ones"),
        ({"next_sentence_labels": {0: 2}}, "next_sentence_labels has a value outside 0 to 1"),
        ({"masked_lm_weights": {1: 0}}, "masked_lm_weights is not positive numbers followed by"),
        ({"masked_lm_positions": {3: 9}}, "a masked position in the padding is not 0"),
        ({"masked_lm_ids": {3: 9}}, "a label in the padding is not 0"),
        ({"masked_lm_positions": {2: 10}}, "a masked position is not that of a token after [CLS]"),
        ({"masked_lm_positions": {0: 0}}, "a masked position is not that of a token after [CLS]"),
        ({"masked_lm_positions": {1: 2}}, "the masked positions are not strictly ascending"),
        ({"masked_lm_ids": {1: 14}}, "masked_lm_ids has a value outside 0 to 13"),
        ({"masked_lm_ids": {1: SEP}}, "a label is [PAD], [CLS] or [SEP]"),
        ({"masked_lm_weights": {1: np.nan}}, "masked_lm_weights has a value outside 0 to 1"),
        ({"input_type_ids": {2: -1}}, "input_type_ids has a value outside 0 to 1"),
        ({"masked_lm_ids": {1: -1}}, "masked_lm_ids has a value outside 0 to 13"),
        ({"input_mask": {n: 0 for n in range(10)}}, "fewer than two tokens"),
        ({"input_word_ids": {0: THE}}, "the first token is not [CLS]"),
        ({"input_word_ids": {3: CLS}}, "[CLS] occurs more than once"),
        ({"input_word_ids": {9: ON}}, "the last token is not [SEP]"),
        ({"input_word_ids": {5: ON}}, "the first segment does not end with [SEP]"),
        ({"input_word_ids": {3: SEP}}, "[SEP] occurs inside a segment"),
        ({"word_starts": {1: 2}}, "word_starts has a value outside 0 to 1"),
        ({"word_starts": {0: 1}}, "a word starts at [CLS], [SEP] or in the padding"),
        ({"word_starts": {5: 1}}, "a word starts at [CLS], [SEP] or in the padding"),
        ({"word_starts": {9: 1}}, "a word starts at [CLS], [SEP] or in the padding"),
        ({"word_starts": {6: 0}}, "no word starts at the first token of a segment"),
    ],
)
def test_each_rule(vocab_file, changes, message):
    """Oracle: the third of five records, which breaks the rule."""
    dynamic, vocab = "word_starts" in changes, load_vocab(vocab_file)
    good = DYNAMIC if dynamic else STATIC
    columns = arrays(good, good, changed(good, **changes), good, good)
    for known in (vocab, None) if dynamic else (vocab,):
        found = broken_rules(columns, known)
        assert found[2].startswith(message) and found[:2] + found[3:] == [""] * 4


def test_all_bad_records_are_named_and_the_others_read(tmp_path, capsys, monkeypatch):
    """Oracle: where the bad records are, by hand, the first and in two batches; their number."""
    bad = {
        1: (b"junk", "not a tf.train.Example"),
        3: (changed(STATIC, masked_lm_ids={0: -1}), "masked_lm_ids has -1, outside 0 to "),
        1030: (changed(STATIC, masked_lm_positions={1: 2}), "the masked positions are not strict"),
        1031: (changed(STATIC, input_mask={3: 0}), "input_mask is not ones followed by zeros"),
        1033: (DYNAMIC, "10 tokens and 0 predictions (--masking=dynamic), expected 12 "),
    }
    records = dict.fromkeys(range(1, 1035), STATIC) | {n: record for n, (record, _) in bad.items()}
    serialized = [
        x if isinstance(x, bytes) else serialize_examples(arrays(x))[0] for x in records.values()
    ]
    write_records(file := str(tmp_path / "bad"), serialized)
    good = write(tmp_path / "good", STATIC)
    with pytest.raises(ValueError, match="^5 problems found: see the lines that start with BAD$"):
        run(Options(input_file=f"{file},{good}", num_examples=0))
    out = capsys.readouterr().out
    for number, (_, message) in bad.items():
        assert f"BAD {file}, record {number}: {message}" in out
    assert out.count("BAD") == 5 and "records: 1,030, masked" in out
    monkeypatch.setattr(inspection, "_MOST_LINES", 2)
    with pytest.raises(ValueError, match="^5 problems found"):
        run(Options(input_file=file, num_examples=0))
    assert capsys.readouterr().out.endswith("-1, outside 0 to 2147483646\n... and 3 more\n")


def test_damaged_files_are_named_and_the_others_read(tmp_path, capsys):
    """Oracle: where the damage is; TensorFlow itself mistakes `header` for a complete file."""
    good = write(tmp_path / "good", STATIC)
    whole = (tmp_path / "good").read_bytes()
    damage = {
        "header": (whole + whole[:9], "record 2: truncated in its first bytes"),
        "cut": (whole + whole[:40], "record 2: truncated or corrupt"),
        "flipped": (whole * 2 + whole[:30] + b"#" + whole[31:], "record 3: truncated or corrupt"),
    }
    for name, (data, _) in damage.items():
        (tmp_path / name).write_bytes(data)
    record, dynamic = (serialize_examples(arrays(record))[0] for record in (STATIC, DYNAMIC))
    other = "10 tokens and 0 predictions (--masking=dynamic), expected 12 tokens and 4 predictions"
    odd = {
        "mixed": ([record, dynamic], f"record 2: {other}"),
        "foreign": ([b"\xff\xff\xff"], "record 1: not a tf.train.Example"),
        "later": ([record, b"\xff\xff\xff"], "record 2: not a tf.train.Example"),
    }
    for name, (records, _) in odd.items():
        write_records(str(tmp_path / name), records)
    bad = damage | odd
    with pytest.raises(ValueError, match="^6 problems found"):
        run(Options(input_file=",".join([good, *(str(tmp_path / name) for name in bad)])))
    out = capsys.readouterr().out
    for name, (_, message) in bad.items():
        assert f"BAD {tmp_path / name}, {message}" in out
    assert len(re.findall("^BAD ", out, re.M)) == 6
    (tmp_path / "text").write_bytes(b"this is not a TFRecord file")
    with pytest.raises(ValueError, match="^1 problem found"):
        run(Options(input_file=str(tmp_path / "text")))
    assert f"BAD {tmp_path}/text is damaged or not a TFRecord file" in capsys.readouterr().out


def test_compares_with_the_manifest(tmp_path, capsys):
    files = [write(tmp_path / f"a.tfrecord-0000{n}-of-00002", STATIC, STATIC) for n in range(2)]
    manifest = manifest_path(files[0])

    def inspect(entries: list[dict], file: str = "a.tfrecord-*") -> str:
        write_manifest(manifest, {"shards": entries})
        try:
            run(Options(input_file=f"{tmp_path}/{file}", num_examples=0))
        except ValueError as error:
            assert "problem" in str(error)
        return capsys.readouterr().out

    entries = [shard_entry(file, 2) for file in files]
    assert f"matches {manifest}" in inspect(entries)
    # A glob that matches the manifest does not read it as records.
    assert f"matches {manifest}" in inspect(entries, "a.*")
    for key, value in {"records": 3, "bytes": 7, "sha256": "00"}.items():
        out = inspect([entries[0], entries[1] | {key: value}])
        assert f"BAD {files[1]}: {key} is {entries[1][key]}, but {value} in the manifest\n" in out
        assert out.count("BAD") == 1
    assert f"BAD {files[1]}: not in the manifest\n" in inspect(entries[:1])
    lost = entries[0] | {"file": "lost"}
    out = inspect([*entries, lost])
    assert f"BAD {tmp_path}/lost: listed in the manifest, but missing\n" in out


def test_the_vocabulary_comes_from_the_manifest(tmp_path, vocab_file, capsys):
    """Oracles: the words of a record written by hand; a vocabulary in which two tokens swap."""
    file = write(tmp_path / "a.tfrecord", STATIC)
    vocab, path = load_vocab(vocab_file), manifest_path(file)
    manifest = {"shards": [shard_entry(file, 1)], "settings": {"vocab_file": vocab.sha256}}
    manifest["vocabulary"] = "\n".join(TOKENS)
    write_manifest(path, manifest)
    for flag, source in ((None, path), (vocab_file, vocab_file)):
        run(Options(input_file=file, vocab_file=flag))
        out = capsys.readouterr().out
        assert f"vocabulary: 14 tokens from {source}\n" in out
        assert "the [MASK→cat]s sat [SEP]" in out and "BAD" not in out
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*TOKENS[:-2], "york", "new"]))
    with pytest.raises(ValueError, match="^1 problem found"):
        run(Options(input_file=file, vocab_file=str(other)))
    message = f"BAD {path}: the records were created with a vocabulary other than that of {other}\n"
    assert message in capsys.readouterr().out
    # A manifest that holds the vocabulary without its checksum proves it as well.
    write_manifest(path, manifest | {"settings": {"do_lower_case": False}})
    with pytest.raises(ValueError, match="^1 problem found"):
        run(Options(input_file=file, vocab_file=str(other)))
    out = capsys.readouterr().out
    assert message in out and out.count("WARNING") == 1
    assert f"WARNING: the vocabulary of {path} is uncased, but the text is not lower-cased: " in out
    write_manifest(path, manifest | {"vocabulary": "the\ncat"})
    with pytest.raises(ValueError, match=f"{path}: not a BERT vocabulary: it lacks"):
        run(Options(input_file=file))


def test_plot(tmp_path):
    """Oracles: the magic bytes of the image formats; a user's file, and the records."""
    kinds = (STATIC, "p.png", b"\x89PNG"), (DYNAMIC, "p.svg", b"<?xml"), (DYNAMIC, "p.pdf", b"%PDF")
    for record, name, magic in kinds:
        file = write(tmp_path / "a", record)
        (tmp_path / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"{name} exists: .*--overwrite"):
            run(Options(input_file=file, plot=str(tmp_path / name)))
        assert (tmp_path / name).read_text() == "mine"
        run(Options(input_file=file, plot=str(tmp_path / name), overwrite=True))
        assert (tmp_path / name).read_bytes().startswith(magic)
        with pytest.raises(ValueError, match="--plot: .*a is an input file too"):
            run(Options(input_file=file, plot=str(tmp_path / "a"), overwrite=True))
