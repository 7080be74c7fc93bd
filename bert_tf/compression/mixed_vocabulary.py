"""Dual training: a student with a small vocabulary, together with its teacher, which learns it."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.base.progress import say
from bert_tf.compression.distillation import StudentModel
from bert_tf.compression.resegmentation import MixedRows, both_vocabularies
from bert_tf.compression.student import check_comparable
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.layers import fused
from bert_tf.layers.initial_weights import new_seed
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.phase_data import PretrainingLearner
from bert_tf.sessions.session import Session
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, load_weights
from bert_tf.weights.names import part_of, training_flops, weights
from tfrecords.vocabulary import check_word_pieces

# The axes of weights that differ in size between models of one depth. "3 attended" are three
# matrices side by side.
_WIDTHS = dict.fromkeys(("hidden", "embedding", "attended", "3 attended"), "hidden")
_WIDTHS["inner"] = "inner"
_PARTS = ("encoder", "pooler", "masked_lm")
# The factor of the distance between the weights.
_DISTANCE = 1e-3
# What must be equal in student and teacher, so that every weight has a counterpart.
_SAME = "num_hidden_layers max_position_embeddings type_vocab_size classifier_activation".split()


class SharedProjections(keras.layers.Layer):
    """Measures how far the projected weights of a student are from those of its teacher.

    Two widths differ: that of the layers, and that inside the feed-forward networks. For each of
    them, one matrix projects the inputs of the student's kernels to the teacher's width, and one
    the outputs: a kernel W becomes U^T W V. All weights share these four matrices. They start
    orthogonal, so that projecting up keeps lengths.

    Source: Extreme Language Model Compression with Optimal Subwords and Shared Projections
    (arXiv:1909.11687v1) section 3.2, projection up.
    """

    def __init__(self, student: BertConfig, teacher: BertConfig, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        # The names of the axes of all weights to compare.
        self._axes = {
            weight.path.format(layer): weight.shape
            for weight in weights(student)
            if part_of(weight.path) in _PARTS
            for layer in (range(student.num_hidden_layers) if "{}" in weight.path else [0])
        }
        self._matrices = {
            (width, role): self.add_weight(
                name=f"{width}_{role}",
                shape=sizes,
                initializer=keras.initializers.Orthogonal(seed=new_seed()),
            )
            for width, sizes in (
                ("hidden", (student.hidden_size, teacher.hidden_size)),
                ("inner", (student.intermediate_size, teacher.intermediate_size)),
            )
            for role in ("input", "output")
        }
        self.built = True

    def distance(
        self, student: Sequence[keras.Variable], teacher: Sequence[keras.Variable]
    ) -> tf.Tensor:
        """Returns the sum of the squared differences over all weights.

        The models have them in the same order. Tables of the teacher with a row per token hold the
        rows of the student's tokens last.
        """
        distances = []
        for weight, counterpart in zip(student, teacher, strict=True):
            if weight.path not in self._axes:
                continue
            axes = self._axes[weight.path]
            ours, theirs = map(tf.convert_to_tensor, (weight, counterpart))
            if axes[0] == "vocab":
                theirs = theirs[-ours.shape[0] :]
            difference = tf.math.squared_difference(self._project(ours, axes), theirs)
            distances.append(tf.reduce_sum(difference))
        return tf.add_n(distances)

    def _project(self, weight: tf.Tensor, axes: tuple[str, ...]) -> tf.Tensor:
        """Returns a weight of the student in the teacher's widths, given the names of its axes."""
        if width := _WIDTHS.get(axes[-1]):
            matrix = self._matrices[width, "output"]
            rows = tf.reshape(weight, [-1, matrix.shape[0]]) @ tf.convert_to_tensor(matrix)
            weight = tf.reshape(rows, [*weight.shape[:-1], -1])
        if len(axes) == 2 and (width := _WIDTHS.get(axes[0])):
            weight = tf.matmul(self._matrices[width, "input"], weight, transpose_a=True)
        return weight


class DualPretrainer(StudentModel):
    """A student, its teacher, and the projections between their weights; all of them train."""

    def __init__(self, student: BertConfig, teacher: BertConfig, rematerialize: str):
        name = "distillation"
        super().__init__(BertPretrainer(student, rematerialize), name)
        # Readers of checkpoints leave out paths under this name; see `opening.open_checkpoint`.
        with keras.name_scope(name):
            with keras.name_scope("teacher"):
                self.teacher = BertPretrainer(teacher, rematerialize)
            self.projections = SharedProjections(student, teacher, name="projections")
        self.built = True

    def distance(self) -> tf.Tensor:
        return self.projections.distance(self.student.weights, self.teacher.weights)


class DualObjective:
    """The masked-LM losses of student and teacher, and the distance of their weights.

    The student reads the records, and the teacher mixed rows; see `MixedRows`. The teacher predicts
    each token among those of the vocabulary that it belongs to. `teacher_loss` averages over the
    predictions of each row, and then over the rows.

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
        return self._base.counts(batch) | {"teacher_loss": examples, "distance": examples}

    def sums(self, model: DualPretrainer, batch: dict, training: bool) -> dict:
        seed = batch.get("dropout_seed", tf.constant([0, 0]))
        # Another seed, because the first dropout draws from this one.
        mixed = self._rows.mix(batch, tf.random.fold_in(seed, 0)) | {"dropout_seed": seed}
        logits = model.teacher(mixed, training=training)["mlm_logits"]
        ids, first = mixed["masked_lm_ids"], self._rows.first_id
        # Each among the tokens of its vocabulary.
        losses = tf.where(
            ids < first,
            fused.cross_entropy(logits[..., :first], tf.minimum(ids, first - 1)),
            fused.cross_entropy(logits[..., first:], tf.maximum(ids - first, 0)),
        )
        weights = mixed["masked_lm_weights"]
        means = tf.math.divide_no_nan(
            tf.reduce_sum(losses * weights, axis=1), tf.reduce_sum(weights, axis=1)
        )
        examples = batch["example_weights"]
        return self._base.sums(model.student, batch, training) | {
            "teacher_loss": tf.reduce_sum(means * examples),
            "distance": _DISTANCE * model.distance() * tf.reduce_sum(examples),
        }


class DualLearner(PretrainingLearner):
    """Trains a student with a vocabulary of its own together with its pre-trained teacher."""

    def __init__(self, teacher: Checkpoint, masked_lm_prob: float):
        self._teacher, self._masked_lm_prob = teacher, masked_lm_prob
        if not teacher.spec.vocab:
            raise ValueError(
                f"{teacher.path} has no vocabulary, which this recipe needs to split words into "
                "the teacher's tokens: put its vocab.txt beside it"
            )
        # Its vocabulary need not be that of the records.
        self.readers = {teacher.path: dataclasses.replace(teacher.spec, vocab=None)}

    def build_model(self, session: Session, spec: ModelSpec) -> DualPretrainer:
        source, student = self._teacher, spec.config
        special = student.special_keys + source.spec.config.special_keys
        check_comparable(student, source.spec.config, _SAME, special)
        if not spec.vocab or spec.lower_case is None:
            raise ValueError(
                "the records have no manifest that states their vocabulary and casing: give "
                "--vocab_file and --do_lower_case or --nodo_lower_case"
            )
        check_word_pieces(source.spec.vocab, source.vocab_file)
        check_word_pieces(spec.vocab)
        mapping = both_vocabularies(source.spec, spec)
        theirs = dataclasses.replace(source.spec.config, vocab_size=mapping.new_size)
        model = DualPretrainer(student, theirs, session.rematerialize)
        # A copy outside of the scope, whose paths are those of the checkpoint.
        teacher = BertPretrainer(theirs)
        random = load_weights(source.path, source.tensors, teacher.weights, mapping, OPTIONAL)
        new = any(part_of(path) == "masked_lm" for path in random)
        say(f"Teacher: {source.path}{', with a new masked-LM head' if new else ''}.")
        for ours, weight in zip(model.teacher.weights, teacher.weights, strict=True):
            ours.assign(weight)
        return model

    def objective(self, spec: ModelSpec, num_train_steps: int) -> DualObjective:
        return DualObjective(self._rows(spec))

    def prepare(self, batches: tf.data.Dataset, spec: ModelSpec) -> tf.data.Dataset:
        return batches.map(self._rows(spec).segment, num_parallel_calls=tf.data.AUTOTUNE)

    def initial_weights(self, model: DualPretrainer) -> Sequence[keras.Variable]:
        return model.student.weights

    def preset_weights(self, model: DualPretrainer) -> Sequence[keras.Variable]:
        return model.teacher.weights

    def training_flops(self, config: BertConfig, length: int, predictions: int) -> int:
        theirs = self._teacher.spec.config
        theirs = dataclasses.replace(theirs, vocab_size=theirs.vocab_size + config.vocab_size)
        return sum(training_flops(model, length, predictions) for model in (config, theirs))

    def _rows(self, spec: ModelSpec) -> MixedRows:
        return MixedRows(spec, self._teacher.spec, self._masked_lm_prob)
