"""Turns lines into token ids, with the places of the tokens in the line."""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.finetuning.tokenizing import make_windows
from bert_tf.inference.texts import PASTED
from bert_tf.models.inputs import INPUTS
from bert_tf.text.tokenizer import WordPieceTokenizer

# As in google-research/bert's extract_features.
_PAIR = re.compile(rb"(.*) \|\|\| (.*)", re.S)
_SEPARATOR = b" ||| "
# A line as it was read, or the texts of a row in a table.
Line = bytes | tuple[bytes, ...]
# The place of [CLS] and [SEP].
NOWHERE = -1


@dataclass(frozen=True)
class EncodedLine:
    """The tokens of a line, [CLS] a [SEP] or [CLS] a [SEP] b [SEP]. All arrays are int32 [S].

    A token comes from the bytes of the line from `starts` to `limits`, -1 for [CLS] and [SEP]. If
    it is `truncated`, tokens were left out.
    """

    text: bytes
    ids: np.ndarray
    types: np.ndarray
    starts: np.ndarray
    limits: np.ndarray
    truncated: bool


def encode_lines(
    lines: Sequence[Line],
    tokenizer: WordPieceTokenizer,
    max_seq_length: int | None,
    whole: bool = True,
) -> list[EncodedLine]:
    """Tokenizes lines; truncates pairs, "a ||| b", as in `pack_segments`.

    A pair from a table is joined in the same way. Single texts stay `whole`, or are truncated, too;
    without a length, so do pairs. If the tokenizer recognizes special tokens, a line may also be
    "[CLS] a [SEP] b [SEP]".
    """
    parts = [_segments(line, tokenizer.special_tokens_in_text) for line in lines]
    flat = [text for segments in parts for text, _ in segments]
    pieces = tokenizer.tokenize_with_offsets(tf.constant(flat, tf.string, [len(flat)]))
    splits = pieces[0].merge_dims(1, 2).row_splits.numpy()
    columns = np.stack([piece.flat_values.numpy() for piece in pieces]).astype(np.int32)
    tokens = iter(np.split(columns, splits[1:-1], axis=1) if len(flat) else ())
    special = [tokenizer.vocab.cls_id, tokenizer.vocab.sep_id]
    return [
        _encode(
            line if isinstance(line, bytes) else _SEPARATOR.join(line),
            [(next(tokens), first) for _, first in segments],
            special,
            None if whole and len(segments) == 1 else max_seq_length,
        )
        for line, segments in zip(lines, parts, strict=True)
    ]


def _segments(line: Line, may_be_pasted: bool) -> list[tuple[bytes, int]]:
    """Returns the one or two texts of a line, and where each begins."""
    if isinstance(line, tuple):
        return [*zip(line, (0, len(line[0]) + len(_SEPARATOR)), strict=False)]
    match = (may_be_pasted and PASTED.fullmatch(line)) or _PAIR.fullmatch(line)
    if not match:
        return [(line, 0)]
    return [(match[i], match.start(i)) for i in range(1, match.lastindex + 1)]


def _encode(
    line: bytes,
    segments: Sequence[tuple[np.ndarray, int]],
    special: tuple[int, int],
    max_seq_length: int | None,
) -> EncodedLine:
    """Packs segments, each the ids, starts and limits [3, tokens] and where the segment begins."""
    kept = lengths = [tokens.shape[1] for tokens, _ in segments]
    if max_seq_length:
        # The longer one of a pair is cut first.
        room, second = max_seq_length - len(segments) - 1, []
        if len(segments) == 2:
            second = [min(lengths[1], max(room // 2, room - lengths[0]))]
        kept = [min(lengths[0], room - sum(second)), *second]
    cls, sep = (np.array([[token], [NOWHERE], [NOWHERE]], np.int32) for token in special)
    columns, types = [cls], [0]
    for number, ((tokens, first), length) in enumerate(zip(segments, kept, strict=True)):
        columns += [tokens[:, :length] + np.array([[0], [first], [first]], np.int32), sep]
        types += [number] * (length + 1)
    ids, starts, limits = np.concatenate(columns, axis=1)
    return EncodedLine(line, ids, np.array(types, np.int32), starts, limits, kept != lengths)


def padded_inputs(
    ids: Sequence[np.ndarray], types: Sequence[np.ndarray], pad_id: int
) -> dict[str, np.ndarray]:
    """Returns the inputs of an encoder, int32 [B, S], for rows of token and segment ids."""
    pad = functools.partial(keras.utils.pad_sequences, padding="post")
    columns = pad(ids, value=pad_id), pad([np.ones_like(row) for row in ids]), pad(types)
    return dict(zip(INPUTS, columns, strict=True))


class Window(NamedTuple):
    """Tokens of a line that the encoder reads together.

    The vectors of its `own` tokens come from this window: that of every token from the window in
    which it has the most context, those of [CLS] and [SEP] from all.
    """

    line: int  # its index
    tokens: np.ndarray  # their places in the line, int64 [S]; [CLS] first and [SEP] last
    own: np.ndarray  # bool [S]


def make_line_windows(lines: Sequence[EncodedLine], max_seq_length: int) -> Iterator[Window]:
    """Yields the windows over each line: one, or overlapping ones if it is too long."""
    for number, line in enumerate(lines):
        last = len(line.ids) - 1
        if last < max_seq_length:
            yield Window(number, np.arange(last + 1), np.ones(last + 1, bool))
            continue
        windows = make_windows(tf.constant([0, last - 1], tf.int64), max_seq_length - 2)
        for tokens, own in zip(*windows, strict=True):
            places = np.concatenate([[0], tokens.numpy() + 1, [last]])
            yield Window(number, places, np.pad(own.numpy(), 1, constant_values=True))
