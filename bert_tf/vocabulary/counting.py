"""Counts the words of gigabytes of text on all cores, in bounded memory."""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert_tf.corpus.lines import decode, read_documents
from bert_tf.corpus.sources import Block, read_blocks
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.workers import Workers
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

BLOCK_BYTES = 2**22
# Different words held at once, some 150 bytes each; English gets there after some ten gigabytes.
MAX_WORDS = 4_000_000
# A worker takes seconds to start, in which one core counts so much.
BYTES_PER_WORKER = 2**25
# The only ASCII white space that does not end a word: the tokenizer drops it, as it does U+0001.
_NO_SPACE = bytes.maketrans(b"\x0b\x0c", b"\x01\x01")


@dataclass
class WordCounts:
    """The words of each text, normalized, with the number of their occurrences.

    Attributes:
      texts: words by the name of the text.
      damaged_lines: lines that held bytes that are not UTF-8.
      pruned: occurrences of rare words that were left out, so that the tables stay small.
    """

    texts: dict[str, Counter[str]]
    damaged_lines: int = 0
    pruned: int = 0

    def all(self) -> Counter[str]:
        """The words of all texts together."""
        if len(self.texts) == 1:
            return next(iter(self.texts.values()))
        return sum(self.texts.values(), Counter())


def count_words(
    texts: Mapping[str, Sequence[str]],
    lower_case: bool,
    json_field: str = "text",
    num_workers: int = 1,
    max_words: int = MAX_WORDS,
) -> WordCounts:
    """Counts the words of files as `WordPieceTokenizer` sees them.

    Whenever more than `max_words` different words are held, the rarer half goes (more, where many
    are equally rare). Blocks of text are added up in the order of the files, so that the result
    does not depend on the number of workers.

    Args:
      texts: names of texts and the files of each; what `read_blocks` can read.
      json_field: where JSON lines hold their text.
      num_workers: processes; texts too small for so many get fewer.

    Raises:
      ValueError: a JSON line without the field.
      OSError: a file cannot be read, or a worker died.
    """
    size = sum(tf.io.gfile.stat(file).length for files in texts.values() for file in files)
    counts = WordCounts({name: Counter() for name in texts})
    # Documents may be cut: there are texts without a blank line.
    blocks = enumerate(
        (name, block)
        for name, files in texts.items()
        for block in read_blocks(files, BLOCK_BYTES, whole_documents=False)
    )
    tasks = (
        (_count_task, index, name, block, lower_case, json_field) for index, (name, block) in blocks
    )
    num_workers = min(num_workers, 1 + size // BYTES_PER_WORKER)
    with (
        Workers(num_workers) as workers,
        tqdm(total=size, unit="B", unit_scale=True, desc="Counting words") as progress,
    ):
        for name, (words, times, damaged, read) in _in_order(workers.results(tasks)):
            table = counts.texts[name]
            for word, number in zip(words, times, strict=True):
                table[word] += number
            counts.damaged_lines += damaged
            if sum(map(len, counts.texts.values())) > max_words:
                counts.pruned += _prune(list(counts.texts.values()))
            progress.update(read)
    return counts


def _in_order(results: Iterator[tuple[tuple, object]]) -> Iterator[tuple[str, tuple]]:
    """Name and result of every task, in the order in which the tasks were made."""
    waiting: dict[int, tuple[str, tuple]] = {}
    turn = 0
    for (_, index, name, *_), result in results:
        waiting[index] = name, result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def _prune(tables: list[Counter[str]]) -> int:
    """Drops every word that is not more frequent than the median; the occurrences dropped."""
    times = np.concatenate([np.fromiter(table.values(), np.int64) for table in tables])
    limit = np.partition(times, times.size // 2)[times.size // 2]
    for table in tables:
        for word in [word for word, number in table.items() if number <= limit]:
            del table[word]
    return int(times[times <= limit].sum())


def _count_task(
    index: int, name: str, block: Block, lower_case: bool, json_field: str
) -> tuple[list[str], list[int], int, int]:
    return count_block(block, lower_case, json_field)


def count_block(
    block: Block, lower_case: bool, json_field: str = "text"
) -> tuple[list[str], list[int], int, int]:
    """The words of a block, how often each occurs, damaged lines, and the bytes of the block."""
    data = block.data
    text, damaged = decode(data)
    if block.kind == "json":
        documents = read_documents(block, text, json_field)
        data = "\n".join(line for document in documents for line in document).encode()
    # White space parts words whatever else the tokenizer does: only what is different needs it.
    tokens = Counter(data.translate(_NO_SPACE).split())
    if not tokens:
        return [], [], damaged, len(block.data)
    words, words_per_token = _normalizer(lower_case)(list(tokens))
    times = np.repeat(np.fromiter(tokens.values(), np.int64), words_per_token)
    words, which = tf.unique(words)
    # Sums of float64 are exact up to 2**53.
    times = np.bincount(which, times, minlength=len(words)).astype(np.int64)
    decoded = [word.decode() for word in words.numpy().tolist()]
    return decoded, times.tolist(), damaged, len(block.data)


@functools.cache
def _normalizer(lower_case: bool):
    """A function strings [N] -> (all their words, the number of words of each)."""
    tokenizer = WordPieceTokenizer(Vocabulary(SPECIAL_TOKENS), lower_case)

    def normalize(tokens):
        words = tokenizer.words(tokens)
        return words.values, words.row_lengths()

    return tf.function(normalize, input_signature=[tf.TensorSpec([None], tf.string)])
