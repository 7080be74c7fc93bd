"""Computes contextual vectors of lines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.base.finite import check_computed
from bert_tf.inference.encoding import NOWHERE, EncodedLine, make_line_windows, padded_inputs
from bert_tf.inference.inference_options import ExtractionOptions
from bert_tf.inference.models import load_model, load_tokenizer
from bert_tf.inference.texts import in_chunks
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import INPUTS
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import check_length, fitting_length

EMBEDDINGS = "embeddings"
_WORD = re.compile(rb"[^\t\n\v\f\r ]+")


@dataclass(frozen=True)
class LineVectors:
    """The vectors of a line: one per token, per word, or one alone.

    Each stands for the bytes of the line from `starts` to `limits`, -1 for [CLS] and [SEP].
    """

    text: bytes
    values: np.ndarray  # float32 [U, layers, hidden_size]
    starts: np.ndarray  # int32 [U]
    limits: np.ndarray
    ids: np.ndarray | None = None  # of the tokens, int32 [U]; None for words and lines


def pool(pooling: str, line: EncodedLine, values: np.ndarray) -> LineVectors:
    """Returns what --pooling makes of the vectors of a line's tokens [S, layers, hidden_size]."""
    if pooling == "tokens":
        return LineVectors(line.text, values, line.starts, line.limits, line.ids)
    if pooling in ("cls", "mean"):
        # A copy, because a view would keep the batch in memory.
        one = values[:1].copy() if pooling == "cls" else values.mean(axis=0, keepdims=True)
        return LineVectors(line.text, one, *np.array([[0], [len(line.text)]], np.int32))
    spans = np.array([word.span() for word in _WORD.finditer(line.text)], np.int32).reshape(-1, 2)
    tokens = np.flatnonzero(line.starts != NOWHERE)
    numbers = np.searchsorted(spans[:, 0], line.starts[tokens], side="right") - 1
    # The words that have tokens; the first of them among `tokens`; how many they are.
    numbers, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    # Without any words, reduceat may fail.
    if pooling == "word_first" or not len(first):
        words = values[tokens[first]]
    else:
        words = np.add.reduceat(values[tokens], first) / np.float32(counts)[:, None, None]
    return LineVectors(line.text, words, *spans[numbers].T)


def chosen_layers(text: str | None, num_layers: int) -> list[int | str]:
    """Reads --layers, whose default are the last four, or all: indices, or "embeddings"."""
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

    Those of a token take `token_bytes` of memory. `nothing` is for a line that cannot be read.
    """

    def __init__(self, options: ExtractionOptions):
        self.checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
        config = self.checkpoint.spec.config
        self.layers = layers = chosen_layers(options.layers, config.num_hidden_layers)
        self.max_seq_length = options.max_seq_length or fitting_length(config)
        check_length(config, self.max_seq_length)
        pretrained, self._options = not self.checkpoint.head, options
        self.tokenizer = load_tokenizer(self.checkpoint, options, pretrained)
        encoder = load_model(self.checkpoint, BertEncoder, ("encoder", "projection"))
        self.token_bytes = 4 * len(layers) * config.hidden_size
        values = np.zeros((0, len(layers), config.hidden_size), np.float32)
        ids = np.zeros(0, np.int32) if options.pooling == "tokens" else None
        self.nothing = LineVectors(b"", values, *np.zeros((2, 0), np.int32), ids)
        spec = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[dict.fromkeys(INPUTS, spec)], autograph=False)
        def compute(inputs):
            outputs = encoder(inputs, training=False)
            states = outputs["encoder_outputs"]
            chosen = [outputs[x] if x == EMBEDDINGS else states[x] for x in layers]
            return tf.stack([tf.cast(x, tf.float32) for x in chosen], axis=2)

        self._compute = compute

    def extract(self, lines: Sequence[EncodedLine]) -> list[LineVectors]:
        """Returns the vectors of lines, in their order."""
        windows = list(make_line_windows(lines, self.max_seq_length))
        # Windows of similar length need little padding.
        windows.sort(key=lambda window: len(window.tokens))
        values: dict[int, np.ndarray] = {}
        for batch in in_chunks(windows, self._options.batch_size):
            ids = [lines[window.line].ids[window.tokens] for window in batch]
            types = [lines[window.line].types[window.tokens] for window in batch]
            computed = self._compute(padded_inputs(ids, types, self.tokenizer.vocab.pad_id)).numpy()
            check_computed({"vectors": computed})
            for (index, tokens, own), rows in zip(batch, computed, strict=True):
                if index not in values:
                    values[index] = np.zeros((len(lines[index].ids), *rows.shape[1:]), rows.dtype)
                values[index][tokens[own]] += rows[: len(tokens)][own]
        for index, count in enumerate(np.bincount([window.line for window in windows])):
            values[index][[0, -1]] /= count
        pooling = self._options.pooling
        return [pool(pooling, line, values[index]) for index, line in enumerate(lines)]
