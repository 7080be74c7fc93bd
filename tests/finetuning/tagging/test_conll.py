"""Files in CoNLL's form."""

import pathlib

import pytest
import tensorflow_datasets as tfds

from bert_tf.finetuning.tagging.conll import has_tags, read_conll, read_tfds, write_conll
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText, label_names, prepare

_TEXT = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
"""


def _write(folder: pathlib.Path, text: str | bytes) -> str:
    path = folder / "train.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        _TEXT,
        _TEXT.replace("\n", "\r\n"),
        "\ufeff" + _TEXT,
        _TEXT.rstrip(),
        _TEXT.replace("\n\n", "\n \n\n"),
        _TEXT.replace(" ", "\t"),
        _TEXT.replace("-DOCSTART- -X- -X- O", "-DOCSTART-"),
    ],
)
def test_documents_sentences_and_words(text, tmp_path):
    """Oracle: the same words, tags and line numbers, written down."""
    read = read_conll(_write(tmp_path, text))
    assert [[len(s.words) for s in document] for document in read.documents] == [[2, 1], [1]]
    assert read.words == ["EU", "rejects", "Peter", "BRUSSELS"]
    assert read.tags == ["B-ORG", "O", "B-PER", "B-LOC"]
    lines = text.splitlines()
    assert all(
        lines[n - 1].startswith(w)
        for s in read.sentences
        for w, n in zip(s.words, s.lines, strict=True)
    )


def test_without_marks_every_sentence_is_a_document(tmp_path):
    """Oracle: the sentences; a no-break space is part of a word; one column has no tags."""
    path = _write(tmp_path, "a\u00a0b O\n\nc O\n")
    text = read_conll(path)
    assert [len(document) for document in text.documents] == [1, 1]
    assert text.words == ["a\u00a0b", "c"] and has_tags(path)
    path = _write(tmp_path, "a\nb\n")
    assert read_conll(path).tags == [] and not has_tags(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", "train.txt, line 2: 1 column instead of the 2 of the first word"),
        ("a\tO\n\tO\n", "train.txt, line 2: the word is empty"),
        ("a\tO\nb\t\n", "train.txt, line 2: the tag is empty"),
        (b"a O\n\xff O\n", "train.txt, line 2: not UTF-8"),
        (b"a O\rb O\r\rc O\r", "train.txt, line 1: a carriage return inside the line"),
        ("-DOCSTART-\n\n", "train.txt has no words"),
    ],
)
def test_malformed_files(text, message, tmp_path):
    """Oracle: the file and the number of the line."""
    with pytest.raises(ValueError, match=message):
        read_conll(_write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a B-X\nb I-X\nc 0\n", 'train.txt, line 3: the tag "0" is neither "O" nor'),
        ("a\nb\n", "train.txt has no tags"),
        ("a O\nb O\n", 'train.txt: every word has the tag "O": nothing to learn'),
    ],
)
def test_tags_that_cannot_be_learned(text, message, tmp_path):
    """Oracle: the file, and the line if it is a single one."""
    with pytest.raises(ValueError, match=message):
        label_names(read_conll(_write(tmp_path, text)))


def test_a_missing_file_is_named(tmp_path):
    """Oracle: the file, in an error of one line."""
    for path in (f"{tmp_path}/nowhere.txt", str(tmp_path)):
        with pytest.raises(FileNotFoundError, match=f"^{path}: no such file$"):
            read_conll(path)


def test_odd_tags_are_converted_or_counted(tmp_path, capsys):
    """Oracle: the lines and counts, written down."""
    text = prepare(read_conll(_write(tmp_path, "a I-X\nb I-X\nc B-X\nd I-Y\n")), ["B-X"])
    assert text.tags == ["B-X", "I-X", "B-X", "B-Y"]
    text = prepare(read_conll(_write(tmp_path, "a B-X\n\nb I-X\nc B-Z\n")), ["O", "B-X", "I-X"])
    assert text.tags == ["B-X", "I-X", "B-Z"]
    out = capsys.readouterr().out
    assert "converted the tags from IOB1 to BIO." in out
    assert '1 of 3 tags break BIO, the first in line 3: "I-X" follows no tag of its type' in out
    assert 'line 4: the training data has no tag "B-Z"; the words with it (1) count' in out


def test_tags_of_another_kind_are_refused(tmp_path):
    """Oracle: the file and a tag; without a tag that the model knows, nothing can be measured."""
    with pytest.raises(ValueError, match='train.txt: none of its tags, such as "NN", .*: O, B-X'):
        prepare(read_conll(_write(tmp_path, "a NN\nb VB\n")), ["O", "B-X"])
    assert prepare(read_conll(_write(tmp_path, "a\nb\n")), ["O", "B-X"]).tags == []


def test_writing_is_the_input_of_conlleval(tmp_path):
    """Oracle: the lines, written down, and, where present, the words and lines of real data."""
    path = str(tmp_path / "out.conll")
    text = read_conll(_write(tmp_path, _TEXT.replace("EU", "E\u00a0U")))
    write_conll(path, text, ["O", "B-LOC", "B-PER", "O"])
    assert pathlib.Path(path).read_text() == (
        "-DOCSTART- O O\n\nE_U B-ORG O\nrejects O B-LOC\n\nPeter B-PER B-PER\n\n"
        "-DOCSTART- O O\n\nBRUSSELS B-LOC O\n\n"
    )


def test_tags_of_a_model_of_entities_must_be_of_entities():
    """Oracle: the message; in lower case, tags are of no scheme."""
    text = TaggedText("x.txt", [[Sentence(["a", "b"], ["O", "b-LOC"], [1, 2])]])
    with pytest.raises(ValueError, match='x.txt, line 2: the tag "b-LOC" is neither "O" nor'):
        prepare(text, ("O", "B-LOC"))


def test_spaces_in_tags_do_not_add_columns(tmp_path):
    """Oracle: three columns, written down; tags of JSON lines may hold anything."""
    path = str(tmp_path / "out.conll")
    text = TaggedText("x", [[Sentence(["a"], ["NOUN PHRASE"], [1])]])
    write_conll(path, text, ["VERB\tPHRASE"])
    assert pathlib.Path(path).read_text() == "a NOUN_PHRASE VERB_PHRASE\n\n"


def test_real_files_are_read_and_written_line_for_line(tmp_path, shared_data):
    """Oracle: the published counts of CoNLL-2003's testa, and the file itself."""
    source, path = shared_data / "conll2003/valid.txt", tmp_path / "written.conll"
    text = read_conll(str(source))
    assert (len(text.documents), len(text), len(text.words)) == (216, 3250, 51362)
    write_conll(str(path), text, text.tags)
    real, written = (file.read_text().split("\n") for file in (source, path))
    assert len(real) == len(written)
    assert all(a.split()[:1] == b.split()[:1] for a, b in zip(real, written, strict=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tfds_has_the_sentences_of_the_files(tmp_path, monkeypatch):
    """Oracle: the files from which tensorflow-datasets makes the dataset, in another order."""
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text(_TEXT + "\n")
    builder = tfds.builder("conll2003", data_dir=str(tmp_path / "tfds"))
    monkeypatch.setattr(tfds, "builder", lambda name: builder)
    monkeypatch.setattr("bert_tf.finetuning.tagging.conll.prepare_tfds", lambda _: None)
    monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", lambda *_: tmp_path)
    builder.download_and_prepare()
    expected = read_conll(str(tmp_path / "train.txt"))
    for split in ("train", "dev", "test"):
        text = read_tfds(split)
        rows = [
            sorted((sentence.words, sentence.tags) for sentence in x.sentences)
            for x in (text, expected)
        ]
        assert rows[0] == rows[1]
        assert text.describe() == "4 words in 3 sentences"


def test_labels_are_sorted_with_o_first(tmp_path):
    """Oracle: the order, written down; parts of speech are no entities."""
    assert label_names(read_conll(_write(tmp_path, _TEXT))) == ("O", "B-LOC", "B-ORG", "B-PER")
    assert label_names(read_conll(_write(tmp_path, "a NOUN\nb DET\n"))) == ("DET", "NOUN")
