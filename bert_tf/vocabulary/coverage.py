"""Measures how well a vocabulary covers counted words."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

_WORDS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Coverage:
    """How a vocabulary covers a text.

    Attributes:
        words: words of the text.
        distinct: distinct words of the text.
        tokens: tokens that the words are split into; an [UNK] is one token.
        unknown: words that are [UNK].
        characters: characters of all words.
    """

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
    names = [_shortened(name) for name in rows]
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


def _shortened(name: str, width: int = 40) -> str:
    return name if len(name) <= width else f"...{name[3 - width :]}"
