"""Opens the parts of a checkpoint that a command computes with; see `weights.names.PARTS`."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, Self, TypeVar

import keras

from bert_tf.config import BertConfig
from bert_tf.inference.inference_options import TokenizerOptions
from bert_tf.layers.initial_weights import loaded_next
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import Checkpoint, load_weights
from bert_tf.weights.names import part_of
from bert_tf.weights.opening import anchored_path
from bert_tf.weights.resolving import resolve_vocab

Model = TypeVar("Model", bound=keras.Model)


class Loaded:
    """What flags load. It is pickled and copied as these, because its model cannot be."""

    def loaded_by(
        self, open_: Callable[[TokenizerOptions], Any], options: TokenizerOptions, **paths: Any
    ) -> Self:
        """Notes what to call to load it again, and the absolute `paths` among the flags."""
        paths |= {"vocab_file": options.vocab_file and anchored_path(options.vocab_file)}
        self._loading = open_, options.changed(**paths)
        return self

    def __reduce__(self) -> tuple:
        open_, options = self._loading
        return open_, (options,)


def with_parts(checkpoint: Checkpoint, parts: Collection[str]) -> Checkpoint:
    """Returns a checkpoint without other parts."""
    tensors = {path: x for path, x in checkpoint.tensors.items() if part_of(path) in parts}
    return dataclasses.replace(checkpoint, tensors=tensors)


def load_model(
    checkpoint: Checkpoint, build: Callable[[BertConfig], Model], parts: Collection[str]
) -> Model:
    """Builds a model and loads some parts of it; nothing may read the others."""
    with loaded_next():
        model = build(checkpoint.spec.config)
    weights = [weight for weight in model.weights if part_of(weight.path) in parts]
    load_weights(checkpoint.path, with_parts(checkpoint, parts).tensors, weights)
    return model


def load_tokenizer(
    checkpoint: Checkpoint, options: TokenizerOptions, pretrained: bool = False
) -> WordPieceTokenizer:
    """Builds the tokenizer of a checkpoint.

    A `pretrained` model reads [MASK] and other special tokens in a text as such, one that was
    fine-tuned as the ordinary text that they were in training.
    """
    vocab, lower_case = resolve_vocab(checkpoint, options.vocab_file, options.do_lower_case)
    return make_tokenizer(vocab, lower_case, special_tokens_in_text=pretrained)
