"""Files in CoNLL's form."""

import pathlib

import pytest
import tensorflow_datasets as tfds

from bert_tf.finetuning.tagging.conll import read_conll, read_tfds, write_conll
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText, label_names, prepare

_TEXT = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
"""


def _write(folder: pathlib.Path, text: str | bytes, name: str = "train.txt") -> str:
    path = folder / name
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
        _TEXT.replace(" ", "\t").replace("O\n", "O\t \n"),
        _TEXT.replace("O\n", "O\t\n"),
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
    assert text.words == ["a\u00a0b", "c"]
    path = _write(tmp_path, "a\nb\n")
    assert read_conll(path).tags == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Word,Tag\nEU,B-ORG\n", "train.csv: commas separate the columns, but --task=ner needs a"),
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
        read_conll(_write(tmp_path, text, message.split()[0].strip(",:")))


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
    """Oracle: the message."""
    text = TaggedText("x.txt", [[Sentence(["a", "b"], ["O", "LOC"], [1, 2])]])
    with pytest.raises(ValueError, match='x.txt, line 2: the tag "LOC" is neither "O" nor'):
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


_GERMEVAL = """#\thttp://de.wikipedia.org/wiki/Manfred_Korfmann\t[2009-10-17]
1\tTroia\tB-LOC\tO
2\tUniversity\tB-ORG\tO
3\tof\tI-ORG\tO
4\tBerlin\tI-ORG\tB-LOC

#\thttp://example.org\t[2009-10-17]
1\tJa\tO\tO
"""
_CONLLU = """# newdoc
# sent_id = 1
# text = Im Haus
1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_
1\tIn\tin\tADP\tAPPR\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\tART\tCase=Dat\t3\tdet\t_\tSpaceAfter=No
3\tHaus\tHaus\tNOUN\tNN\t_\t0\troot\t_\t_
3.1\tist\tsein\tAUX\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\tJa\tja\tINTJ\tITJ\t_\t0\troot\t_\t_

"""


_ONTONOTES = """#begin document (bc/cctv/00/cctv_0000); part 000
bc/cctv 0 0    John NNP (NP* - - - Anna (PERSON* (ARG0* -
bc/cctv 0 1   Smith NNP   *) - - - Anna       *)     *) (1)

bc/cctv 0 0      Ja  UH    * - - - Anna        * -

#end document
#begin document (bc/cctv/00/cctv_0001); part 000
bc/cctv 0 0   China NNP    * - - - Anna    (GPE) * * -
#end document
"""


@pytest.mark.parametrize(
    ("text", "words", "tags", "notes"),
    [
        (
            _ONTONOTES,
            "John Smith Ja China",
            "B-PERSON I-PERSON O B-GPE",
            ("column 4 and tags in 11 of 11",),
        ),
        ("a DT (LOC)\nb NN *\n", "a b", "B-LOC O", ()),
        # A column of a single tag.
        ("a B-X O\nb I-X O\n", "a b", "B-X I-X", ("tags in 2 of 3",)),
        ("a B_X O\nb O O\n", "a b", "B_X O", ("tags in 2 of 3",)),
        ("B-X a O\nO b O\n", "a b", "B-X O", ("column 2 and tags in 1 of 3",)),
        ("a DT _\nb NN _\n", "a b", "DT NN", ("tags in 2 of 3",)),
        ("a DT O\nb NN O\n", "a b", "O O", ()),
        (
            _GERMEVAL,
            "Troia University of Berlin Ja",
            "B-LOC B-ORG I-ORG I-ORG O",
            ("column 2 and tags in 3 of 4 (--text_column, --label_column)", "2 comments left out"),
        ),
        (
            _GERMEVAL.replace("B-LOC\n", "O\n"),
            "Troia University of Berlin Ja",
            None,
            ("tags in 3 of 4 ",),
        ),
        (
            _GERMEVAL.replace("I-ORG\tB-LOC\n", "I-ORG\tB-OTHpart\n").partition("\n")[2],
            "Troia University of Berlin Ja",
            "B-LOC B-ORG I-ORG I-ORG O",
            ("column 2 and tags in 3 of 4", "1 comment left out"),
        ),
        ("a B-X O\nb I-X B-Y\nc B-Y O\n", "a b c", "B-X I-X B-Y", ("column 1 and tags in 2",)),
        ("a B-NP O\nb I-NP B-Y\nc B-VP O\n", "a b c", "O B-Y O", ()),
        (
            _CONLLU,
            "In dem Haus Ja",
            "ADP DET NOUN INTJ",
            ("column 2 and tags in 4 of 10", "4 comments", "2 lines of ranges"),
        ),
        ("0 EU B-ORG\n1 in O\n2 a O\n\n0 b O\n", "EU in a b", "B-ORG O O O", ("column 2 and",)),
        (
            "1 EU NNP B-NP B-ORG\n2 in IN O O\n3 a DT B-NP O\n",
            "EU in a",
            "B-ORG O O",
            ("tags in 5 of 5",),
        ),
        ("4 a O\n5 b O\n\n6 c O\n7 d B-X\n", "a b c d", "O O O B-X", ("column 2 ",)),
        ("s1 a O\ns1 b O\n\ns2 c O\ns2 d O\ns2 e B-X\n", "a b c d e", None, ("column 2 ",)),
        (
            "s1 1 a O\ns1 2 b O\ns1 3 c O\ns1 4 d B-X\n",
            "a b c d",
            None,
            ("column 3 and tags in 4",),
        ),
        ("1-1\ta\tO\n1-2\tb\tO\n\n2-1\tc\tO\n2-2\td\tB-X\n", "a b c d", None, ("column 2 ",)),
        ("1 a\n2 b\n3 c\n", "a b c", "", ("words in column 2 of 2 (--text_column)",)),
        # Words that are numbers.
        ("1 O\n2 O\n3 B-X\n", "1 2 3", "O O B-X", ()),
        ("1 CD O\n2 CD O\n3 CD O\n\nEU NNP B-ORG\n", "1 2 3 EU", None, ()),
        ("1-2 CD O\n8.1 CD O\nwon VB O\n", "1-2 8.1 won", None, ()),
        ("1 CD O\n3 CD B-X\n", "1 3", None, ()),
        # Words and comments that begin with #.
        ("# : O\n5 CD O\n#tag NN O\n\n#b NN B-X\n", "# 5 #tag #b", None, ()),
        ("# id 7\tdomain=en\na\tO\nb\tB-X\n", "a b", None, ("1 comment left out",)),
        ("# sent_id = 1\na x y O\nb x y B-X\n", "a b", None, ("1 comment left out",)),
        ("# id 7 domain=en\na _ _ O\nb _ _ B-X\n", "a b", "O B-X", ("1 comment left out",)),
        (
            "TOKEN\tNE-COARSE\tMISC\n# language = de\na\tO\t_\n# date = 1798\nb\tB-X\tEnd\n",
            "a b",
            "O B-X",
            ("column 1 and tags in 2 of 3", "the header left out", "2 comments left out"),
        ),
        ("Word Tag\nToken NN\nword VB\nis VB\n", "Token word is", "NN VB VB", ("the header",)),
        ("Word NN\nToken NN\n", "Word Token", "NN NN", ()),
        # Tags before words, and parts of speech after tags.
        ("B-X\ta\nI-X\tb\n\nO\tc\n", "a b c", "B-X I-X O", ("column 2 and tags in 1 of 2",)),
        ("B-X a NN\nO b VB\nO c NN\n", "a b c", "B-X O O", ("column 2 and tags in 1 of 3",)),
        ("a B-X NN\nb O VB\nc O NN\n", "a b c", "B-X O O", ("column 1 and tags in 2 of 3",)),
        ("B-X\ta\n0\tb\nO\tc\n", "a b c", "B-X 0 O", ("column 2 and tags in 1 of 2",)),
        ("a B-NP B-X\nb B-VP 0\nc O O\n", "a b c", "B-X 0 O", ()),
        ("a B-NP O\nb B-VP O\n", "a b", "O O", ()),
        ("S-Bahn NN\nfuhr VB\nein PT\n", "S-Bahn fuhr ein", "NN VB PT", ()),
    ],
)
def test_columns_of_other_formats(text, words, tags, notes, tmp_path):
    """Oracle: the words and outer or universal tags, written down."""
    read = read_conll(_write(tmp_path, text), learn=True)
    assert read.words == words.split()
    if tags is not None:
        assert read.tags == tags.split()
    assert len(read.notes) >= len(notes) and all(map(str.__contains__, read.notes, notes))
    lines = text.split("\n")
    numbers = [n for sentence in read.sentences for n in sentence.lines]
    assert all(w in lines[n - 1].split() for w, n in zip(read.words, numbers, strict=True))
    if read.columns:
        again = read_conll(_write(tmp_path, text), *(int(x) for x in read.columns.values()))
        assert again.documents == read.documents


def test_columns_may_be_named(tmp_path):
    """Oracle: by hand; a file without the column of tags has none, or holds words alone."""
    path = _write(tmp_path, _GERMEVAL)
    assert read_conll(path, 2, 4).tags == ["O", "O", "O", "B-LOC", "O"]
    text = read_conll(_write(tmp_path, "1\ta\n2\tb\n"), 2, 3)
    assert (text.words, text.tags) == (["a", "b"], [])
    assert read_conll(_write(tmp_path, "a\nb\n"), 2, 3).words == ["a", "b"]
    for columns in ((0, 1), (2, 1)):
        text = read_conll(_write(tmp_path, "DT\ta\nNN\tb\n"), *columns)
        assert (text.words, text.tags) == (["a", "b"], ["DT", "NN"])
    assert read_conll(_write(tmp_path, "O\ta\nB-X\tb\n"), 2).tags == ["O", "B-X"]
    with pytest.raises(ValueError, match="train.txt has 2 columns, but --text_column=3"):
        read_conll(_write(tmp_path, "a O\n"), 3)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("en:a en:: en: en:en:b", "a : en: en:b"),
        ("zh-min-nan:a " * 10 + "b", "a " * 10 + "b"),
        ("http://a b c", None),
        ("en:a en:b", None),
        ("en:a de:b de:c", None),
    ],
)
def test_the_language_before_words_is_left_out(words, kept, tmp_path):
    """Oracle: by hand; WikiANN's files have it, a prefix alone is a word."""
    text = read_conll(_write(tmp_path, "".join(f"{word}\tO\n" for word in words.split())))
    assert text.words == (kept or words).split()
    assert bool(text.notes) == bool(kept)


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("0-2\tO\n3-4\tB-X\n", 'words have no letter, such as "0-2"'),
        ("a B-caf\u00e9\nb B-cafe\u0301\nc B-Caf\u00e9\n", "'B-Café' and 'B-café'"),
        ("a 3\nb 10\n", "the tags are numbers"),
        ("a B-X\n, O\n文 O\n5 O\n", None),
        ("a PER\nb O\n", "tags such as PER do not say where entities begin"),
        ("a X-B\nb o\n", 'read the tag "X-B" as "B-X"'),
    ],
)
def test_odd_words_and_tags_are_said(text, warned, tmp_path, capsys):
    """Oracle: by hand."""
    text = read_conll(_write(tmp_path, text))
    prepare(text, labels := label_names(text))
    assert labels in (("3", "10"), ("O", "B-X"), ("B-Café", "B-café"), ("O", "PER"))
    out = capsys.readouterr().out
    assert warned in out if warned else not out


def test_labels_are_sorted_with_o_first(tmp_path):
    """Oracle: the order, written down; parts of speech are no entities."""
    assert label_names(read_conll(_write(tmp_path, _TEXT))) == ("O", "B-LOC", "B-ORG", "B-PER")
    assert label_names(read_conll(_write(tmp_path, "a NOUN\nb DET\n"))) == ("DET", "NOUN")
