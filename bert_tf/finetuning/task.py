"""The interface of a fine-tuning task."""

import abc
from collections.abc import Mapping, Sized

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.features import Features
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.trainer import Objective

Outputs = Mapping[str, np.ndarray | list[np.ndarray]]


class Task(abc.ABC):
    """What to fine-tune an encoder for: data, model, objective, metrics and serving.

    Attributes:
        name: the value of --task.
        objective: what to minimize, and which outputs to predict.
        metric: the key of `score` that chooses the best weights; higher is better.
        token_outputs: names of the outputs that have an entry per token.
        dev_set: what to call the "dev" split in messages.
        head: what `model.head` predicts, for conversion to other formats; None if none of them has
            such a head.
    """

    name: str
    objective: Objective
    metric: str
    token_outputs: tuple[str, ...] = ()
    dev_set: str = "the dev set"
    head: Head | None = None

    @abc.abstractmethod
    def read_splits(self, data_dir: str | None, seed: int) -> dict[str, Sized]:
        """Reads the examples of "train", "dev" and, if it has targets, "test".

        Args:
            data_dir: the folder of the task's files, if the user gave one.
            seed: determines what is held out of "train" if the task has no "dev".

        Raises:
            ValueError, OSError: files are missing or malformed; the message names them.
        """

    @abc.abstractmethod
    def featurize(
        self, examples: Sized, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """Tokenizes the examples of a split."""

    @abc.abstractmethod
    def build_model(self, config: BertConfig) -> keras.Model:
        """Builds the model: a `BertEncoder` as its attribute `encoder`, with a head."""

    @abc.abstractmethod
    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """Computes the metrics of predictions.

        Args:
            outputs: what `Trainer.predict` returned for the objective's outputs.
            features: what `featurize` returned for the same split.
        """

    def problem(self, outputs: Outputs, features: Features) -> str | None:
        """Returns what is wrong with the predictions, for a warning; None if nothing is.

        Args:
            outputs, features: as for `score`.
        """
        return None

    @abc.abstractmethod
    def serving(
        self, model: keras.Model, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> tf.Module:
        """Builds the module to export; its attribute `serving` is the default signature."""

    @abc.abstractmethod
    def example_call(self) -> str:
        """Returns the arguments of a call of the exported module, with a comment on its result."""
