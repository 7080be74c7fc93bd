"""Finds added tokens in text, inside the TensorFlow graph."""

import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.text.operations import tf_text
from tfrecords.vocabulary import AddedToken

# The meaning of \w in the regular expressions of Hugging Face's tokenizers.
_WORD_CHARACTER = r"[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}]"

# Word pieces [N, (words), (pieces)], with the byte offsets of each piece, int64 [pieces].
Pieces = tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]


class AddedTokens(tf.Module):
    """Splits text at added tokens, and leaves the text between them to another function.

    Like Hugging Face's tokenizers, it matches from the left, and prefers the longest of the tokens
    that begin at the same place. If two have the same content, the first counts. `apart` is a
    regular expression for characters that are words of their own, if there are any.

    Source: tokenizers/src/tokenizer/added_vocabulary.rs `find_matches`.
    """

    def __init__(self, tokens: Sequence[AddedToken], apart: str | None = None):
        super().__init__()
        by_content = {token.content: token for token in reversed(tokens)}
        found = sorted(by_content.values(), key=lambda token: len(token.content), reverse=True)
        contents = [token.content for token in found]
        self._pattern = f"(?:{'|'.join(map(re.escape, contents))})"
        self._apart = apart
        self._ids = _table(contents, [token.id for token in found])
        self._single = _table(contents, [token.single_word for token in found])
        self._has_single = any(token.single_word for token in found)

    def occur_in(self, text: tf.Tensor) -> tf.Tensor:
        """Returns which of the strings [B] may contain a token, bool [B]."""
        return tf.strings.regex_full_match(text, f"(?s:.*{self._pattern}.*)")

    def split(self, text: tf.Tensor, tokenize: Callable[[tf.Tensor], Pieces]) -> Pieces:
        """Tokenizes strings [B]: added tokens are words; `tokenize` does what is between them."""
        parts, starts, limits, ids = self._parts(text)
        places = tf.where(ids >= 0)[:, 0]
        pieces, *offsets = tokenize(tf.where(ids >= 0, "", parts.values))
        rows = tf.gather(pieces.value_rowids(), pieces.values.value_rowids())
        others = [pieces.flat_values, *(tf.gather(starts, rows) + x for x in offsets)]
        added = [tf.gather(values, places) for values in (ids, starts, limits)]
        # Either the words of a part, or a single one: the added token.
        count, words = tf.size(rows, tf.int64), tf.cast(ids >= 0, tf.int64)
        order = tf.range(count + tf.size(places, tf.int64))
        token = tf.RaggedTensor.from_row_lengths(order[count:], tf.ones_like(places))
        token = tf.RaggedTensor.from_row_lengths(token, words)
        order = tf.concat([pieces.with_flat_values(order[:count]), token], axis=1)
        ids, starts, limits = (
            tf.gather(tf.concat(pair, axis=0), order.flat_values)
            for pair in zip(others, added, strict=True)
        )
        return parts.with_values(order.with_flat_values(ids)).merge_dims(1, 2), starts, limits

    def _parts(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns parts [B, (parts)] of strings, the ids of added tokens or -1, byte offsets."""
        # The operation reads a NUL as the end of the text; normalization removes both characters.
        text = tf.strings.regex_replace(text, r"\x00", "\x01")
        split = tf_text.regex_split_with_offsets(text, self._pattern, self._pattern)
        parts, starts, limits = split[0], *(tf.cast(x.values, tf.int64) for x in split[1:])
        ids = self._ids.lookup(parts.values)
        if not self._has_single:
            return parts, starts, limits, ids
        lines = parts.value_rowids()
        continued = self._borders(parts.values, "(?s:.*){}")
        continues = self._borders(parts.values, "{}(?s:.*)")
        touch = lines[1:] == lines[:-1]
        after, before = touch & continued[:-1], touch & continues[1:]
        inside = tf.pad(after, [[1, 0]]) | tf.pad(before, [[0, 1]])
        ids = tf.where(inside & (self._single.lookup(parts.values) > 0), -1, ids)
        # Parts that are not tokens after all belong to the text around them.
        apart = ~touch | (ids[1:] >= 0) | (ids[:-1] >= 0)
        first = tf.concat([[0], tf.where(apart)[:, 0] + 1], axis=0)[: tf.size(ids)]
        joined = tf.RaggedTensor.from_row_starts(parts.values, first)
        lines, last = tf.gather(lines, first), joined.row_limits() - 1
        texts = tf.strings.reduce_join(joined, axis=1)
        parts = tf.RaggedTensor.from_value_rowids(texts, lines, parts.nrows())
        return parts, tf.gather(starts, first), tf.gather(limits, last), tf.gather(ids, first)

    def _borders(self, parts: tf.Tensor, pattern: str) -> tf.Tensor:
        """Returns which parts have a word character where the pattern has {}, bool."""
        found = tf.strings.regex_full_match(parts, pattern.format(_WORD_CHARACTER))
        if self._apart:
            found &= ~tf.strings.regex_full_match(parts, pattern.format(self._apart))
        return found


def _table(contents: Sequence[str], values: Sequence[int]) -> tf.lookup.StaticHashTable:
    keys, values = tf.constant(contents), tf.constant(values, tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
