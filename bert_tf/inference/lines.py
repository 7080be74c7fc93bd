"""Reads the texts that commands are given, in chunks."""

import codecs
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence

from bert_tf.corpus.sources import read_blocks
from bert_tf.corpus.utf8 import check_encoding

CHUNK_LINES = 1024
_BLOCK_BYTES = 2**20


def read_chunks(texts: Sequence[str], input_file: str | None) -> Iterator[list[bytes]]:
    """Yields the texts, or else the lines of a file or of standard input, in chunks.

    A chunk is a single line if someone types in a terminal, who thus gets each answer at once.

    Raises:
        ValueError, OSError: the file cannot be read, or the text is UTF-16 or UTF-32.
    """
    if texts:
        # Arguments that are not UTF-8 arrive with surrogates.
        lines = (text.encode("utf-8", "surrogateescape") for text in texts)
    elif input_file:
        lines = read_lines(input_file)
    else:
        lines = _standard_input()
    typed = not texts and not input_file and sys.stdin.isatty()
    if typed:
        print("Type one text per line, and end with Ctrl-D.", file=sys.stderr)
    return in_chunks(lines, 1 if typed else CHUNK_LINES)


def _standard_input() -> Iterator[bytes]:
    for number, line in enumerate(sys.stdin.buffer):
        if number == 0:
            check_encoding(line, "standard input")
        yield (line if number else line.removeprefix(codecs.BOM_UTF8)).rstrip(b"\r\n")


def in_chunks(items: Iterable, size: int) -> Iterator[list]:
    """Yields lists of `size` items; the last one may be shorter."""
    iterator = iter(items)
    return iter(lambda: list(itertools.islice(iterator, size)), [])


def read_lines(file: str) -> Iterator[bytes]:
    """Yields the lines of a text file without their ends (LF or CRLF); blank lines, too.

    Raises:
        ValueError: the file is UTF-16 or UTF-32.
        OSError: the file cannot be read.
    """
    for block in read_blocks([file], _BLOCK_BYTES, layout=None):
        for line in block.data.removesuffix(b"\n").split(b"\n"):
            yield line.removesuffix(b"\r")
