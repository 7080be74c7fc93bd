"""Words of raw text, divided as in annotated corpora; inside the TensorFlow graph."""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.tokenizer import WordPieceTokenizer

_PUNCTUATION = r"[\p{P}!-/:-@\[-`{-~]"
# Stays inside a word if a letter or a digit is on both sides, as in U.N or Jean-Luc.
_INNER = r"[-.&/_@+]"
_APOSTROPHE = "['\u2019]"


class RawWords(NamedTuple):
    """The words of B texts.

    Attributes:
        ids: the tokens of each text, int32 [B, (tokens)].
        first: the first token of each word, among all tokens of all texts, int64 [B, (words)].
        starts, limits: the byte offsets of each word in its text, int64 [B, (words)].
    """

    ids: tf.RaggedTensor
    first: tf.RaggedTensor
    starts: tf.RaggedTensor
    limits: tf.RaggedTensor


def split_words(text: tf.Tensor, tokenizer: WordPieceTokenizer) -> RawWords:
    """Splits strings [B] into words and tokens.

    The tokenizer's words, which end at all punctuation, are joined where annotated corpora keep
    them together: "U.N" and "Jean-Luc" are one word, "Paris's" is "Paris" and "'s". Punctuation at
    either end of a word is a word of its own.
    """
    ids, starts, limits = tokenizer.tokenize_with_offsets(text)
    pieces = ids.values
    starts = tf.gather(starts.flat_values, pieces.row_starts())
    limits = tf.gather(limits.flat_values, pieces.row_limits() - 1)
    rows = ids.value_rowids()
    atoms = slices(text, rows, starts, limits)
    new = tf.where(~_continues(atoms, rows, starts, limits))[:, 0]
    last = following(new, tf.size(atoms)) - 1

    def ragged(values: tf.Tensor) -> tf.RaggedTensor:
        word_rows = tf.gather(rows, new)
        return tf.RaggedTensor.from_value_rowids(values, word_rows, tf.shape(text, tf.int64)[0])

    return RawWords(
        ids=ids.merge_dims(1, 2),
        first=ragged(tf.gather(pieces.row_starts(), new)),
        starts=ragged(tf.gather(starts, new)),
        limits=ragged(tf.gather(limits, last)),
    )


def slices(text: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Returns parts of texts, strings [N], in memory that grows with the texts only.

    `tf.strings.substr` needs a copy of the whole text for each part.

    Args:
        text: strings [B].
        rows: the text of each part, int64 [N].
        starts, limits: the byte offsets of each part in its text, int64 [N].
    """
    characters = tf.strings.bytes_split(text)
    first = tf.gather(characters.row_starts(), rows)
    parts = tf.ragged.range(first + starts, first + limits)
    return tf.strings.reduce_join(tf.gather(characters.values, parts), axis=-1)


def _continues(
    atoms: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, limits: tf.Tensor
) -> tf.Tensor:
    """Returns which of the tokenizer's words continue the word before, bool [words]."""

    def are(pattern: str) -> tf.Tensor:
        return tf.strings.regex_full_match(atoms, pattern)

    touches = (rows == previous(rows, -1)) & (starts == previous(limits, -1))
    letters = ~are(_PUNCTUATION) & ~are(r"\p{Han}")
    between = touches & previous(letters, False) & following(touches & letters, False)
    inner, apostrophe = between & are(_INNER), between & are(_APOSTROPHE)
    return inner | (letters & touches & previous(inner | apostrophe, False))


def previous(values: tf.Tensor, first: object) -> tf.Tensor:
    """Returns the value before each one; `first` for the first."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values[:-1]], axis=0)[
        : tf.size(values)
    ]


def following(values: tf.Tensor, last: object) -> tf.Tensor:
    """Returns the value after each one; `last` for the last."""
    return tf.concat([values[1:], tf.fill([1], tf.cast(last, values.dtype))], axis=0)[
        : tf.size(values)
    ]
