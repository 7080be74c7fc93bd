"""What a pre-training run trains; other commands have their own."""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.flops import training_flops
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.training.trainer import Objective


class PretrainingTask:
    """The model and the objective of a run.

    Attributes:
        readers: other models that read the records, by their paths.
    """

    readers: Mapping[str, ModelSpec] = {}

    def build_model(self, spec: ModelSpec, rematerialize: str) -> keras.Model:
        """Returns the model to train, with random weights; `rematerialize` as in `BertEncoder`."""
        return BertPretrainer(spec.config, rematerialize)

    def objective(self, name: str, spec: ModelSpec, num_train_steps: int) -> Objective:
        """Returns the objective; `name` is one of `choices.OBJECTIVES`."""
        return PretrainingObjective(next_sentence=name != "mlm")

    def prepare(self, batches: tf.data.Dataset, spec: ModelSpec) -> tf.data.Dataset:
        """Adds what the objective needs to batches of records."""
        return batches

    def initial_weights(self, model: keras.Model) -> Sequence[keras.Variable]:
        """Returns the weights of the model that the initial checkpoint sets."""
        return model.weights

    def preset_weights(self, model: keras.Model) -> Sequence[keras.Variable]:
        """Returns the weights to which `build_model` gave their initial values."""
        return ()

    def training_flops(self, config: BertConfig, length: int, predictions: int) -> int:
        """Returns the floating-point operations for a sequence; see `models.flops`."""
        return training_flops(config, length, predictions)
