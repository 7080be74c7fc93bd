"""How a fine-tuning run trains its task; other commands have their own."""

import contextlib
from collections.abc import Collection, Sequence, Sized
from contextlib import AbstractContextManager
from typing import Any

import keras

from bert_tf.config import BertConfig
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Objective


class Training:
    """Trains a task: its examples, its model and its objective.

    Args:
        task: the task.
    """

    def __init__(self, task: Task):
        self.task = task

    def read_splits(self, names: Collection[str], files: DataFiles, seed: int) -> dict[str, Sized]:
        """See `Task.read_splits`."""
        return self.task.read_splits(names, files, seed)

    def featurize(
        self, examples: Sized, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """See `Task.featurize`."""
        return self.task.featurize(examples, tokenizer, max_seq_length)

    def build_model(self, config: BertConfig) -> keras.Model:
        """Returns the model to train or to evaluate, with random weights."""
        return self.task.build_model(config)

    def objective(self, num_train_steps: int) -> Objective:
        """Returns the objective of the run."""
        return self.task.objective

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        """Returns the weights of the model that are set from the initial checkpoint."""
        return self.task.initial_weights(model)

    def preset_weights(self, model: keras.Model) -> list[keras.Variable]:
        """Returns the weights to which `build_model` gave their initial values."""
        return []

    def make_optimizer(
        self, weights: Sequence[keras.Variable], num_first_steps: int, **arguments: Any
    ) -> AdamW:
        """Returns the optimizer.

        Args:
            weights: the weights to train.
            num_first_steps: the steps before the first evaluation, and at most half of all.
            arguments: those of `AdamW`.
        """
        return AdamW(weights, **arguments)

    def first_best_step(self, num_train_steps: int) -> int:
        """Returns the first step whose weights may be kept as the best."""
        return 0

    def evaluated_weights(self, model: keras.Model) -> AbstractContextManager:
        """Makes a context in which the model has the weights to evaluate and to keep as the best.

        By default, they are the ones that train.
        """
        return contextlib.nullcontext()
