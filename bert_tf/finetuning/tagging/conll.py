"""CoNLL files: a word per line with its columns, a blank line after each sentence."""

from collections.abc import Iterator, Sequence

from bert_tf.corpus.tfds import prepare as prepare_tfds
from bert_tf.finetuning.tables import read_file
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText
from tfrecords.progress import counted
from tfrecords.writer import atomic_write

DOCUMENT = "-DOCSTART-"


def read_conll(path: str) -> TaggedText:
    """Reads a file whose first column is the word and whose last one is its tag.

    Columns are separated by tabs or, in lines without tabs, by spaces. With a single column, there
    are no tags. Without -DOCSTART- lines, every sentence is a document.

    Raises:
        ValueError: a line is malformed, or there are no words; the message names the line.
        OSError: the file cannot be read.
    """
    documents, sentence, width, marked = [[]], [], 0, False
    for number, columns in _rows(path):
        if columns and columns[0] != DOCUMENT:
            width = width or len(columns)
            _check(path, number, columns, width)
            sentence.append((columns[0], columns[-1], number))
            continue
        if sentence:
            documents[-1].append(_sentence(sentence, width))
            sentence = []
        if columns:
            documents.append([])
            marked = True
    documents = [document for document in documents if document]
    if not documents:
        raise ValueError(f"{path} has no words")
    if not marked:
        documents = [[sentence] for document in documents for sentence in document]
    return TaggedText(path, documents, marked)


def read_tfds(split: str) -> TaggedText:
    """Reads a split of CoNLL-2003, "train", "dev" or "test", from tensorflow-datasets.

    It does not say where documents begin.

    Raises:
        OSError: it cannot be downloaded.
    """
    # Slow to import, and not needed for local files.
    import tensorflow_datasets as tfds

    builder = tfds.builder("conll2003")
    prepare_tfds(builder)
    name = builder.info.features["ner"].feature.int2str
    documents = []
    for number, row in enumerate(tfds.as_numpy(builder.as_dataset(split=split)), start=1):
        words = tuple(word.decode() for word in row["tokens"])
        # The blank line at the end of a file makes an empty example.
        if words:
            lines = (number,) * len(words)
            documents.append([Sentence(words, tuple(map(name, row["ner"])), lines)])
    return TaggedText("TFDS conll2003", documents)


def has_tags(path: str) -> bool:
    """Returns whether the first word of a file has a tag."""
    rows = (columns for _, columns in _rows(path) if columns and columns[0] != DOCUMENT)
    return len(next(rows, [])) > 1


def write_conll(path: str, text: TaggedText, predicted: Sequence[str]) -> None:
    """Writes word, tag if known, and predicted tag, the input of conlleval, whole or not at all.

    Spaces in words and tags become underscores.

    Args:
        predicted: the tags of all words.
    """
    tags, lines = iter(text.by_sentence(predicted)), []
    for document in text.documents:
        if text.marks_documents:
            lines += [" ".join([DOCUMENT, "O", *["O"] * bool(text.tags)]), ""]
        for sentence in document:
            columns = filter(None, (sentence.words, sentence.tags, next(tags)))
            rows = zip(*columns, strict=True)
            lines += [*(" ".join(map(_without_spaces, row)) for row in rows), ""]
    atomic_write(path, "\n".join(lines) + "\n")


def _without_spaces(cell: str) -> str:
    return "_".join(cell.split()) or "_"


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the columns of every line, and a blank line at the end."""
    lines = read_file(path).split(b"\n")
    for number, line in enumerate([*lines, b""], start=1):
        if b"\r" in line.rstrip(b"\r"):
            raise ValueError(
                f"{path}, line {number}: a carriage return inside the line: save the file with the "
                "line ends of Unix or Windows"
            )
        try:
            yield number, _columns(line.decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8: {error.reason}") from None


def _columns(line: str) -> list[str]:
    # Not split(): it also splits at characters that may be part of a word, such as U+00A0.
    line = line.rstrip("\r")
    if not line.strip(" \t"):
        return []
    if "\t" in line:
        return [column.strip(" ") for column in line.split("\t")]
    return [column for column in line.split(" ") if column]


def _check(path: str, number: int, columns: list[str], width: int) -> None:
    if len(columns) != width:
        raise ValueError(
            f"{path}, line {number}: {counted(len(columns), 'column')} instead of the {width} of "
            "the first word"
        )
    for name, column in (("word", columns[0]), ("tag", columns[-1])):
        if not column:
            raise ValueError(f"{path}, line {number}: the {name} is empty")


def _sentence(rows: list[tuple[str, str, int]], width: int) -> Sentence:
    words, tags, lines = zip(*rows, strict=True)
    return Sentence(words, tags if width > 1 else (), lines)
