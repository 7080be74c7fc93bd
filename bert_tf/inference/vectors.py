"""Computes contextual vectors of lines."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.finite import check_computed
from bert_tf.inference.encoding import NOWHERE, EncodedLine, Window, make_line_windows
from bert_tf.inference.texts import in_chunks
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.inputs import INPUTS

EMBEDDINGS = "embeddings"
_WORD = re.compile(rb"[^\t\n\v\f\r ]+")


@dataclass(frozen=True)
class LineVectors:
    """The vectors of a line: one per token, per word, or one alone.

    Attributes:
        text: the line.
        values: float32 [U, layers, hidden_size].
        starts, limits: the bytes of the line that each vector stands for, int32 [U]; -1 for [CLS]
            and [SEP].
        ids: the ids of the tokens, int32 [U]; None for vectors of words or lines.
    """

    text: bytes
    values: np.ndarray
    starts: np.ndarray
    limits: np.ndarray
    ids: np.ndarray | None = None


def _tokens(line: EncodedLine, values: np.ndarray) -> LineVectors:
    return LineVectors(line.text, values, line.starts, line.limits, line.ids)


def _word_first(line: EncodedLine, values: np.ndarray) -> LineVectors:
    tokens, first, _, spans = _words(line)
    return LineVectors(line.text, values[tokens[first]], *spans)


def _word_mean(line: EncodedLine, values: np.ndarray) -> LineVectors:
    tokens, first, counts, spans = _words(line)
    # reduceat fails without any words.
    sums = np.add.reduceat(values[tokens], first) if len(first) else values[:0]
    return LineVectors(line.text, sums / np.float32(counts)[:, None, None], *spans)


def _cls(line: EncodedLine, values: np.ndarray) -> LineVectors:
    # A copy, because a view would keep the batch in memory.
    return _whole(line, values[:1].copy())


def _mean(line: EncodedLine, values: np.ndarray) -> LineVectors:
    return _whole(line, values.mean(axis=0, keepdims=True))


def _whole(line: EncodedLine, values: np.ndarray) -> LineVectors:
    return LineVectors(line.text, values, *np.array([[0], [len(line.text)]], np.int32))


# What --pooling makes of the vectors of the tokens [S, layers, hidden_size].
POOLINGS: dict[str, Callable[[EncodedLine, np.ndarray], LineVectors]] = {
    "tokens": _tokens,
    "word_first": _word_first,
    "word_mean": _word_mean,
    "cls": _cls,
    "mean": _mean,
}


def _words(line: EncodedLine) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Finds the words of a line that have tokens.

    Returns:
        the tokens that are not [CLS] or [SEP]; and for every word, the first of its tokens among
        these, how many they are, and its start and limit [2, words].
    """
    spans = np.array([word.span() for word in _WORD.finditer(line.text)], np.int32).reshape(-1, 2)
    tokens = np.flatnonzero(line.starts != NOWHERE)
    numbers = np.searchsorted(spans[:, 0], line.starts[tokens], side="right") - 1
    numbers, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    return tokens, first, counts, spans[numbers].T


def chosen_layers(text: str | None, num_layers: int) -> list[int | str]:
    """Reads --layers; without the flag, chooses the last four layers, or all if there are fewer.

    Returns:
        indices as in the original, where 0 and -num_layers are the first layer; or "embeddings".
    """
    if text is None:
        return list(range(-1, -1 - min(4, num_layers), -1))
    layers = []
    for name in text.split(","):
        try:
            layer = EMBEDDINGS if name.strip() == EMBEDDINGS else int(name)
        except ValueError:
            layer = num_layers
        if layer != EMBEDDINGS and not -num_layers <= layer < num_layers:
            raise ValueError(
                f"--layers={text}: {name!r} is not a layer of this model: choose from 0 to "
                f"{num_layers - 1}, from -1 (the last) to -{num_layers} (the first), or "
                f"{EMBEDDINGS}"
            )
        layers.append(layer)
    return layers


class VectorExtractor:
    """Computes the vectors of lines at some layers; padding and other lines change nothing.

    Args:
        encoder: the trained encoder.
        layers: as `chosen_layers` returns them.
        pooling: a key of `POOLINGS`.
        pad_id: the id of [PAD].
        max_seq_length: longer lines are read in windows of this length.
        batch_size: lines or windows per call of the encoder.

    Attributes:
        layers: as given.
        token_bytes: how much memory the vectors of a token take.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        layers: Sequence[int | str],
        pooling: str,
        pad_id: int,
        max_seq_length: int,
        batch_size: int,
    ):
        self.layers, self._batch_size = layers, batch_size
        self._max_seq_length = max_seq_length
        self.token_bytes = 4 * len(layers) * encoder.config.hidden_size
        self._pool, self._pad_id = POOLINGS[pooling], pad_id
        spec = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[dict.fromkeys(INPUTS, spec)], autograph=False)
        def compute(inputs):
            outputs = encoder(inputs, training=False)["encoder_outputs"]
            if EMBEDDINGS in layers:
                ids, _, types = (inputs[name] for name in INPUTS)
                embeddings = encoder.embeddings(ids, types, training=False)
            chosen = [embeddings if layer == EMBEDDINGS else outputs[layer] for layer in layers]
            return tf.stack([tf.cast(x, tf.float32) for x in chosen], axis=2)

        self._compute = compute

    def extract(self, lines: Sequence[EncodedLine]) -> list[LineVectors]:
        """Returns the vectors of lines, in their order."""
        windows = list(make_line_windows(lines, self._max_seq_length))
        # Windows of similar length need little padding.
        windows.sort(key=lambda window: len(window.tokens))
        values: dict[int, np.ndarray] = {}
        for batch in in_chunks(windows, self._batch_size):
            computed = self._compute(self._inputs(batch, lines)).numpy()
            check_computed({"vectors": computed})
            for (index, tokens, own), rows in zip(batch, computed, strict=True):
                if index not in values:
                    values[index] = np.zeros((len(lines[index].ids), *rows.shape[1:]), rows.dtype)
                values[index][tokens[own]] += rows[: len(tokens)][own]
        for index, count in enumerate(np.bincount([window.line for window in windows])):
            values[index][[0, -1]] /= count
        return [self._pool(line, values[index]) for index, line in enumerate(lines)]

    def _inputs(
        self, windows: Sequence[Window], lines: Sequence[EncodedLine]
    ) -> dict[str, np.ndarray]:
        shape = len(windows), max(len(window.tokens) for window in windows)
        ids, mask, types = np.full(shape, self._pad_id, np.int32), *np.zeros((2, *shape), np.int32)
        for row, (index, tokens, _) in enumerate(windows):
            line, length = lines[index], len(tokens)
            ids[row, :length], types[row, :length] = line.ids[tokens], line.types[tokens]
            mask[row, :length] = 1
        return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
