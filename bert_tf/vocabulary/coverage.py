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
    """What a tokenizer makes of a text.

    Attributes:
      words, different: words of the text, and different ones among them.
      pieces: what the words are split into; an [UNK] is one.
      unknown: words that are [UNK].
      characters: of all the words.
    """

    words: int
    different: int
    pieces: int
    unknown: int
    characters: int


def measure(words: Counter[str], vocab: Vocabulary, lower_case: bool) -> Coverage:
    """The coverage of normalized words, given with the number of their occurrences."""
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    distinct, times = list(words), np.fromiter(words.values(), np.int64, len(words))
    pieces = unknown = 0
    for start in range(0, len(distinct), _WORDS_AT_ONCE):
        part = slice(start, start + _WORDS_AT_ONCE)
        ids = tokenizer.tokenize_flat(tf.constant(distinct[part], tf.string))
        pieces += int(times[part] @ ids.row_lengths().numpy())
        unknown += int(times[part] @ tf.reduce_any(ids == vocab.unk_id, axis=1).numpy())
    characters = int(times @ np.fromiter(map(len, distinct), np.int64, len(distinct)))
    return Coverage(int(times.sum()), len(distinct), pieces, unknown, characters)


def table(rows: Mapping[str, Coverage]) -> str:
    """Coverages by the name of the text, as lines for people to read."""
    names = [_shortened(name) for name in rows]
    width = max(map(len, ["text", *names]))
    lines = [
        f"{'text':{width}}  {'words':>15}  {'different':>12}  {'pieces/word':>11}"
        f"  {'characters/piece':>16}  {'[UNK]':>8}"
    ]
    for name, row in zip(names, rows.values(), strict=True):
        words, pieces = max(1, row.words), max(1, row.pieces)
        lines.append(
            f"{name:{width}}  {row.words:15,}  {row.different:12,}  {row.pieces / words:11.3f}"
            f"  {row.characters / pieces:16.2f}  {row.unknown / words:8.4%}"
        )
    return "\n".join(lines)


def _shortened(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"...{name[3 - most :]}"
