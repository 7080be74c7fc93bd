"""Files in CoNLL's form."""

import pathlib

import pytest
import tensorflow_datasets as tfds

from bert_tf.finetuning.tagging.conll import read_conll, read_tfds, write_conll
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText

_TEXT = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
"""


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
def test_documents_sentences_and_words(text, write):
    """Oracle: the same words, tags and line numbers, written down."""
    read = read_conll(write("train.txt", text))
    assert [[len(s.words) for s in document] for document in read.documents] == [[2, 1], [1]]
    assert read.words == ["EU", "rejects", "Peter", "BRUSSELS"]
    assert read.tags == ["B-ORG", "O", "B-PER", "B-LOC"]
    lines = text.splitlines()
    numbers = [n for sentence in read.sentences for n in sentence.lines]
    assert all(lines[n - 1].startswith(w) for w, n in zip(read.words, numbers, strict=True))


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
_TROIA, _OUTER = "Troia University of Berlin Ja", "B-LOC B-ORG I-ORG I-ORG O"
_CLEF = "column 1 and tags in 2 of 3; the header; 2 comments"
_ONTONOTES = """#begin document (bc/cctv/00/cctv_0000); part 000
bc/cctv 0 0    John NNP (NP* - - - Anna (PERSON* (ARG0* -
bc/cctv 0 1   Smith NNP   *) - - - Anna       *)     *) (1)

bc/cctv 0 0      Ja  UH    * - - - Anna        * -

#end document
#begin document (bc/cctv/00/cctv_0001); part 000
bc/cctv 0 0   China NNP    * - - - Anna    (GPE) * * -
#end document
"""
_KAGGLE = (
    "Sentence #\tWord\tPOS\tTag|Sentence: 1\tEU\tNN\tB-X|\thas\tV\tO|\ta\tDT\tO|"
    "\tman\tNN\tO|Sentence: 2\tJa\tUH\tO"
)
# Lines with | between them, words, tags if they are worth a look, and parts of the notes.
_FORMATS = [
    (_KAGGLE, "EU has a man Ja", "B-X O O O O", "column 2 and tags in 4 of 4; the header left"),
    (_KAGGLE.replace("|\t", "|Sentence: 1\t"), "EU has a man Ja", "B-X O O O O", "the header"),
    (_KAGGLE.partition("|")[2], "EU has a man Ja", "B-X O O O O", "column 2 and tags in 4"),
    (_ONTONOTES, "John Smith Ja China", "B-PERSON I-PERSON O B-GPE", "column 4 and tags in 11"),
    ("a DT (LOC)|b NN *", "a b", "B-LOC O", ""),
    # A column of a single tag.
    ("a B-X O|b I-X O", "a b", "B-X I-X", "tags in 2 of 3"),
    ("a B_X O|b O O", "a b", "B_X O", "tags in 2 of 3"),
    ("B-X a O|O b O", "a b", "B-X O", "column 2 and tags in 1 of 3"),
    ("a DT _|b NN _", "a b", "DT NN", "tags in 2 of 3"),
    ("a DT O|b NN O", "a b", "O O", ""),
    (_GERMEVAL, _TROIA, _OUTER, "column 2 and tags in 3 of 4; --label_column; 2 comments"),
    (_GERMEVAL.replace("B-LOC\n", "O\n"), _TROIA, _OUTER, "tags in 3 of 4 "),
    (_GERMEVAL.replace("B-LOC\n", "B-OTHpart\n"), _TROIA, _OUTER, "tags in 3 of 4"),
    (_GERMEVAL.partition("\n")[2], _TROIA, _OUTER, "column 2 and tags in 3 of 4; 1 comment"),
    ("a B-X O|b I-X B-Y|c B-Y O", "a b c", "B-X I-X B-Y", "column 1 and tags in 2"),
    ("a B-NP O|b I-NP B-Y|c B-VP O", "a b c", "O B-Y O", ""),
    (_CONLLU, "In dem Haus Ja", "ADP DET NOUN INTJ", "tags in 4 of 10; 4 comments; 2 lines"),
    ("0 EU B-ORG|1 in O|2 a O||0 b O", "EU in a b", "B-ORG O O O", "column 2 and"),
    ("1 EU NNP B-NP B-ORG|2 in IN O O|3 a DT B-NP O", "EU in a", "B-ORG O O", "tags in 5 of 5"),
    ("4 a O|5 b O||6 c O|7 d B-X", "a b c d", "O O O B-X", "column 2 "),
    ("s1 a O|s1 b O||s2 c O|s2 d O|s2 e B-X", "a b c d e", None, "column 2 "),
    ("s1 1 a O|s1 2 b O|s1 3 c O|s1 4 d B-X", "a b c d", None, "column 3 and tags in 4"),
    ("1-1\ta\tO|1-2\tb\tO||2-1\tc\tO|2-2\td\tB-X", "a b c d", None, "column 2 "),
    ("1 a|2 b|3 c", "a b c", "", "words in column 2 of 2 (--text_column)"),
    # Words that are numbers.
    ("1 O|2 O|3 B-X", "1 2 3", "O O B-X", ""),
    ("1 CD O|2 CD O|3 CD O||EU NNP B-ORG", "1 2 3 EU", None, ""),
    ("1-2 CD O|8.1 CD O|won VB O", "1-2 8.1 won", None, ""),
    ("1 CD O|3 CD B-X", "1 3", None, ""),
    # Words and comments that begin with #.
    ("# : O|5 CD O|#tag NN O||#b NN B-X", "# 5 #tag #b", None, ""),
    ("# id 7\tdomain=en|a\tO|b\tB-X", "a b", None, "1 comment"),
    ("# sent_id = 1|a x y O|b x y B-X", "a b", None, "1 comment"),
    ("# id 7 domain=en|a _ _ O|b _ _ B-X", "a b", "O B-X", "1 comment"),
    ("TOKEN\tNE\tMISC|# lang = de|a\tO\t_|# x = 1|b\tB-X\tEnd", "a b", "O B-X", _CLEF),
    ("Word Tag|Token NN|word VB|is VB", "Token word is", "NN VB VB", "the header"),
    ("Word NN|Token NN", "Word Token", "NN NN", ""),
    # Tags before words, and parts of speech after tags.
    ("B-X\ta|I-X\tb||O\tc", "a b c", "B-X I-X O", "column 2 and tags in 1 of 2"),
    ("B-X a NN|O b VB|O c NN", "a b c", "B-X O O", "column 2 and tags in 1 of 3"),
    ("a B-X NN|b O VB|c O NN", "a b c", "B-X O O", "column 1 and tags in 2 of 3"),
    ("B-X\ta|0\tb|O\tc", "a b c", "B-X 0 O", "column 2 and tags in 1 of 2"),
    ("a B-NP B-X|b B-VP 0|c O O", "a b c", "B-X 0 O", ""),
    ("a B-NP O|b B-VP O", "a b", "O O", ""),
    ("S-Bahn NN|fuhr VB|ein PT", "S-Bahn fuhr ein", "NN VB PT", ""),
    # The language before words (WikiANN); a prefix alone is a word.
    ("en:a O|en:: O|en: O|en:en:b O", "a : en: en:b", None, "the prefix en:"),
    ("zh-min-nan:a O|" * 10 + "b O", "a " * 10 + "b", None, "the prefix zh-min-nan:"),
    ("http://a O|b O|c O", "http://a b c", None, ""),
    ("en:a O|en:b O", "en:a en:b", None, ""),
    ("en:a O|de:b O|de:c O", "en:a de:b de:c", None, ""),
    # A no-break space is part of a word; one column has no tags.
    ("a\u00a0b O||c O", "a\u00a0b c", "O O", ""),
    ("a|b", "a b", "", ""),
]


@pytest.mark.parametrize(("text", "words", "tags", "notes"), _FORMATS)
def test_columns_of_other_formats(text, words, tags, notes, write):
    """Oracle: the words and outer or universal tags, written down."""
    path = write("train.txt", text := text.replace("|", "\n"))
    read = read_conll(path, learn=True)
    assert read.words == words.split(" " if words else None)
    assert tags is None or read.tags == tags.split()
    assert all(part in "; ".join(read.notes) for part in notes.split("; "))
    assert bool(read.notes) == bool(notes)
    lines = text.split("\n")
    numbers = [n for sentence in read.sentences for n in sentence.lines]
    assert all(w in lines[n - 1] for w, n in zip(read.words, numbers, strict=True))
    assert read.marks_documents or len(read.documents) == len(read.sentences)
    if read.columns:
        again = read_conll(path, *(int(x) for x in read.columns.values()))
        assert again.documents == read.documents


def test_columns_may_be_named(write):
    """Oracle: by hand; a file without the column of tags has none, or holds words alone."""
    path = write("train.txt", _GERMEVAL)
    assert read_conll(path, 2, 4).tags == ["O", "O", "O", "B-LOC", "O"]
    text = read_conll(write("train.txt", "1\ta\n2\tb\n"), 2, 3)
    assert (text.words, text.tags) == (["a", "b"], [])
    assert read_conll(write("train.txt", "a\nb\n"), 2, 3).words == ["a", "b"]
    for columns in ((0, 1), (2, 1)):
        text = read_conll(write("train.txt", "DT\ta\nNN\tb\n"), *columns)
        assert (text.words, text.tags) == (["a", "b"], ["DT", "NN"])
    assert read_conll(write("train.txt", "O\ta\nB-X\tb\n"), 2).tags == ["O", "B-X"]
    # Tags that are not to be learned may all be the same.
    assert read_conll(write("train.txt", "a B-X O\nb O O\n")).tags == ["O", "O"]
    with pytest.raises(ValueError, match="train.txt has 2 columns, but --text_column=3"):
        read_conll(write("train.txt", "a O\n"), 3)


def test_writing_is_the_input_of_conlleval(write, tmp_path):
    """Oracle: the lines, written down; spaces in words and tags do not add columns."""
    path = str(tmp_path / "out.conll")
    text = read_conll(write("train.txt", _TEXT.replace("EU", "E\u00a0U")))
    write_conll(path, text, ["O", "B-LOC", "B-PER", "O"])
    assert pathlib.Path(path).read_text() == (
        "-DOCSTART- O O\n\nE_U B-ORG O\nrejects O B-LOC\n\nPeter B-PER B-PER\n\n"
        "-DOCSTART- O O\n\nBRUSSELS B-LOC O\n\n"
    )
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
    monkeypatch.setattr("bert_tf.finetuning.examples.prepare_dataset", lambda _: None)
    monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", lambda *_: tmp_path)
    builder.download_and_prepare()
    expected = read_conll(str(tmp_path / "train.txt"))
    for split in ("train", "dev", "test"):
        text = read_tfds(split)
        found, rows = (sorted(s[:2] for s in x.sentences) for x in (text, expected))
        assert found == rows
        assert text.describe() == "4 words in 3 sentences"
