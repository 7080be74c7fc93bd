"""The tokenizer of google-research/bert inside the TensorFlow graph."""

import functools
import itertools
import re
import string
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, continues_word

# The original's `_clean_text` removes U+0000, U+FFFD and the categories Cc and Cf, except for tab,
# line feed and carriage return, which are whitespace. Cc is spelled out in ranges because RE2
# cannot subtract sets. U+0001 to U+0005 stay if they mark special tokens.
_CONTROL = r"[\x00{markers}\x06-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{{Cf}}\x{{FFFD}}]+"
_CONTROLS = _CONTROL.format(markers=r"\x01-\x05")
_CONTROLS_BUT_MARKERS = _CONTROL.format(markers="")
_MARKERS = tuple(chr(1 + i) for i in range(len(SPECIAL_TOKENS)))
_MAX_CHARACTERS_PER_WORD = 200
_ASCII_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")
_ASCII_LOWER = bytes(range(256)).lower()
# Whitespace and ASCII punctuation end a word. So do the first bytes of U+5000 to U+9FFF, which are
# all CJK characters.
_ENDS_WORD = np.zeros(256, np.bool_)
_ENDS_WORD[list(b"\t\n\r " + string.punctuation.encode() + b"\xe5\xe6\xe7\xe8\xe9")] = True


class WordPieceTokenizer(tf.Module):
    """Splits text into tokens exactly as google-research/bert's `FullTokenizer` does.

    The text is cleaned and, with `lower_case`, lower-cased and stripped of accents. TensorFlow
    Text's `FastWordpieceTokenizer` then splits it at whitespace, punctuation and CJK characters,
    and divides each word into word pieces, greedily from the left. A word that has more than 200
    characters or cannot be divided becomes a single [UNK]. Invalid UTF-8 bytes are dropped.

    Character properties are those of TensorFlow's libraries. Up to Unicode 13, they agree with
    Python's. Beyond that, the 40 capital letters that Unicode 14 added are not lower-cased, and
    about 100 marks and signs of Unicode 15 and later are recognized, which Python 3.11 does not
    know. The locale of the machine has no effect.

    The tokenizer works eagerly, in `tf.data` and in `tf.function`. A SavedModel of it contains the
    vocabulary. Tokenizers that split every text in the same way are equal.

    Args:
        vocab: the vocabulary; ids are its line numbers.
        lower_case: whether to lower-case text and strip accents, for "uncased" vocabularies.
        special_tokens_in_text: whether a literal [PAD], [UNK], [CLS], [SEP] or [MASK] in the text
            is that token. By default it is ordinary text.
    """

    def __init__(
        self, vocab: Vocabulary, lower_case: bool = True, special_tokens_in_text: bool = False
    ):
        super().__init__()
        self.vocab = vocab
        self.lower_case = lower_case
        self.special_tokens_in_text = special_tokens_in_text
        special_ids = [vocab.ids[token] for token in SPECIAL_TOKENS]
        with tf.init_scope():
            self._wordpiece = _build_wordpiece(vocab)
            # `_wordpiece` has the markers of special tokens after the vocabulary.
            self._ids = tf.constant([*range(len(vocab)), *special_ids], tf.int32)
            starts = [not continues_word(token) for token in vocab.tokens]
            self._starts_word = tf.constant(starts + [True] * len(_MARKERS))
            self._unk_id = tf.constant(vocab.unk_id, tf.int32)
            marked = [len(token) for token in SPECIAL_TOKENS]
            self._marked_bytes = tf.constant([0] * len(vocab) + marked, tf.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordPieceTokenizer) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    @property
    def _arguments(self) -> tuple[Vocabulary, bool, bool]:
        return self.vocab, self.lower_case, self.special_tokens_in_text

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [B] into ids, int32 [B, (words), (tokens)]."""
        pieces, _, _ = self._pieces(self.normalize(text))
        return pieces.with_flat_values(tf.gather(self._ids, pieces.flat_values))

    def tokenize_flat(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [B] into ids, int32 [B, (tokens)]."""
        return self.tokenize(text).merge_dims(1, 2)

    def tokenize_lines(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenizes lines like `tokenize_flat`, but several times faster; eager mode only.

        Args:
            lines: B lines of valid UTF-8.

        Returns:
            the ids, int32 [tokens], and their row splits, int64 [B + 1].
        """
        if self.special_tokens_in_text or not lines:
            pieces = self.tokenize_flat(tf.constant(lines, tf.string, [len(lines)]))
            return pieces.values.numpy(), pieces.row_splits.numpy()
        normalized = self._normalize_lines(lines)
        suspects = _lines_with_long_words(normalized)
        pieces = self._wordpiece.tokenize(tf.constant(normalized, tf.string))
        if len(suspects):
            rest = np.setdiff1d(np.arange(len(lines)), suspects)
            exact, _, _ = self._pieces(tf.gather(normalized, suspects))
            both = tf.concat([tf.gather(pieces, rest), exact.merge_dims(1, 2)], axis=0)
            pieces = tf.gather(both, np.argsort(np.concatenate([rest, suspects])))
        return pieces.values.numpy(), pieces.row_splits.numpy()

    @property
    def starts_word(self) -> np.ndarray:
        """Which tokens of the vocabulary begin a word, bool [len(vocab)]."""
        return self._starts_word.numpy()[: len(self.vocab)]

    def words(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits strings [B] into normalized words, strings [B, (words)]."""
        text = self.normalize(text)
        pieces, starts, limits = self._pieces(text)
        starts = tf.gather(starts, pieces.values.row_starts())
        limits = tf.gather(limits, pieces.values.row_limits() - 1)
        lines = tf.gather(text, pieces.value_rowids())
        return pieces.with_values(tf.strings.substr(lines, starts, limits - starts))

    def tokenize_with_offsets(
        self, text: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes strings [B], with the byte offsets of every token.

        The span of a token consists of the characters of the original string that it came from,
        with the combining accents that follow them; an [UNK] spans its word. Control characters,
        which normalization removes, are not part of the span if they are at either end of it.

        Returns:
            ids int32, starts int64 and limits int64, all [B, (words), (tokens)].
        """
        text = tf.convert_to_tensor(text, tf.string)
        pieces, starts, limits = self._pieces(self.normalize(text))
        lines = tf.gather(pieces.value_rowids(), pieces.values.value_rowids())
        starts, limits = self._original_offsets(text, lines, starts, limits)
        # A marker replaces the second byte of its special token.
        marked = tf.gather(self._marked_bytes, pieces.flat_values)
        starts = tf.where(marked > 0, starts - 1, starts)
        limits = tf.where(marked > 0, starts + marked, limits)
        ids = tf.gather(self._ids, pieces.flat_values)
        return tuple(pieces.with_flat_values(values) for values in (ids, starts, limits))

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """Cleans strings of any shape and, with `lower_case`, lower-cases and strips accents."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        if self.special_tokens_in_text:
            text = _mark_special_tokens(text)
        return self._normalize_marked(text)

    def _normalize_lines(self, lines: Sequence[bytes]) -> list[bytes]:
        """Normalizes lines like `_normalize_marked`, with a shortcut for ASCII lines."""
        table = _ASCII_LOWER if self.lower_case else None
        normalized = [line.translate(table, _ASCII_CONTROLS) for line in lines]
        others = [index for index, line in enumerate(lines) if not line.isascii()]
        if others:
            text = self._normalize_marked(tf.constant([lines[index] for index in others]))
            for index, line in zip(others, text.numpy(), strict=True):
                normalized[index] = line
        return normalized

    def _normalize_marked(self, text: tf.Tensor) -> tf.Tensor:
        controls = _CONTROLS_BUT_MARKERS if self.special_tokens_in_text else _CONTROLS
        text = tf.strings.regex_replace(text, controls, "")
        if not self.lower_case:
            return text
        # ASCII first: ICU follows the locale of the machine, which may lower-case I to a dotless i.
        # For all other letters, locales differ only in accents, which are removed below.
        text = tf.strings.lower(tf.strings.lower(text), encoding="utf-8")
        text = tf_text.normalize_utf8(text, "NFD")
        return tf.strings.regex_replace(text, r"\p{Mn}+", "")

    def _pieces(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Splits normalized strings [B] into [B, (words), (pieces)], with byte offsets [pieces]."""
        lines, starts, limits = self._wordpiece.tokenize_with_offsets(text)
        ids = lines.values
        starts, limits = (tf.cast(x.values, tf.int64) for x in (starts, limits))
        first = tf.where(tf.gather(self._starts_word, ids))[:, 0]
        words = tf.RaggedTensor.from_row_starts(ids, first, validate=False)
        # The number of words before each line.
        line_splits = tf.searchsorted(first, lines.row_splits, out_type=tf.int64)
        word_limits = tf.gather(limits, words.row_limits() - 1)
        long = _too_long(text, line_splits, tf.gather(starts, first), word_limits)
        # The first piece of a word that is too long becomes the [UNK] for the whole word.
        first, end = tf.gather(first, long), tf.gather(words.row_limits(), long)
        ids = _put(self._unk_id, first, ids)
        limits = _put(tf.gather(word_limits, long), first, limits)
        keep = _put(False, tf.ragged.range(first + 1, end).values, tf.ones_like(ids, tf.bool))
        lengths = _put(tf.constant(1, tf.int64), long, words.row_lengths())
        ids, starts, limits = (tf.boolean_mask(x, keep) for x in (ids, starts, limits))
        words = tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)
        return tf.RaggedTensor.from_row_splits(words, line_splits, validate=False), starts, limits

    def _original_offsets(self, text, lines, starts, limits):
        """Maps offsets in the normalized strings to offsets in `text` [B], int64 [pieces].

        The running total of the bytes that every character normalizes to determines which character
        a normalized byte comes from. (Normalization reorders only accents, and then removes them.)

        Args:
            text: the original strings [B].
            lines: the index of the string of every piece, [pieces].
            starts, limits: offsets in the normalized strings, [pieces].
        """
        if self.special_tokens_in_text:
            text = _mark_special_tokens(text)
        characters, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
        distinct, which = tf.unique(characters.values)
        distinct = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
        own_bytes = tf.cast(tf.strings.length(distinct), tf.int64)
        bytes_made = tf.cast(tf.strings.length(self._normalize_marked(distinct)), tf.int64)
        bytes_made = tf.gather(bytes_made, which)
        ends = tf.cumsum(bytes_made)
        line_starts = tf.gather(characters.row_starts(), lines)
        base = tf.gather(ends - bytes_made, line_starts)
        first = tf.searchsorted(ends, base + starts, side="right", out_type=tf.int64)
        last = tf.searchsorted(ends, base + limits - 1, side="right", out_type=tf.int64)
        if self.lower_case:
            # Up to the next character that is no accent, or the end of the string.
            accents = tf.gather(tf.strings.regex_full_match(distinct, r"\p{Mn}"), which)
            others = tf.where(~accents)[:, 0]
            line_limits = tf.gather(characters.row_limits(), lines)
            following = tf.searchsorted(others, last + 1)
            others = tf.concat([others, characters.row_splits[-1:]], axis=0)
            last = tf.minimum(tf.gather(others, following), line_limits) - 1
        original_starts = tf.gather(offsets.values, first)
        own = tf.gather(own_bytes, tf.gather(which, last))
        return original_starts, tf.gather(offsets.values, last) + own


# Commands make several tokenizers of one vocabulary, and building the tables of BERT's takes 0.2 s.
@functools.lru_cache(maxsize=4)
def _build_wordpiece(vocab: Vocabulary) -> tf_text.FastWordpieceTokenizer:
    return tf_text.FastWordpieceTokenizer(
        [*map(_matchable, vocab.tokens, itertools.count()), *_MARKERS],
        token_out_type=tf.int32,
        # The longest word that is not [UNK], if every character has four bytes.
        max_bytes_per_word=4 * _MAX_CHARACTERS_PER_WORD,
    )


def _matchable(token: str, index: int) -> str:
    """Returns the token, or a stand-in that matches no text if no word can contain the token."""
    # bert-base-chinese contains U+2028, which ends words but which FastWordpieceTokenizer would
    # match. Control characters are reserved for the markers.
    unmatchable = any(character.isspace() or character < " " for character in token)
    return f"\x06{index}" if unmatchable else token


def _too_long(text, line_splits, starts, limits) -> tf.Tensor:
    """Returns the indices of words with too many characters, given their byte offsets."""
    # A word with few bytes has few characters, so hardly any words need counting.
    long = tf.where(limits - starts > _MAX_CHARACTERS_PER_WORD)[:, 0]
    lines = tf.searchsorted(line_splits, long, side="right") - 1
    starts, limits = tf.gather(starts, long), tf.gather(limits, long)
    words = tf.strings.substr(tf.gather(text, lines), starts, limits - starts)
    characters = tf.strings.length(words, unit="UTF8_CHAR")
    return tf.boolean_mask(long, characters > _MAX_CHARACTERS_PER_WORD)


def _lines_with_long_words(lines: Sequence[bytes]) -> np.ndarray:
    """Returns the indices of normalized lines that may have a word with too many characters."""
    ends = np.flatnonzero(_ENDS_WORD[np.frombuffer(b"\n".join([*lines, b""]), np.uint8)])
    long = ends[np.flatnonzero(np.diff(ends, prepend=-1) > _MAX_CHARACTERS_PER_WORD + 1)]
    line_ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1
    return np.unique(np.searchsorted(line_ends, long))


def _put(value: tf.Tensor, indices: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns `values` with `value`, a scalar or one per index, at `indices`."""
    value = tf.broadcast_to(value, tf.shape(indices))
    return tf.tensor_scatter_nd_update(values, indices[:, tf.newaxis], value)


def _mark_special_tokens(text: tf.Tensor) -> tf.Tensor:
    """Replaces each special token with " ", its marker and spaces, which keeps all byte offsets."""
    text = tf.strings.regex_replace(text, f"[{_MARKERS[0]}-{_MARKERS[-1]}]", "\x06")
    for token, marker in zip(SPECIAL_TOKENS, _MARKERS, strict=True):
        spaced = f" {marker}".ljust(len(token))
        text = tf.strings.regex_replace(text, re.escape(token), spaced)
    return text
