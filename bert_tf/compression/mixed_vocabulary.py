"""Dual training: a student with a small vocabulary, together with its teacher, which learns it."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.compression.projections import SharedProjections
from bert_tf.compression.resegmentation import MixedRows, both_vocabularies
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.layers import fused
from bert_tf.models.flops import training_flops
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.loading import load_weights
from bert_tf.weights.names import part_of
from bert_tf.weights.starting import OPTIONAL
from tfrecords.progress import say

# The factor of the distance between the weights.
_DISTANCE = 1e-3
# What must be equal in student and teacher, so that every weight has a counterpart.
_SAME = ("num_hidden_layers", "max_position_embeddings", "type_vocab_size")
_SPECIAL = ("embedding_size", "num_hidden_groups", "pruned_heads", "intra_bottleneck_size")


class DualPretrainer(keras.Model):
    """A student, its teacher, and the projections between their weights; all of them train.

    The weights of the student have the paths of a `BertPretrainer`.

    Call: the inputs of the student -> its output.
    """

    def __init__(
        self, student: BertConfig, teacher: BertConfig, rematerialize: str, name="distillation"
    ):
        super().__init__(name=name)
        self.student = BertPretrainer(student, rematerialize)
        # Paths that begin with the name of this model are not those of the student.
        with keras.name_scope(name):
            with keras.name_scope("teacher"):
                self.teacher = BertPretrainer(teacher, rematerialize)
            self.projections = SharedProjections(student, teacher, name="projections")
        self.built = True

    @property
    def encoder(self) -> keras.Model:
        return self.student.encoder

    def distance(self) -> tf.Tensor:
        """See `SharedProjections.distance`."""
        ours = self.student.weights
        pairs = zip(ours, self.teacher.weights, strict=True)
        teacher = {weight.path: theirs for weight, theirs in pairs}
        return self.projections.distance({weight.path: weight for weight in ours}, teacher)

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)


class DualObjective:
    """The masked-LM losses of student and teacher, and the distance of their weights.

    The student reads the records, and its teacher mixed rows; the teacher predicts a token among
    those of the vocabulary that it is from. `teacher_loss` is the mean over the rows of a row's
    mean.

    Source: Extreme Language Model Compression with Optimal Subwords and Shared Projections
    (arXiv:1909.11687v1) section 3.3.
    """

    losses = ("masked_lm_loss", "teacher_loss", "distance")
    measures = (*losses, "masked_lm_accuracy")

    def __init__(self, rows: MixedRows):
        self._rows = rows
        self._base = PretrainingObjective(next_sentence=False)

    def counts(self, batch: dict) -> dict:
        examples = tf.reduce_sum(batch["example_weights"])
        return self._base.counts(batch) | {"teacher_loss": examples, "distance": tf.constant(1.0)}

    def sums(self, model: DualPretrainer, batch: dict, training: bool) -> dict:
        seed = batch.get("dropout_seed", tf.constant([0, 0]))
        mixed = self._rows.mix(batch, seed) | {"dropout_seed": seed}
        logits = model.teacher(mixed, training=training)["mlm_logits"]
        losses = _losses(logits, mixed["masked_lm_ids"], self._rows.first_id)
        weights = mixed["masked_lm_weights"]
        means = tf.math.divide_no_nan(
            tf.reduce_sum(losses * weights, axis=1), tf.reduce_sum(weights, axis=1)
        )
        return self._base.sums(model.student, batch, training) | {
            "teacher_loss": tf.reduce_sum(means * batch["example_weights"]),
            "distance": _DISTANCE * model.distance(),
        }


def _losses(logits: tf.Tensor, ids: tf.Tensor, first: int) -> tf.Tensor:
    """Returns cross-entropies [B, P] among the ids below `first`, or among the others."""
    below, above = logits[..., :first], logits[..., first:]
    return tf.where(
        ids < first,
        fused.cross_entropy(below, tf.minimum(ids, first - 1)),
        fused.cross_entropy(above, tf.maximum(ids - first, 0)),
    )


class DualTraining(PretrainingTask):
    """Trains a student with a vocabulary of its own, and its pre-trained teacher with it.

    Args:
        teacher: the pre-trained model.
        masked_lm_prob: share of the teacher's tokens to predict.

    Raises:
        ValueError: the teacher's vocabulary is unknown.
    """

    def __init__(self, teacher: Checkpoint, masked_lm_prob: float):
        self._teacher, self._masked_lm_prob = teacher, masked_lm_prob
        if not teacher.spec.vocab:
            raise ValueError(
                f"{teacher.path} has no vocabulary, into whose tokens this recipe splits words: "
                "put vocab.txt beside it"
            )
        # Its vocabulary need not be that of the records.
        self.teachers = {teacher.path: dataclasses.replace(teacher.spec, vocab=None)}

    def build_model(self, spec: ModelSpec, rematerialize: str) -> DualPretrainer:
        """See `PretrainingTask.build_model`.

        Raises:
            ValueError: the weights of student and teacher do not correspond.
        """
        source = self._teacher
        _check_comparable(spec.config, source.spec.config)
        if not spec.vocab or spec.lower_case is None:
            raise ValueError(
                "the records have no manifest that states their vocabulary and casing: give "
                "--vocab_file and --do_lower_case or --nodo_lower_case"
            )
        mapping = both_vocabularies(source.spec, spec)
        theirs = dataclasses.replace(source.spec.config, vocab_size=mapping.new_size)
        model = DualPretrainer(spec.config, theirs, rematerialize)
        # Under the paths that the checkpoint has.
        teacher = BertPretrainer(theirs)
        random = load_weights(source.path, source.tensors, teacher.weights, mapping, OPTIONAL)
        if any(part_of(path) == "masked_lm" for path in random):
            say(f"The teacher's masked-LM head starts with random weights: {source.path} has none.")
        for ours, weight in zip(model.teacher.weights, teacher.weights, strict=True):
            ours.assign(weight)
        return model

    def objective(self, name: str, spec: ModelSpec, num_train_steps: int) -> DualObjective:
        return DualObjective(self._rows(spec))

    def prepare(self, batches: tf.data.Dataset, spec: ModelSpec) -> tf.data.Dataset:
        return batches.map(self._rows(spec).segment, num_parallel_calls=tf.data.AUTOTUNE)

    def initial_weights(self, model: DualPretrainer) -> Sequence[keras.Variable]:
        return model.student.weights

    def training_flops(self, config: BertConfig, length: int, predictions: int) -> int:
        models = config, self._teacher.spec.config
        return sum(training_flops(model, length, predictions) for model in models)

    def _rows(self, spec: ModelSpec) -> MixedRows:
        return MixedRows(spec, self._teacher.spec, self._masked_lm_prob)


def _check_comparable(student: BertConfig, teacher: BertConfig) -> None:
    """Raises a ValueError unless every weight of the student has a counterpart."""
    for name in _SAME:
        ours, theirs = getattr(student, name), getattr(teacher, name)
        if ours != theirs:
            raise ValueError(
                "this recipe compares the weights of student and teacher one by one, but their "
                f"{name} are {ours} and {theirs}: change --bert_config_file"
            )
    for owner, config in (("student", student), ("teacher", teacher)):
        for name in _SPECIAL:
            if getattr(config, name):
                raise ValueError(
                    f"this recipe compares the weights of plain BERT, but the {owner} has {name}: "
                    "use another one"
                )
