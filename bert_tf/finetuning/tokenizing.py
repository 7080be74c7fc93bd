"""Tokenizes the examples of text tasks once, before training; windows over long texts."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.content import is_utf8
from bert_tf.base.progress import counted, progress_bar
from bert_tf.finetuning.examples import TextExamples
from bert_tf.jobs.workers import available_cores
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.coverage import TokenCounts
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

_TEXTS_PER_CALL = 512


@dataclass(frozen=True)
class Features:
    """Tokenized examples without padding. A task may extend it with what its `score` needs.

    Attributes:
        ids, types: token and segment ids, int32 [N, (length)], or [N, K, (length)] for K rows.
        targets: by name, an array [N, ...], or a RaggedTensor [N, (length)] for a target per token;
            {} if unknown.
        examples: the examples of the split as the task read them.
        vocab: that of the ids.
        max_seq_length: the largest number of tokens of an example.
        num_truncated: number of examples, or of their K rows, that were truncated.
        notes: facts about the data, with their counts.
    """

    ids: tf.RaggedTensor
    types: tf.RaggedTensor
    targets: Mapping[str, np.ndarray | tf.RaggedTensor]
    examples: Sized
    vocab: Vocabulary
    max_seq_length: int
    num_truncated: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.ids.nrows())

    def describe(self) -> str:
        """Returns `facts` and, in another line, a warning if the vocabulary does not suit them."""
        return "\n".join(filter(None, [self.facts(), self.coverage.warning()]))

    def facts(self) -> str:
        """Returns the number of examples, what they became, and the notes, in one line."""
        return ", ".join([self.count(), self.coverage.describe(), *self.notes])

    def count(self) -> str:
        """Returns the number of examples in words."""
        return counted(len(self), "example")

    @property
    def coverage(self) -> TokenCounts:
        """How the vocabulary covers what the model reads."""
        return TokenCounts.of(self.ids.flat_values.numpy(), self.vocab)

    def advice(self, longest: int | None) -> str | None:
        """Returns what saves examples from truncation, if an encoder reads up to `longest`."""
        if not self.num_truncated or (longest or 0) <= self.max_seq_length:
            return None
        return f"The encoder can read {longest} tokens: to truncate less, raise --max_seq_length."

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each example, or of its longest row, int64 [N]."""
        if self.ids.shape.rank == 2:
            return self.ids.row_lengths().numpy()
        return tf.reduce_max(self.ids.row_lengths(axis=2), axis=1).numpy()

    def train_order(self, batch_size: int, num_batches: int, seed: int) -> np.ndarray:
        """See `train_order`."""
        return train_order(len(self), batch_size, num_batches, seed)


def train_order(count: int, batch_size: int, num_batches: int, seed: int) -> np.ndarray:
    """Returns the numbers of the examples in training order, int64 [num_batches * batch_size].

    Every epoch holds each of `count` examples once, in random order. A batch may span two epochs.
    """
    total = num_batches * batch_size
    epochs = range(-(-total // count))
    orders = [np.random.default_rng((seed, epoch)).permutation(count) for epoch in epochs]
    return np.concatenate([np.zeros(0, np.int64), *orders])[:total]


def note_constant(targets: np.ndarray, name: Callable[[Any], str]) -> tuple[str, ...]:
    """Returns a note if there are several examples, all with one target; `name` describes it."""
    if len(targets) < 2 or np.any(targets != targets[0]):
        return ()
    return (f"all of them {name(targets[0])}",)


def encode_texts(
    examples: TextExamples, tokenizer: WordPieceTokenizer, max_seq_length: int, noun: str = ""
) -> Features:
    """Tokenizes and packs texts or pairs as [CLS] a [SEP] b [SEP], showing a progress bar.

    `noun` is what messages call them if they are no examples.
    """
    columns = [texts for texts in (examples.texts_a, examples.texts_b) if texts is not None]
    pack = _packer(tokenizer, max_seq_length, len(columns))
    ids, types, truncated = zip(*map_texts(pack, columns, "example"), strict=True)
    total, cut = len(columns[0]), int(sum(truncated))
    share = f"of {total:,} {noun}" if noun else f"({cut / total:.1%})"
    broken = sum(not is_utf8(text) for texts in columns for text in texts)
    empty = sum(any(not text.strip() for text in row) for row in zip(*columns, strict=True))
    lost = {
        f"{share} truncated to {max_seq_length} tokens": cut,
        "with bytes that are not UTF-8, which were dropped": broken,
        "with an empty text": empty,
    }
    notes = [f"{number:,} {what}" for what, number in lost.items() if number]
    return Features(
        ids=tf.concat(ids, 0),
        types=tf.concat(types, 0),
        targets=examples.targets,
        examples=examples,
        vocab=tokenizer.vocab,
        max_seq_length=max_seq_length,
        num_truncated=cut,
        notes=(*notes, *examples.notes),
    )


def encode_rows(
    rows: TextExamples,
    count: int,
    noun: str,
    examples: Sized,
    tokenizer: WordPieceTokenizer,
    max_seq_length: int,
) -> Features:
    """Tokenizes `count` rows of texts for each example; ids and types are [N, K, (length)].

    `noun` is what messages call the rows; `examples` has the targets.
    """
    features = encode_texts(rows, tokenizer, max_seq_length, noun)
    return dataclasses.replace(
        features,
        ids=tf.RaggedTensor.from_uniform_row_length(features.ids, count),
        types=tf.RaggedTensor.from_uniform_row_length(features.types, count),
        targets=examples.targets,
        examples=examples,
    )


def map_texts(function: Callable, columns: list[list[bytes]], unit: str) -> Iterator[tuple]:
    """Yields what a function returns for every few hundred texts of each column, in their order.

    Its first result has a row for each text. Threads share the cores in less time than it takes to
    set up a `tf.data.Dataset`. A progress bar counts in `unit`.
    """
    starts = range(0, len(columns[0]), _TEXTS_PER_CALL)
    batches = [[texts[i : i + _TEXTS_PER_CALL] for texts in columns] for i in starts]
    total = len(columns[0])
    with (
        ThreadPoolExecutor(available_cores()) as pool,
        progress_bar(total=total, desc="Tokenizing", unit=unit, leave=False) as bar,
    ):
        try:
            for part in pool.map(lambda batch: function(*map(tf.constant, batch)), batches):
                yield part
                bar.update(int(part[0].nrows()))
        finally:
            pool.shutdown(cancel_futures=True)


@functools.lru_cache(maxsize=2)
def _packer(tokenizer: WordPieceTokenizer, max_seq_length: int, num_columns: int) -> Callable:
    """Returns what encodes strings [B]; all splits share it, because tracing takes seconds."""

    def pack(*texts):
        segments = [tokenizer.tokenize_flat(text) for text in texts]
        num_tokens = tf.add_n([segment.row_lengths() for segment in segments])
        truncated = num_tokens + len(segments) + 1 > max_seq_length
        packed = pack_segments(segments, max_seq_length, tokenizer.vocab)
        mask = tf.cast(packed["input_mask"], tf.bool)
        ids = tf.ragged.boolean_mask(packed["input_word_ids"], mask)
        types = tf.ragged.boolean_mask(packed["input_type_ids"], mask)
        return ids, types, tf.math.count_nonzero(truncated)

    signature = [tf.TensorSpec([None], tf.string)] * num_columns
    return tf.function(pack, signature, autograph=False)


def make_windows(row_splits: tf.Tensor, size: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Lays windows of `size` tokens over texts; neighbors overlap by half or more.

    A text of up to `size` tokens is one window. Works eagerly and in graphs. `row_splits` say where
    the texts begin among all tokens, and the end; int64 [texts + 1].

    Returns the tokens of each window, int64 [W, (tokens)], as indices into all tokens of all texts;
    and for which of them it has the `most_context`, bool [W, (tokens)]: once for every token, so
    that they are all tokens in order.
    """
    stride = max(1, size // 2)
    lengths = row_splits[1:] - row_splits[:-1]
    last = tf.maximum(-((size - lengths) // stride), 0)  # number of the last window of each text
    numbers = tf.ragged.range(last + 1)
    text = numbers.value_rowids()
    length = tf.gather(lengths, text)
    start = tf.minimum(numbers.values * stride, tf.maximum(length - size, 0))
    begin, length = tf.gather(row_splits, text) + start, tf.minimum(length, size)
    return tf.ragged.range(begin, begin + length), most_context(begin, length)


def most_context(begin: tf.Tensor, length: tf.Tensor) -> tf.RaggedTensor:
    """Returns for each token of each window whether no other window serves better.

    The result is bool [W, (length)]. Among the windows with a token, the best one has the most
    context on the smaller side of it; the first one counts if there are several. Works eagerly and
    in graphs. `begin` and `length` are the first of the numbered tokens in each window, and how
    many it has, int64 [W].

    Source: google-research/bert run_squad.py `_check_is_max_context`.
    """
    position = tf.ragged.range(length)
    window = position.value_rowids()
    size, token = tf.gather(length, window), tf.gather(begin, window) + position.values
    # The original's min(left, right) + 0.01 * length, times 100.
    score = 100 * tf.minimum(position.values, size - 1 - position.values) + size
    count = tf.reduce_max(tf.concat([[0], begin + length], axis=0))
    best = score == tf.gather(tf.math.unsorted_segment_max(score, token, count), token)
    candidate = tf.where(best, window, tf.int64.max)
    chosen = tf.gather(tf.math.unsorted_segment_min(candidate, token, count), token)
    return position.with_values(chosen == window)
