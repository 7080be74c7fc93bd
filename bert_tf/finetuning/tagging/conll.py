"""CoNLL files: a word per line with its columns, a blank line after each sentence."""

import re
from collections.abc import Iterator, Sequence
from unicodedata import normalize

from bert_tf.base.content import read_text
from bert_tf.base.output_files import atomic_write
from bert_tf.base.progress import counted
from bert_tf.finetuning import examples
from bert_tf.finetuning.tagging.conll_columns import (
    NUMBERED,
    ONTONOTES,
    find_prefix,
    find_tag_columns,
    is_header,
    is_ontonotes,
    without_ranges,
)
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText
from bert_tf.tables.rows import not_empty

CONLL_FORM = (
    "a file that has a word and its tag on every line, separated by a tab, and a blank line after "
    "every sentence"
)
DOCUMENT = "-DOCSTART-"
# The first cell of lines that begin and end a document of OntoNotes, and what they stand for.
_MARKS = {"#begin": [DOCUMENT], "#end": []}
# The number of a sentence, or the header of such numbers.
_SENTENCE = re.compile(r"sentence([:_ ]*(\d+|#|id|no|number|idx))", re.IGNORECASE)
# The number of a line, and its cells.
_Row = tuple[int, list[str]]


def read_conll(path: str, word: int = 0, tag: int = 0, learn: bool = False) -> TaggedText:
    """Reads a file that has words and tags in columns.

    Columns are separated by tabs or, in lines without tabs, by spaces. The word is in the first
    column after those that number sentences and words, and the tag in the last one, or in the only
    one with tags of entities; but of nested entities (GermEval), the outer ones count, and in the
    ten columns of CoNLL-U, the universal part of speech. With a single column, there are no tags.
    Tags in brackets, such as "(PER*" and "*)", become BIO; of OntoNotes (CoNLL-2012), column 11 is
    read. Comments, a header, CoNLL-U's ranges of tokens and empty nodes, and a language before all
    words, `en:`, are left out. The notes of the text say so. Without -DOCSTART- lines, every
    sentence is a document.

    `word` and `tag` are the columns, from 1; 0 to find them. A file without the latter has no tags.
    If they are to be learned, a column with a single one is passed by.
    """
    documents, notes = _documents(path)
    sentences = [[cells for _, cells in rows] for document in documents for rows in document]
    if not sentences:
        raise ValueError(f"{path} has no words")
    columns, width = find_tag_columns(sentences, word, tag, learn), len(sentences[0][0])
    if columns[0] >= width:
        raise ValueError(f"{path} has {counted(width, 'column')}, but --text_column={word}")
    prefix = find_prefix([row[columns[0]] for rows in sentences for row in rows])
    if prefix:
        notes.append(f"the prefix {prefix} removed from words")
    found = zip(("text_column", "label_column"), columns, strict=True)
    found = {flag: str(index + 1) for flag, index in found if index is not None}
    if columns == (0, width - 1) or width == 1:
        found = {}
    else:
        tags = f" and tags in {found['label_column']}" if columns[1] is not None else ""
        flags = ", ".join(f"--{flag}" for flag in found)
        notes.insert(0, f"words in column {columns[0] + 1}{tags} of {width} ({flags})")
    texts = [[_sentence(path, rows, *columns, prefix) for rows in x] for x in documents]
    if not (marked := len(documents) > 1):
        texts = [[sentence] for sentence in texts[0]]
    return TaggedText(path, [text for text in texts if text], marked, tuple(notes), found)


def _documents(path: str) -> tuple[list[list[list[_Row]]], list[str]]:
    """Returns the lines of each sentence, in documents, and notes; marks begin new documents."""
    rows, width = _without_empty_ends([*_rows(path)])
    words = [cells for _, cells in rows if _is_word(cells)]
    header = words[0] if is_header(words) else None
    numbered = len(words) > 2 and all(NUMBERED.fullmatch(x[0]) for x in words[bool(header) :])
    rows = _with_sentence_numbers(rows) if words and _SENTENCE.fullmatch(words[0][0]) else rows
    documents, comments = [[[]]], 0
    for number, cells in rows:
        sentence = documents[-1][-1]
        if DOCUMENT in cells:
            documents.append([[]])
        elif not cells:
            documents[-1].append([])
        elif (cells[0][:2] in ("#", "# ") or (cells[0][0:1] == "#" and not sentence)) and (
            numbered
            or len(cells) != width
            or " " in cells[0]
            or any("=" in cell for cell in cells[1:])
        ):
            comments += 1
        elif len(cells) != width:
            raise ValueError(
                f"{path}, line {number}: {counted(len(cells), 'column')}, but the first word has "
                f"{width}: keep only the columns of words and tags"
            )
        elif cells is not header:
            sentence.append((number, cells))
    documents, ranges = without_ranges([[x for x in document if x] for document in documents])
    left_out = {
        "the header": header,
        counted(comments, "comment"): comments,
        f"{counted(ranges, 'line')} of ranges and empty nodes": ranges,
    }
    return documents, [f"{name} left out" for name, found in left_out.items() if found]


def _with_sentence_numbers(rows: list[_Row]) -> Iterator[_Row]:
    """Yields the rows, and a blank line where the sentence, numbered in the first cell, changes."""
    current = ""  # an empty cell continues the sentence, as in Kaggle's files
    for number, cells in rows:
        if cells and cells[0] not in ("", current):
            current = cells[0]
            yield number, []
        cells[:1] = [current][: len(cells)]
        yield number, cells


def _without_empty_ends(rows: list[_Row]) -> tuple[list[_Row], int]:
    """Returns the rows without empty ends, of OntoNotes the shared columns, and their number."""
    words = [cells for _, cells in rows if _is_word(cells)]
    if words and is_ontonotes(words):
        width = ONTONOTES[1]
        return [(n, _MARKS.get("".join(x[:1]), x)[:width]) for n, x in rows], width
    width = min(len(words[0]), max(map(_filled, words))) if words else 0
    return [(n, x[: max(width, _filled(x))]) for n, x in rows], width


def _is_word(cells: list[str]) -> bool:
    return bool(cells) and DOCUMENT not in cells and not cells[0].startswith("#")


def _filled(cells: list[str]) -> int:
    """Returns the number of cells without empty ones at the end."""
    return max((number for number, cell in enumerate(cells, 1) if cell), default=0)


def read_tfds(split: str) -> TaggedText:
    """Reads "train", "dev" or "test" of CoNLL-2003 from TFDS, without where documents begin."""
    rows, features = examples.tfds_rows("conll2003", split)
    name, documents = features["ner"].feature.int2str, []
    for number, row in enumerate(rows, start=1):
        words = tuple(word.decode() for word in row["tokens"])
        # The blank line at the end of a file makes an empty example.
        if words:
            lines = (number,) * len(words)
            documents.append([Sentence(words, tuple(map(name, row["ner"])), lines)])
    return TaggedText("TFDS conll2003", documents)


def write_conll(path: str, text: TaggedText, predicted: Sequence[str]) -> None:
    """Writes word, tag if known, and predicted tag for conlleval; spaces become underscores."""
    tags, lines = iter(text.by_sentence(predicted)), []
    for document in text.documents:
        if text.marks_documents:
            lines += [f"{DOCUMENT} O O" if text.tags else f"{DOCUMENT} O", ""]
        for sentence in document:
            columns = filter(None, (sentence.words, sentence.tags, next(tags)))
            rows = zip(*columns, strict=True)
            cells = (["_".join(cell.split()) or "_" for cell in row] for row in rows)
            lines += [*map(" ".join, cells), ""]
    atomic_write(path, "\n".join(lines) + "\n")


def _rows(path: str) -> Iterator[_Row]:
    """Yields the lines; blank ones have no cells."""
    lines = not_empty(path, read_text(path)).split(b"\n")
    tabs = any(b"\t" in line.strip(b" \t\r") for line in lines)
    if not tabs and path.lower().endswith(".csv") and b"," in lines[0]:
        raise ValueError(f"{path}: commas separate the columns, but --task=ner needs {CONLL_FORM}")
    for number, line in enumerate(lines, start=1):
        if b"\r" in line.rstrip(b"\r"):
            raise ValueError(
                f"{path}, line {number}: a carriage return inside the line: save the file with the "
                "line ends of Unix or Windows"
            )
        try:
            line = line.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8: {error.reason}") from None
        # Not split(): it also splits at characters that may be part of a word, such as U+00A0.
        if tabs and "\t" in line and line.strip(" \t"):
            yield number, [column.strip(" ") for column in line.split("\t")]
        else:
            yield number, [column for column in line.strip("\t ").split(" ") if column]


def _sentence(path: str, rows: list[_Row], word: int, tag: int | None, prefix: str) -> Sentence:
    # A prefix alone is a word.
    found = {"word": [cells[word].removeprefix(prefix) or cells[word] for _, cells in rows]}
    found["tag"] = [] if tag is None else [normalize("NFC", cells[tag]) for _, cells in rows]
    for name, values in found.items():
        if "" in values:
            raise ValueError(f"{path}, line {rows[values.index('')][0]}: the {name} is empty")
    return Sentence(*map(tuple, found.values()), tuple(number for number, _ in rows))
