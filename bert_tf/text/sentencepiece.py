"""SentencePiece tokens inside the TensorFlow graph, and the tokenizer of any vocabulary."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.text.added_tokens import Pieces
from bert_tf.text.operations import tf_text
from bert_tf.text.tokenizer import WordPieceTokenizer, lower
from tfrecords.sentencepiece import as_albert_reads
from tfrecords.vocabulary import SPECIAL_TOKENS, VocabularyLike, as_vocabulary, is_punctuation

# Two quotes, and the unassigned character with as many bytes that stands for them.
_QUOTES, _STAND_IN = "``|''", "\u07fc"
# White space, except for U+000B, which models remove.
_SPACE = r"[\t\n\f\r\x{85}\p{Z}]"
_MARK = "\u2581"


def make_tokenizer(
    vocab: VocabularyLike, lower_case: bool, special_tokens_in_text: bool = False
) -> WordPieceTokenizer:
    """Returns the tokenizer of a vocabulary, of word pieces or of a SentencePiece model."""
    vocab = as_vocabulary(vocab)
    kind = SentencePieceTokenizer if vocab.sentencepiece else WordPieceTokenizer
    return kind(vocab, lower_case, special_tokens_in_text)


class SentencePieceTokenizer(WordPieceTokenizer):
    """Splits text into the pieces of a SentencePiece model, as transformers' AlbertTokenizer does.

    It has the methods of `WordPieceTokenizer`; a "word" is what that one takes for a word, too:
    punctuation is a word of its own. The text is lower-cased with `lower_case`, and loses its
    accents unless `vocab.strip_accents` is False. TensorFlow Text's `SentencepieceTokenizer` then
    normalizes and splits it as the model says.

    In three cases, which its own library decides, tokens differ from those of transformers: letters
    of Hangul that NFKD takes apart are joined again; accents that stay are joined with their
    letters, too, if there are several; and of divisions that are equally likely, such as "oo" "o"
    and "o" "oo", rounding may choose another.
    """

    _APART = None
    _ACCENT = r"\p{M}"

    def _build_splitter(self) -> bytes:
        vocab, tokens = self.vocab, self.vocab.tokens
        self._strips = vocab.strip_accents is not False
        self._has_mark = tf.constant([x.startswith(_MARK) for x in tokens])
        self._is_mark = tf.constant([x == _MARK for x in tokens])
        self._is_word = tf.constant([x != _MARK and is_punctuation(x) for x in tokens])
        return as_albert_reads(vocab.sentencepiece, (vocab.ids[x] for x in SPECIAL_TOKENS))

    def tokenize_lines(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        pieces = self.tokenize_flat(tf.constant(lines, tf.string, [len(lines)]))
        return pieces.values.numpy(), pieces.row_splits.numpy()

    def _normalize_valid(self, text: tf.Tensor) -> tf.Tensor:
        # For the library, a NUL would end the text; models remove both characters.
        text = tf.strings.regex_replace(text, r"\x00", "\x01")
        text = tf.strings.regex_replace(text, _QUOTES, _STAND_IN)
        if self._strips:
            text = tf_text.normalize_utf8(text, "NFKD")
            text = tf.strings.regex_replace(text, f"{self._ACCENT}+", "")
        if self.lower_case:
            # Character by character, as theirs: without the small sigma at the end of a word.
            text = lower(tf.strings.regex_replace(text, "\u03a3", "\u03c3"))
        text = tf.strings.regex_replace(text, _SPACE, " ")
        return tf.strings.regex_replace(text, _STAND_IN, '"')

    def _word_pieces(self, text: tf.Tensor) -> Pieces:
        # Made anew for every graph: keras.utils.clear_session frees those that are kept.
        library = tf_text.SentencepieceTokenizer(self._splitter, tf.int32)
        lines, starts, limits = library.tokenize_with_offsets(text)
        ids, rows = lines.values, lines.value_rowids()
        starts, limits = (tf.cast(x.values, tf.int64) for x in (starts, limits))
        starts = _after_spaces(text, rows, starts)
        # Each line begins with a piece that has the mark.
        before = tf.concat([ids[:1], ids], axis=0)[:-1]
        around = tf.gather(self._is_word, ids) | tf.gather(self._is_word, before)
        first = tf.gather(self._has_mark, ids) | (around & ~tf.gather(self._is_mark, before))
        first = tf.where(first)[:, 0]
        words = tf.RaggedTensor.from_row_starts(ids, first, validate=False)
        line_splits = tf.searchsorted(first, lines.row_splits, out_type=tf.int64)
        words = tf.RaggedTensor.from_row_splits(words, line_splits, validate=False)
        return words, starts, tf.maximum(starts, limits)

    def _original_offsets(self, text, lines, starts, limits):
        # Two quotes become one character of the same length in bytes, which is normalized alone.
        text = tf.strings.regex_replace(text, _QUOTES, _STAND_IN)
        # A mark that stands for no space has no place: it is where the next piece begins.
        empty = starts == limits
        starts, limits = super()._original_offsets(
            text, lines, starts, tf.where(empty, starts + 1, limits)
        )
        return starts, tf.where(empty, starts, limits)


def _after_spaces(text: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """Moves the byte offsets of pieces in texts [B] behind spaces, for which they have a mark."""
    characters, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    lengths = tf.cast(tf.strings.length(text), tf.int64)
    bases = tf.cumsum(lengths, exclusive=True)
    places = offsets.values + tf.gather(bases, characters.value_rowids())
    others = tf.boolean_mask(places, characters.values != ord(" "))
    others = tf.concat([others, [tf.reduce_sum(lengths)]], axis=0)
    bases = tf.gather(bases, rows)
    moved = tf.gather(others, tf.searchsorted(others, bases + starts)) - bases
    return tf.minimum(moved, tf.gather(lengths, rows) - 1)
