"""Counts words in gigabytes of text, in bounded memory; measures how a vocabulary covers them."""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_bar
from bert_tf.corpus.corpus_options import CorpusOptions
from bert_tf.corpus.reading import ReadCounts, read_sentences, text_blocks
from bert_tf.corpus.sources import Block, estimate_bytes
from bert_tf.jobs.workers import available_cores, num_processes, open_workers
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

BLOCK_BYTES = 2**22
# The largest number of distinct words held at once, at about 150 bytes each. About ten gigabytes of
# English have as many.
MAX_WORDS = 4_000_000
# Starting a worker takes as long as counting the words of this much text on one core.
BYTES_PER_WORKER = 2**25
_WORDS_AT_ONCE = 100_000
# The longest name of a text in a table, in characters.
_WIDTH = 40
# The only ASCII whitespace that does not end a word. The tokenizer drops it, like U+0001.
_NO_SPACE = bytes.maketrans(b"\x0b\x0c", b"\x01\x01")
_PLAIN = Vocabulary(SPECIAL_TOKENS)


@dataclass
class WordCounts:
    """The normalized words of each text, by its name, and how often they occur."""

    texts: dict[str, Counter[str]]
    invalid_lines: Counter[str] = field(default_factory=Counter)  # of each file, that are not UTF-8
    pruned: int = 0  # occurrences of rare words that were left out to keep the tables small

    def all(self) -> Counter[str]:
        """Returns the words of all texts together."""
        if len(self.texts) == 1:
            return next(iter(self.texts.values()))
        return sum(self.texts.values(), Counter())


def count_words(
    texts: Mapping[str, Sequence[str]],
    lower_case: bool,
    options: CorpusOptions,
    num_workers: int | None = 1,
    max_words: int = MAX_WORDS,
    vocab: Vocabulary = _PLAIN,
) -> WordCounts:
    """Counts the words of files as `WordPieceTokenizer` sees them.

    Whenever more than `max_words` distinct words are held, the rarer half is dropped (or more if
    many are equally rare). Blocks are added up in the order of the files, so the result does not
    depend on the number of workers.

    The `texts` are files by the name of the text; none for a TFDS dataset. The options have all
    defaults resolved. Added tokens of a `vocab` are words of their own; its lines do not matter.
    """
    size = estimate_bytes([*itertools.chain(*texts.values())], options.text_field)
    useful = max(1, size // BYTES_PER_WORKER) if size else available_cores()
    bar = dict(total=size or None, unit="B", unit_scale=True, desc="Counting words")
    counts = WordCounts({name: Counter() for name in texts})
    if not options.clean:
        # Sentences have the words of their line.
        options = dataclasses.replace(options, split_sentences=False)
    # Documents may be divided where only their words matter.
    keeps_all = _keeps_all(options)
    tasks = (
        (_count_block, name, block, lower_case, options, vocab)
        for name, files in texts.items()
        for block in text_blocks(options, files, BLOCK_BYTES, whole_documents=not keeps_all)
    )
    with (
        open_workers(num_processes(num_workers, useful)) as results,
        progress_bar(**bar) as progress,
    ):
        for name, words, times, invalid_lines, size in results(tasks):
            table = counts.texts[name]
            for word, number in zip(words, times, strict=True):
                table[word] += number
            counts.invalid_lines.update(invalid_lines)
            if sum(map(len, counts.texts.values())) > max_words:
                counts.pruned += _prune(list(counts.texts.values()))
            progress.update(size)
    return counts


def _prune(tables: list[Counter[str]]) -> int:
    """Drops every word at or below the median frequency; returns how many occurrences are lost."""
    times = np.concatenate([np.fromiter(table.values(), np.int64) for table in tables])
    limit = np.partition(times, times.size // 2)[times.size // 2]
    for table in tables:
        for word in [word for word, number in table.items() if number <= limit]:
            del table[word]
    return int(times[times <= limit].sum())


def _keeps_all(options: CorpusOptions) -> bool:
    """Returns whether the words of plain text are all its words, wherever a document ends."""
    drops_lines = options.document_separator not in ("blank_line", "file")
    return not (options.clean or options.unwrap or drops_lines)


def _count_block(
    name: str, block: Block, lower_case: bool, options: CorpusOptions, vocab: Vocabulary
) -> tuple[str, list[str], list[int], dict[str, int], int]:
    """Returns the name of a text, words, their frequencies, invalid lines by file, and bytes."""
    counts, data = ReadCounts(), block.data
    # Lines of WikiExtractor are no text; see `read_documents`.
    has_marks = b"<doc " in data or b"</doc>" in data
    if block.kind == "text" and _keeps_all(options) and not has_marks:
        for _ in block.texts(counts.invalid_lines):
            pass
    else:
        documents = read_sentences(block, options, counts)
        data = "\n".join(itertools.chain.from_iterable(documents)).encode()
    # Whitespace separates words, so the tokenizer only needs to see each string once. Only an added
    # token may contain spaces.
    spaced = any(" " in token.content for token in vocab.added)
    tokens = Counter(data.split(b"\n") if spaced else data.translate(_NO_SPACE).split())
    if not tokens:
        return name, [], [], counts.invalid_lines, len(block.data)
    words, words_per_token = _normalizer(vocab, lower_case)(list(tokens))
    times = np.repeat(np.fromiter(tokens.values(), np.int64), words_per_token)
    words, which = tf.unique(words)
    # Sums of float64 are exact up to 2**53.
    times = np.bincount(which, times, minlength=len(words)).astype(np.int64)
    decoded = [word.decode() for word in words.numpy().tolist()]
    return name, decoded, times.tolist(), counts.invalid_lines, len(block.data)


@functools.cache
def _normalizer(
    vocab: Vocabulary, lower_case: bool
) -> Callable[[list[bytes]], tuple[tf.Tensor, tf.Tensor]]:
    """Returns a function from strings [N] to all their words and the number of words of each."""
    tokenizer = WordPieceTokenizer(vocab, lower_case)

    def normalize(tokens):
        words = tokenizer.words(tokens)
        return words.values, words.row_lengths()

    return tf.function(normalize, input_signature=[tf.TensorSpec([None], tf.string)])


@dataclass(frozen=True)
class Coverage:
    """How a vocabulary covers a text: its tokens, [UNK] included, and characters of all words."""

    words: int
    distinct: int
    tokens: int
    unknown: int
    characters: int


def measure(words: Counter[str], vocab: Vocabulary, lower_case: bool) -> Coverage:
    """Returns the coverage of normalized words, weighted by how often they occur."""
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    distinct, times = list(words), np.fromiter(words.values(), np.int64, len(words))
    tokens = unknown = 0
    for start in range(0, len(distinct), _WORDS_AT_ONCE):
        part = slice(start, start + _WORDS_AT_ONCE)
        ids = tokenizer.tokenize_flat(tf.constant(distinct[part], tf.string))
        tokens += int(times[part] @ ids.row_lengths().numpy())
        unknown += int(times[part] @ tf.reduce_any(ids == vocab.unk_id, axis=1).numpy())
    characters = int(times @ np.fromiter(map(len, distinct), np.int64, len(distinct)))
    return Coverage(int(times.sum()), len(distinct), tokens, unknown, characters)


def coverage_table(rows: Mapping[str, Coverage]) -> str:
    """Formats the coverages of texts as a table."""
    names = [name if len(name) <= _WIDTH else f"...{name[3 - _WIDTH :]}" for name in rows]
    width = max(map(len, ["text", *names]))
    lines = [
        f"{'text':{width}}  {'words':>15}  {'distinct':>12}  {'tokens/word':>11}"
        f"  {'characters/token':>16}  {'[UNK]':>8}"
    ]
    for name, row in zip(names, rows.values(), strict=True):
        words, tokens = max(1, row.words), max(1, row.tokens)
        lines.append(
            f"{name:{width}}  {row.words:15,}  {row.distinct:12,}  {row.tokens / words:11.3f}"
            f"  {row.characters / tokens:16.2f}  {row.unknown / words:8.4%}"
        )
    return "\n".join(lines)
