"""The nearest words of a word, by vectors in a file of GloVe's format."""

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.corpus.compression import estimate_content_bytes, read_content
from tfrecords.progress import counted, progress_bar, say

# Source: TinyBERT (arXiv:1909.10351) section 4.2, for neighbors and for words of the masked LM.
CANDIDATES = 15


class Glove:
    """Finds the 15 words whose vectors have the largest cosine with that of a word.

    Each line of the file holds a word and the numbers of its vector, separated by spaces; words
    may contain spaces, too. If a word occurs twice, its first vector counts. Words that are not
    UTF-8, vectors of zeros only and blank lines are left out. The vectors stay in memory, with 4
    bytes per number. The file may be compressed with gzip, bzip2, xz or zstd.

    Source: TinyBERT (arXiv:1909.10351) algorithm 1.
    """

    def __init__(self, path: str):
        self._rows: dict[str, int] = {}
        self._found: dict[str, list[str]] = {}
        # It grows in place, so that memory never holds all vectors twice.
        values, size, left_out = bytearray(), 0, 0
        for number, line in enumerate(_lines(path), start=1):
            where, fields = f"{path}, line {number:,}", line.split()
            if not fields:
                continue
            if not size and len(fields) < 3:
                raise ValueError(
                    f"{where} holds no vector: each line must hold a word and its numbers; if this "
                    "line is a header, delete it"
                )
            size = size or len(fields) - 1
            vector = _vector(fields, size, where)
            length = np.linalg.norm(vector)
            word = b" ".join(fields[:-size]).decode(errors="replace")
            if not length or "\ufffd" in word or word in self._rows:
                left_out += 1
                continue
            self._rows[word] = len(self._rows)
            values += np.array(vector / length, np.float32).tobytes()
        if not self._rows:
            raise ValueError(f"{path} holds no word vectors: give a file in GloVe's format")
        self._words = list(self._rows)
        self._vectors = np.frombuffer(values, np.float32).reshape(-1, size)
        others = f"; {counted(left_out, 'line')} left out" if left_out else ""
        say(f"Read {len(self._rows):,} word vectors of {size} numbers from {path}{others}.")

    def fingerprint(self) -> str:
        """Returns a checksum of the words and vectors."""
        digest = hashlib.sha256(self._vectors.reshape(-1))
        digest.update("\n".join(self._words).encode())
        return digest.hexdigest()

    def neighbors(self, word: str) -> list[str]:
        """Returns the nearest other words, the nearest first; none for a word without a vector.

        Of equally near words, those that come first in the file count.
        """
        if word not in self._found:
            row = self._rows.get(word)
            self._found[word] = [] if row is None else self._nearest(row)
        return self._found[word]

    def _nearest(self, row: int) -> list[str]:
        count = min(CANDIDATES, len(self._words) - 1)
        # Not a matrix product, which rounds equal rows differently, depending on their places.
        cosines = np.einsum("ij,j->i", self._vectors, self._vectors[row])
        cosines[row] = -np.inf
        near = np.flatnonzero(cosines >= np.partition(cosines, -count)[-count])
        order = np.argsort(-cosines[near], kind="stable")[:count]
        return [self._words[index] for index in near[order]]


def _lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file and, if it ends with a line feed, a blank one."""
    size, rest = estimate_content_bytes([path]), b""
    with progress_bar(
        total=size, desc="Reading vectors", unit="B", unit_scale=True, leave=False, delay=5
    ) as bar:
        for part in read_content(path):
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
            bar.update(len(part))
    yield rest


def _vector(fields: Sequence[bytes], size: int, where: str) -> np.ndarray:
    """Returns the last `size` fields as numbers, float64."""
    extra = fields[1:-size]
    if len(fields) <= size or extra and _is_finite(extra[-1]):
        raise ValueError(
            f"{where}: {counted(len(fields) - 1, 'value')} after the word instead of the {size} of "
            "the first line: correct or delete the line"
        )
    try:
        vector = np.array(list(map(float, fields[-size:])))
    except ValueError:
        vector = np.array(np.nan)
    if not np.isfinite(vector).all():
        wrong = next(field for field in fields[-size:] if not _is_finite(field))
        shown = wrong.decode(errors="replace")
        raise ValueError(f"{where}: {shown!r} is not a finite number: correct or delete the line")
    return vector


def _is_finite(field: bytes) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False
