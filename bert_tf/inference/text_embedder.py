"""Turns a text into one vector, in one step."""

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import keras
import numpy as np

from bert_tf.base.calling import checked
from bert_tf.config import EMBEDDING, Head
from bert_tf.finetuning.serving import TextModule
from bert_tf.finetuning.task import make_model
from bert_tf.inference.engine import Engine
from bert_tf.inference.models import load_model
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.models.task_model import BertEmbedder
from bert_tf.tables.memory import is_table, opened, plain_cells
from bert_tf.text.bert_preprocessor import BertPreprocessor, without_shared_padding
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings, settings_of
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import check_length, fitting_length, resolve_vocab


@keras.saving.register_keras_serializable(package="bert_tf")
class TextEmbedder(keras.layers.Layer):
    """Turns texts into vectors.

    The layer works eagerly, and as the first layer of a Keras model, which can train it.

    Args:
        preprocessor: turns texts into the inputs of the embedder.
        embedder: turns these into vectors.

    Call: strings [B] -> float32 [B, V].
    """

    def __init__(
        self,
        preprocessor: BertPreprocessor,
        embedder: BertEmbedder,
        name: str = "text_embedder",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        # As in `BertPreprocessor`.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.supports_jit = False
        self.preprocessor, self.embedder = preprocessor, embedder
        module = embedding_module(embedder, preprocessor.tokenizer, preprocessor.seq_length)
        self._engine = Engine(module)
        self.built = True

    def __repr__(self) -> str:
        length, width = self.preprocessor.seq_length, self.embedder.width
        return f"{type(self).__name__}({length} tokens per text -> vectors of {width})"

    def call(self, text, training=None):
        inputs = without_shared_padding(self.preprocessor(text))
        return self.embedder(inputs, training=training)

    def compute_output_spec(self, text, training=None):
        return keras.KerasTensor((text.shape[0], self.embedder.width), "float32")

    @checked
    def encode(self, texts: Any, batch_size: int = 32) -> np.ndarray:
        """Returns the vectors of any number of texts, with the current weights.

        Texts of similar length are computed together; a progress bar shows work of more than a few
        seconds. Several threads may call it at once.

        Args:
            texts: a string; or a list, tuple, Series, array or generator of strings.
            batch_size: the most texts that are computed together.

        Returns:
            float32 [V] for a string, [N, V] for N texts.

        Raises:
            ValueError: `texts` is something else, such as a data frame, or holds what is not a
                string; the message names the row, counted from 1.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be 1 or more")
        values = texts if is_table(texts) else opened(texts)
        single = isinstance(values, str | bytes)
        rows = [(text,) for text in _checked([values] if single else values)]
        vectors = np.zeros((len(rows), self.embedder.width), np.float32)
        for batch, outputs, _ in self._engine.run(rows, batch_size, "Encoding"):
            vectors[batch] = outputs["embedding"]
        return vectors[0] if single else vectors

    def get_config(self):
        parts = {"preprocessor": self.preprocessor, "embedder": self.embedder}
        return super().get_config() | {
            name: keras.saving.serialize_keras_object(part) for name, part in parts.items()
        }

    @classmethod
    def from_config(cls, config):
        """Creates the layer from the result of `get_config`."""
        for name in ("preprocessor", "embedder"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def _checked(texts: Any) -> Iterator[bytes]:
    """Yields texts as UTF-8; raises a ValueError if something is not text."""
    if is_table(texts) or isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):
        forms = "give a string, or a list, Series or array of strings"
        raise ValueError(f"texts is of the type {type(texts).__name__}: {forms}")
    texts = [*texts]
    for row, text in enumerate(plain_cells(texts, "texts")):
        if not isinstance(text, str):
            shown = "missing" if text is None else f"of the type {type(texts[row]).__name__}"
            raise ValueError(f"row {row + 1:,} of texts is {shown}: it must be a string")
        # The tokenizer drops lone surrogates as it does bytes that are not UTF-8.
        yield text.encode(errors="surrogatepass")


@checked
def load_embedder(
    path: str | os.PathLike,
    pooling: str | None = None,
    normalize: bool | None = None,
    max_seq_length: int | None = None,
) -> TextEmbedder:
    """Loads the Keras layer that turns text into vectors.

    Args:
        path: a run that trained vectors, a sentence-transformers folder, or any checkpoint that
            `load` reads.
        pooling, normalize: see `BertEmbedder`. Default: as in the folder; otherwise "mean" and
            False.
        max_seq_length: tokens per text; longer texts are truncated. Default: as in the folder;
            otherwise 128, or the most that the encoder takes.

    Example:
        embedder = bert_tf.load_embedder("hf:sentence-transformers/all-MiniLM-L6-v2")
        query, *texts = embedder.encode(["a cat sleeps", "the kitten naps", "stocks fell"])
        print([query @ text for text in texts])

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the vocabulary is unknown, or the folder's settings are not supported.
    """
    checkpoint = open_checkpoint(path)
    settings = embedding_settings(checkpoint, pooling, normalize, max_seq_length)
    vocab, lower_case = resolve_vocab(checkpoint, None, None)
    preprocessor = BertPreprocessor(vocab, lower_case, settings.max_seq_length)
    embedder = build_embedder(checkpoint, settings)
    skip_padding(embedder)
    return TextEmbedder(preprocessor, embedder)


def embedding_settings(
    checkpoint: Checkpoint, pooling: str | None, normalize: bool | None, max_seq_length: int | None
) -> EmbeddingSettings:
    """Returns the arguments; for those that are None, the settings of the folder or defaults."""
    config = checkpoint.spec.config
    head = Head(EMBEDDING, pooling=pooling or "mean")
    default = EmbeddingSettings(head, fitting_length(config))
    settings = settings_of(checkpoint, pooling) or default
    max_seq_length = settings.max_seq_length if max_seq_length is None else max_seq_length
    check_length(config, max_seq_length)
    if normalize is not None:
        settings = settings._replace(head=dataclasses.replace(settings.head, normalize=normalize))
    return settings._replace(max_seq_length=max_seq_length)


def embedding_module(
    model: BertEmbedder, tokenizer: WordPieceTokenizer, max_seq_length: int
) -> TextModule:
    """Builds the module that maps strings `text` [B] to `embedding`, float32 [B, V]."""
    outputs = dict(outputs=lambda vectors: {"embedding": vectors})
    return TextModule(model, tokenizer, max_seq_length, pairs=False, **outputs)


def build_embedder(checkpoint: Checkpoint, settings: EmbeddingSettings) -> BertEmbedder:
    """Builds the model with the weights of a checkpoint, except the unused pooler's."""
    tensors = {**checkpoint.tensors, **settings.dense}
    build, parts = functools.partial(make_model, settings.head), {"encoder", "projection", "head"}
    return load_model(dataclasses.replace(checkpoint, tensors=tensors), build, parts)
