"""The tokenizer of google-research/bert inside the TensorFlow graph."""

import dataclasses
import functools
import string
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import tensorflow as tf

from bert_tf.base.calling import checked
from bert_tf.text.added_tokens import AddedTokens, Pieces
from bert_tf.text.operations import tf_text
from tfrecords.vocabulary import (
    MAX_CHARACTERS_PER_WORD,
    SPECIAL_TOKENS,
    AddedToken,
    Vocabulary,
    VocabularyLike,
    as_vocabulary,
    check_word_pieces,
)

# The original's `_clean_text` removes U+0000, U+FFFD and the categories Cc and Cf, except for tab,
# line feed and carriage return, which are whitespace. Cc is spelled out in ranges because RE2
# cannot subtract sets.
_CONTROLS = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\x{FFFD}]+"
_SPACES = r"[\t\n\r\p{Z}]"
# The original's `_is_chinese_char`.
_CHINESE = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
_ASCII_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")
_ASCII_SPACES = bytes.maketrans(b"\t\n\r", b"   ")
_ASCII_LOWER = _ASCII_SPACES.lower()
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

    Added tokens of the vocabulary are found first, as Hugging Face's tokenizers find them.

    Args:
        vocab: the vocabulary, the path of a vocab.txt, or the tokens in the order of their ids.
        lower_case: whether to lower-case text, for "uncased" vocabularies. Unless the vocabulary
            says otherwise, this also strips accents.
        special_tokens_in_text: whether a literal [PAD], [UNK], [CLS], [SEP] or [MASK] in the text
            is that token. By default it is ordinary text.

    Example:
        tokenizer = bert_tf.WordPieceTokenizer("vocab.txt")
        tokenizer.tokenize("replaying")  # ["replay", "##ing"]
        tokenizer.decode(tokenizer.encode("replaying"))  # "replaying"
        tokenizer.tokenize_flat(["a text", "another one"]).to_list()  # the ids of both
    """

    # Regular expressions: characters that are words of their own, if any, and accents.
    _APART: str | None = _CHINESE
    _ACCENT = r"\p{Mn}"

    @checked
    def __init__(
        self, vocab: VocabularyLike, lower_case: bool = True, special_tokens_in_text: bool = False
    ):
        super().__init__()
        self.vocab = vocab = as_vocabulary(vocab)
        self.lower_case = lower_case
        self.special_tokens_in_text = special_tokens_in_text
        self._strips = lower_case if vocab.strip_accents is None else vocab.strip_accents
        added = list(vocab.added)
        if special_tokens_in_text:
            pairs = zip(SPECIAL_TOKENS, vocab.written_names, strict=True)
            added += [AddedToken(vocab.ids[x], name, normalized=False) for x, name in pairs]
        written = [token for token in added if not token.normalized]
        normalized = self._normalized([token for token in added if token.normalized])
        with tf.init_scope():
            self._splitter = self._build_splitter()
            # Added tokens that are found in text as written, and those found in normalized text.
            self._written = AddedTokens(written) if written else None
            self._added = AddedTokens(normalized, self._APART) if normalized else None
            self._starts_word = tf.constant(vocab.begins_word)
            self._unk_id = tf.constant(vocab.unk_id, tf.int32)

    def _build_splitter(self) -> Any:
        check_word_pieces(self.vocab)
        return _build_wordpiece(self.vocab.lines)

    def __repr__(self) -> str:
        casing = "lower-cases text" if self.lower_case else "keeps the casing of text"
        return f"{type(self).__name__}({len(self.vocab):,} tokens, {casing})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordPieceTokenizer) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    @property
    def _arguments(self) -> tuple[Vocabulary, bool, bool]:
        return self.vocab, self.lower_case, self.special_tokens_in_text

    def __call__(self, text: str | Sequence[str]) -> dict[str, list]:
        """Returns the ids of a text, or of each of several, between [CLS] and [SEP].

        The names of the lists are those of transformers. To pad, and for pairs and graphs, see
        `BertPreprocessor`.
        """
        several = [text] if isinstance(text, str) else list(text)
        rows = self.tokenize_flat(tf.constant(several, tf.string, [len(several)])).to_list()
        ids = [[self.vocab.cls_id, *row, self.vocab.sep_id] for row in rows]
        lists = {
            "input_ids": ids,
            "token_type_ids": [[0] * len(row) for row in ids],
            "attention_mask": [[1] * len(row) for row in ids],
        }
        return {name: x[0] for name, x in lists.items()} if isinstance(text, str) else lists

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without [CLS] and [SEP]; `decode` joins them again."""
        return self.tokenize_flat(text).numpy().tolist()

    @overload
    def tokenize(self, text: str) -> list[str]: ...
    @overload
    def tokenize(self, text: tf.Tensor | Sequence[str]) -> tf.RaggedTensor: ...

    def tokenize(self, text):
        """Splits a string into its tokens, a list of strings; for tensors and lists, gives ids.

        Strings [B], as a tensor or a list, become ids, int32 [B, (words), (tokens)]; a tensor of
        one string has no [B].
        """
        if isinstance(text, str):
            return [self.vocab.tokens[index] for index in self.encode(text)]
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank == 0:
            return self.tokenize(text[tf.newaxis])[0]
        return _split(self._written, text, lambda part: self._pieces(self.normalize(part)))[0]

    def tokenize_flat(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings [B] into ids, int32 [B, (tokens)]; one string without [B]."""
        return self.tokenize(tf.convert_to_tensor(text, tf.string)).merge_dims(-2, -1)

    def decode(self, ids: Sequence | tf.Tensor | tf.RaggedTensor) -> str | list:
        """Joins the tokens of a text: word pieces to words, and words with spaces.

        What normalization removes, such as capitals and the original spaces, does not come back.
        [PAD] is left out. The last axis holds the tokens of a text; others give lists.

        Raises:
            ValueError: an id is not one of the vocabulary.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_list()
        rows = ids if isinstance(ids, list) else np.asarray(ids).tolist()
        if rows and isinstance(rows[0], list):
            return [self.decode(row) for row in rows]
        return self.vocab.decode(rows)

    def tokenize_lines(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenizes lines like `tokenize_flat`, but several times faster; eager mode only.

        Args:
            lines: B lines of valid UTF-8.

        Returns:
            the ids, int32 [tokens], and their row splits, int64 [B + 1].
        """
        normalized = self._normalize_lines(lines)
        text = tf.constant(normalized, tf.string, [len(lines)])
        suspects = _lines_with_long_words(normalized)
        if self._written:
            raw = tf.constant(lines, tf.string, [len(lines)])
            suspects = np.union1d(suspects, np.flatnonzero(self._written.occur_in(raw)))
        if self._added:
            suspects = np.union1d(suspects, np.flatnonzero(self._added.occur_in(text)))
        pieces = self._splitter.tokenize(text)
        if len(suspects):
            rest = np.setdiff1d(np.arange(len(lines)), suspects)
            exact = self.tokenize_flat([lines[index] for index in suspects])
            both = tf.concat([tf.gather(pieces, rest), exact], axis=0)
            pieces = tf.gather(both, np.argsort(np.concatenate([rest, suspects])))
        return pieces.values.numpy(), pieces.row_splits.numpy()

    @property
    def starts_word(self) -> np.ndarray:
        """Which tokens of the vocabulary begin a word, bool [len(vocab)]."""
        return self._starts_word.numpy()

    def words(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits strings [B] into normalized words, strings [B, (words)]."""
        if self._written:
            pieces, starts, limits = self.tokenize_with_offsets(text)
            starts, limits = starts.flat_values, limits.flat_values
        else:
            text = self.normalize(text)
            pieces, starts, limits = self._pieces(text)
        starts = tf.gather(starts, pieces.values.row_starts())
        limits = tf.gather(limits, pieces.values.row_limits() - 1)
        lines = tf.gather(text, pieces.value_rowids())
        words = tf.strings.substr(lines, starts, limits - starts)
        if self._written:
            words = tf.where(self._written.occur_in(words), words, self.normalize(words))
        return pieces.with_values(words)

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

        def tokenize(part: tf.Tensor) -> Pieces:
            pieces, starts, limits = self._pieces(self.normalize(part))
            lines = tf.gather(pieces.value_rowids(), pieces.values.value_rowids())
            return pieces, *self._original_offsets(part, lines, starts, limits)

        text = tf.convert_to_tensor(text, tf.string)
        pieces, starts, limits = _split(self._written, text, tokenize)
        return pieces, pieces.with_flat_values(starts), pieces.with_flat_values(limits)

    def _normalized(self, tokens: Sequence[AddedToken]) -> list[AddedToken]:
        """Returns the tokens as they are found in normalized text."""
        with tf.init_scope():
            contents = self.normalize(tf.constant([x.content for x in tokens], tf.string)).numpy()
        return [
            dataclasses.replace(token, content=content.decode())
            for token, content in zip(tokens, contents, strict=True)
            # Never found, like U+200B.
            if content
        ]

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """Cleans strings of any shape; lower-cases and strips accents if the vocabulary does."""
        return self._normalize_valid(
            tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        )

    def _normalize_valid(self, text: tf.Tensor) -> tf.Tensor:
        """Normalizes strings of valid UTF-8."""
        text = tf.strings.regex_replace(text, _CONTROLS, "")
        if self.vocab.added:
            # Word pieces need no spaces of one kind, but added tokens may contain spaces.
            text = tf.strings.regex_replace(text, _SPACES, " ")
        if self.lower_case:
            text = lower(text)
        if self._strips:
            text = tf_text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, f"{self._ACCENT}+", "")
        return text

    def _normalize_lines(self, lines: Sequence[bytes]) -> list[bytes]:
        """Normalizes lines like `normalize`, with a shortcut for ASCII lines."""
        table = _ASCII_LOWER if self.lower_case else _ASCII_SPACES
        normalized = [line.translate(table, _ASCII_CONTROLS) for line in lines]
        others = [index for index, line in enumerate(lines) if not line.isascii()]
        if others:
            text = self._normalize_valid(tf.constant([lines[index] for index in others]))
            for index, line in zip(others, text.numpy(), strict=True):
                normalized[index] = line
        return normalized

    def _pieces(self, text: tf.Tensor) -> Pieces:
        """Splits normalized strings [B] into added tokens and word pieces."""
        return _split(self._added, text, self._word_pieces)

    def _word_pieces(self, text: tf.Tensor) -> Pieces:
        """Splits normalized strings [B] into word pieces."""
        lines, starts, limits = self._splitter.tokenize_with_offsets(text)
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
        """Maps offsets [pieces] in the normalized strings of `lines` to offsets in `text` [B]."""
        # The running total of the bytes that every character normalizes to determines which one a
        # byte comes from. (Normalization reorders only accents, and then removes them.)
        characters, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
        distinct, which = tf.unique(characters.values)
        distinct = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
        own_bytes = tf.cast(tf.strings.length(distinct), tf.int64)
        bytes_made = tf.cast(tf.strings.length(self.normalize(distinct)), tf.int64)
        bytes_made = tf.gather(bytes_made, which)
        ends = tf.cumsum(bytes_made)
        line_starts = tf.gather(characters.row_starts(), lines)
        base = tf.gather(ends - bytes_made, line_starts)
        first = tf.searchsorted(ends, base + starts, side="right", out_type=tf.int64)
        last = tf.searchsorted(ends, base + limits - 1, side="right", out_type=tf.int64)
        if self._strips:
            # Up to the next character that is not an accent, or the end of the string.
            accents = tf.gather(tf.strings.regex_full_match(distinct, self._ACCENT), which)
            others = tf.where(~accents)[:, 0]
            line_limits = tf.gather(characters.row_limits(), lines)
            following = tf.searchsorted(others, last + 1)
            others = tf.concat([others, characters.row_splits[-1:]], axis=0)
            last = tf.minimum(tf.gather(others, following), line_limits) - 1
        original_starts = tf.gather(offsets.values, first)
        own = tf.gather(own_bytes, tf.gather(which, last))
        return original_starts, tf.gather(offsets.values, last) + own


def lower(text: tf.Tensor) -> tf.Tensor:
    """Lower-cases strings of valid UTF-8."""
    # ASCII first: ICU follows the locale of the machine, which may lower-case I to a dotless i.
    # For all other letters, locales differ only in accents.
    return tf.strings.lower(tf.strings.lower(text), encoding="utf-8")


def _split(
    added: AddedTokens | None, text: tf.Tensor, tokenize: Callable[[tf.Tensor], Pieces]
) -> Pieces:
    # TensorFlow Text ends the process for other shapes than [B], and where a server calls a graph,
    # nothing compares shapes. An optimizer would drop the check if it knew the shape of the input.
    text = tf.ensure_shape(tf.compat.v1.placeholder_with_default(text, None), [None])
    return added.split(text, tokenize) if added else tokenize(text)


# Commands make several tokenizers of one vocabulary, and building the tables of BERT's takes 0.2 s.
@functools.lru_cache(maxsize=4)
def _build_wordpiece(lines: tuple[str, ...]) -> tf_text.FastWordpieceTokenizer:
    last = {line: index for index, line in enumerate(lines)}

    def token(index: int, line: str) -> str:
        # No word contains white space, such as the U+2028 in bert-base-chinese, or control
        # characters, but FastWordpieceTokenizer would match them. A stand-in matches no text.
        is_matchable = line and not any(x.isspace() or x < " " for x in line)
        return line if is_matchable and last[line] == index else f"\x01{index}"

    tokens = [token(index, line) for index, line in enumerate(lines)]
    return tf_text.FastWordpieceTokenizer(
        # The library needs a token other than special ones.
        [*tokens, "\x01"],
        token_out_type=tf.int32,
        # The longest word that is not [UNK], if every character has four bytes.
        max_bytes_per_word=4 * MAX_CHARACTERS_PER_WORD,
    )


def _too_long(text, line_splits, starts, limits) -> tf.Tensor:
    """Returns the indices of words with too many characters, given their byte offsets."""
    # A word with few bytes has few characters, so hardly any words need counting.
    long = tf.where(limits - starts > MAX_CHARACTERS_PER_WORD)[:, 0]
    lines = tf.searchsorted(line_splits, long, side="right") - 1
    starts, limits = tf.gather(starts, long), tf.gather(limits, long)
    words = tf.strings.substr(tf.gather(text, lines), starts, limits - starts)
    characters = tf.strings.length(words, unit="UTF8_CHAR")
    return tf.boolean_mask(long, characters > MAX_CHARACTERS_PER_WORD)


def _lines_with_long_words(lines: Sequence[bytes]) -> np.ndarray:
    """Returns the indices of normalized lines that may have a word with too many characters."""
    ends = np.flatnonzero(_ENDS_WORD[np.frombuffer(b"\n".join([*lines, b""]), np.uint8)])
    long = ends[np.flatnonzero(np.diff(ends, prepend=-1) > MAX_CHARACTERS_PER_WORD + 1)]
    line_ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1
    return np.unique(np.searchsorted(line_ends, long))


def _put(value: tf.Tensor, indices: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns `values` with `value`, a scalar or one per index, at `indices`."""
    value = tf.broadcast_to(value, tf.shape(indices))
    return tf.tensor_scatter_nd_update(values, indices[:, tf.newaxis], value)
