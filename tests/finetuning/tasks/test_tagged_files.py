"""Tagged sentences of the user's own files, worked by hand."""

import json
import pathlib

import pytest
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import make_task
from bert_tf.finetuning.tagging.module import split_words
from bert_tf.finetuning.task import DataFiles
from bert_tf.tables.memory import table_in_memory
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

LABELS = ("O", "B-X", "I-X")
_KNOWN = "2 that are also in the training set"


def _read(folder: pathlib.Path, split: str, content: str | bytes | list[dict], **flags):
    """Writes the file of a split; returns the task and its splits.

    Without a training file, the tags are `LABELS`.

    Args:
        content: the file, with | between lines, or the rows of JSON lines.
    """
    name = f"{split}.txt"
    if isinstance(content, list):
        name, content = f"{split}.jsonl", "\n".join(map(json.dumps, content))
        flags = {"task": "csv", "label_type": "tags"} | flags
    content = content if isinstance(content, bytes) else content.replace("|", "\n").encode()
    (folder / name).write_bytes(content)
    defaults = {"task": "ner", "output_dir": "x", "do_train": True, f"{split}_file": name}
    options = FineTuningOptions(**defaults | flags)
    task = make_task(options, None if split == "train" else Head("tagger", LABELS))
    # Of a single sentence, none can be held out.
    task.has_dev = task.has_dev or task.name == "ner"
    splits = (split,) if task.has_dev else ("train", "dev")
    return task, task.read_splits(splits, DataFiles.of(options))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    cells = "tokens,ner_tags\n\"['U.N.', 'official']\",\"['I-X', 'O']\"\n"
    (tmp_path / "a.csv").write_text(cells)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _row(words, tags, **others) -> list[dict]:
    return [others | {"tokens": words, "tags": tags}]


@pytest.mark.parametrize(
    ("raw", "words", "warning"),
    [
        ("สมชายไปกรุงเทพ", "สมชาย ไป กรุงเทพ", "read 'สมชายไป' as one word, not as two (10 such"),
        ("สมชาย", "ส ม ชาย", "'สม' as one word, not"),
        ("わたしは来ます", "わたし は 来 ます", "'わたしは' as one word, not"),
        ("서울에", "서 울 에", "'서울' as one word, not"),
        ("中国人民", "中国 人 民", "'中国' as several words, not as one (5 such cases): tag"),
        ("서울에 갑니다", "서울에 갑니다", ""),
        ("中国 J K Rowling", "中 国 J K Rowling", ""),
    ],
)
def test_words_that_raw_text_does_not_show_are_said(folder, raw, words, warning, capsys):
    """Oracle: `split_words`, for the raw text and, as advised, with a space after each word."""
    tagged = [f"{word} {'OB'[not n]}-X\n" for n, word in enumerate(words.split())]
    (folder / "train.txt").write_text("".join([*tagged, "\n"]).replace("O-X", "O") * 5)
    make_task(FineTuningOptions(task="ner", output_dir="x", do_train=True, train_file="train.txt"))
    printed = capsys.readouterr().out
    assert warning in printed and bool(warning) == ("WARNING" in printed)
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "x")))
    for text, known in ((raw, not warning), (words, "several" not in warning)):
        (starts,) = split_words(tf.constant([text]), tokenizer).starts.to_list()
        assert (len(starts) == len(words.split())) == known


@pytest.mark.parametrize("word", ["New York", "New\u00a0York", "10 000"])
@pytest.mark.parametrize("lists", [False, True])
def test_words_with_spaces_are_said(folder, capsys, word, lists):
    """Oracle: the number of such words, and how many `split_words` finds in each."""
    rows = _row(["in", word, "now"], ["O", "B-LOC", "O"]) * 3
    text = "".join(f"{a}\t{b}\n" for a, b in zip(*rows[0].values(), strict=True)) + "\n"
    _read(folder, "train", rows if lists else text * 3)
    message = f"read {word!r} as several words, not as one (3 such cases): tag each of them."
    assert message in capsys.readouterr().out
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "x")))
    assert split_words(tf.constant([word]), tokenizer).starts.row_lengths().numpy() == 2


@pytest.mark.parametrize("flags", [{"train_file": "train.txt"}, {"data_dir": "."}])
def test_without_a_dev_file_a_tenth_is_held_out(folder, flags):
    """Oracle: the counts; a file of dev data is read instead."""
    (folder / "train.txt").write_text("a B-X\nb O\n\n" * 20)
    options = FineTuningOptions(task="ner", output_dir="x", do_train=True, **flags)
    task, files = make_task(options), DataFiles.of(options)
    splits = task.read_splits(["train", "dev"], files)
    assert [len(part) for part in splits.values()] == [18, 2]
    (folder / "valid.txt").write_text("a B-X\n")
    assert make_task(options).has_dev == ("data_dir" in flags)


_OTHER = {"train_file": None, "data_dir": "."}


# As Prodigy writes them.
_SPANS = [
    {"text": text, "spans": spans, "answer": "accept"}
    for text, spans in (("Go", []), ("To X", [{"start": 3, "end": 4, "label": "LOC"}]))
]


@pytest.mark.parametrize(
    ("split", "content", "flags", "message"),
    [
        ("train", "a O|b", {}, "train.txt, line 2: 1 column, but the first word has 2"),
        ("train", "a\tO|\tO", {}, "train.txt, line 2: the word is empty"),
        ("train", "a\tO|b\t", {}, "train.txt, line 2: the tag is empty"),
        ("train", b"a O\n\xff O\n", {}, "train.txt, line 2: not UTF-8"),
        ("train", b"a O\rb O\r\rc O\r", {}, "train.txt, line 1: a carriage return inside"),
        ("train", "|", {}, "train.txt is empty"),
        ("train", "-DOCSTART-||", {}, "train.txt has no words"),
        ("train", "a B-X|b I-X|c 0", {}, 'train.txt, line 3: the tag "0" is neither "O" nor'),
        ("train", '"a" "O"|"b" "B-X"', {}, 'the tags are in quotes, such as "B-X": write words'),
        ("train", "a|b", {}, "train.txt has no tags: training needs them"),
        ("train", "a O|b O", {}, 'train.txt: every word has the tag "O": nothing to learn'),
        (
            "train",
            "a O",
            {"text_column": "a"},
            "--text_column=a: --task=ner takes a column's number, from 1",
        ),
        ("train", "", {"train_file": "a.csv"}, "a.csv: commas separate the columns, but --task=n"),
        ("train", "", {"train_file": None, "dev_file": "x"}, "--train_file, or --data_dir with tr"),
        ("train", "", _OTHER | {"data_dir": "x"}, "needs --train_file, or x with train.txt or eng"),
        ("dev", "a NN|b VB", {}, 'dev.txt: none of its tags, such as "NN", is .*: O, B-X'),
        ("dev", "a O|b LOC", {}, 'dev.txt, line 2: the tag "LOC" is neither "O" nor'),
        ("dev", "a|b", {}, "dev.txt has no tags: give it as --test_file"),
        ("dev", "a O", {"dev_file": "nowhere"}, "^nowhere: no such file$"),
        ("train", _row(["a", "b"], ["O"]), {}, "line 1: 'tokens' and 'tags' differ in length, 2"),
        ("train", _row("a b", ["O"]), {}, "line 1: 'tokens' is not a list of strings"),
        ("train", _row(["a", ""], ["O"] * 2), {}, "line 1: word 2 of 'tokens' is empty"),
        ("train", _row(["a"], [""]), {}, "line 1: tag 1 of 'tags' is empty"),
        ("train", _row(["a"], ["O"], id="\ud800"), {}, "train.jsonl, line 1: the id is not UTF-8"),
        ("train", _row([], []), {}, "line 1: 'tokens' is empty"),
        ("train", [{"tokens": []}], {}, "train.jsonl has no column 'tags', only 'tokens': name"),
        ("train", [{"x": []}], {}, "train.jsonl has no column 'tokens' or 'tags', only 'x'"),
        ("train", _SPANS, {}, "jsonl, line 2: .*hold character spans, .*/tags.html shows"),
        ("train", "a O", {"task": "csv", "label_type": "tags"}, "must end in .* For CoNLL files"),
    ],
)
def test_bad_files_are_one_clear_line(split, content, flags, message, folder):
    """Oracle: the file, the line and the flag."""
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        _read(folder, split, content, **flags)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("split", "content", "labels", "tags", "printed"),
    [
        ("train", "EU B-Y|a O|Po B-X", "O B-X B-Y", "B-Y O B-X", ""),
        ("train", "a NOUN|b DET", "DET NOUN", "NOUN DET", ""),
        ("train", "a I-X|b I-X|c B-X|d I-Y", "B-X B-Y I-X", "B-X I-X B-X B-Y", "from IOB1 to BIO."),
        ("train", "a X-B|b o", "O B-X", "B-X O", 'read the tag "X-B" as "B-X"'),
        ("train", _row(["a", "b"], ["S_X", "O"]) * 20, "O B-X", None, "from IOBES to BIO."),
        ("train", "a PER|b O", "O PER", "PER O", "tags such as PER do not say where entities be"),
        ("train", "a B-X/I-Y|b O", "O B-X/I-Y", "B-X/I-Y O", "tags such as B-X/I-Y hold several"),
        ("train", "a 3|b 10", "3 10", "3 10", "the tags are numbers"),
        ("train", _row(["a", "b"], [1, -100]) * 20, "-100 1", None, "the tags are numbers"),
        ("train", "0-2 O|3-4 B-X", "O B-X", "O B-X", 'words have no letter, such as "0-2"'),
        ("train", "a B-X|, O|文 O|5 O", "O B-X", "B-X O O O", ""),
        ("train", "a B-é|b B-e\u0301|c B-É", "B-É B-é", "B-é B-é B-É", "'B-É' and 'B-é' differ"),
        (
            "dev",
            "a B-X||b I-X|c B-Z",
            None,
            "B-X I-X B-Z",
            '1 of 3 tags break BIO, the first in line 3: "I-X" follows; '
            'line 4: the training data has no tag "B-Z"; the words with it (1) count',
        ),
    ],
)
def test_odd_tags_are_converted_or_said(split, content, labels, tags, printed, folder, capsys):
    """Oracle: by hand; labels are sorted, with O first."""
    task, splits = _read(folder, split, content)
    assert labels is None or task.labels == tuple(labels.split())
    assert tags is None or splits[split].tags == tags.split()
    out = capsys.readouterr().out
    assert all(part in out for part in printed.split("; ")) and bool(out) == bool(printed)
    assert ("break" in out) == ("break" in printed)


def test_columns_of_the_training_file_are_those_of_others(folder):
    """Oracle: by hand; alone, the dev file would show the last column."""
    (folder / "valid.txt").write_text("c B-X O\nd O O\n")
    task, _ = _read(folder, "train", "a B-X O|b O O")
    assert task.columns == {"text_column": "1", "label_column": "2"}
    assert task.read(DataFiles(dev_file="valid.txt"), "dev").tags == ["B-X", "O"]


def test_lists_of_words_and_tags(folder):
    """Oracle: by hand; IOB1 becomes BIO. A tenth is held out, and a test file may lack tags."""
    rows = 20 * _row(["U.N.", "official", "Ekeus"], ["I-ORG", "O", "I-PER"], id=7)
    task, splits = _read(folder, "train", rows)
    assert task.head == Head("tagger", ("O", "B-ORG", "B-PER")) and task.metric == "f1"
    numbers = _read(folder, "train", _row(["a", "b"], [1, 0]) * 20)[0].head
    assert numbers == Head("tagger", ("0", "1"), json_labels=True)
    assert [len(text) for text in splits.values()] == [18, 2]
    assert splits["train"].notes == ("19 with the id of an earlier one",)
    assert splits["dev"].notes == ("held out of 20 (10.0%)", _KNOWN)
    assert splits["dev"].tags == ["B-ORG", "O", "B-PER"] * 2
    ner, splits = _read(folder, "train", rows, task="ner", label_type="class")
    assert ner.labels == task.labels and len(splits["train"]) == 20
    flags = {"task": "csv", "label_type": "tags"}
    _, splits = _read(folder, "dev", "", **flags, dev_file="a.csv")
    assert splits["dev"].words == ["U.N.", "official"] and splits["dev"].tags == ["B-X", "O"]
    rows = [{"upos": ["NOUN", "VERB"], "words": words} for words in (["a", "b"], ["c", "d"])]
    task, _ = _read(folder, "train", rows * 20)
    assert task.labels == ("NOUN", "VERB")
    _, splits = _read(folder, "test", [{"words": ["a"]}], text_column="words")
    assert splits["test"].words == ["a"] and splits["test"].tags == []
    assert splits["test"].notes == ("no tags in 'tags'",)
    # Columns that the training file shows are those of others.
    rows = [{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}] * 20
    task, _ = _read(folder, "train", rows)
    assert task.columns == {"text_column": "tokens", "label_column": "ner_tags"}
    (folder / "test.jsonl").write_text(json.dumps(rows[0]))
    assert task.read(DataFiles(test_file="test.jsonl"), "test").tags == ["O", "B-X"]


@pytest.mark.parametrize("flags", [{"task": "ner"}, {"task": "csv", "label_type": "tags"}])
def test_lists_in_memory(flags):
    """Oracle: by hand; both tasks read them as they read JSON lines."""
    table = table_in_memory(_row(("a", "b"), ["B-X", "O"]) * 20, "train")
    options = FineTuningOptions(output_dir="x", do_train=True, train_file=table, **flags)
    task = make_task(options)
    assert task.head == Head("tagger", ("O", "B-X"))
    assert task.read(DataFiles(dev_file=table), "dev").tags == ["B-X", "O"] * 20
