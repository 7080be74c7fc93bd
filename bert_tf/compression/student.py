"""The student: the weights that it starts with, and the task that it learns with its teacher."""

from collections.abc import Sequence
from typing import Any

import keras

from bert_tf.checkpoint import open_init_checkpoint
from bert_tf.compression.distillation import Distillation, DistillationObjective
from bert_tf.compression.heads import head_importance, least_important
from bert_tf.compression.options import CompressionOptions, StudentOptions
from bert_tf.compression.pruning import PruningAdamW
from bert_tf.compression.recipes import Recipe
from bert_tf.config import BertConfig
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.objectives import ClassificationObjective, RegressionObjective
from bert_tf.finetuning.run import model_spec, read_features
from bert_tf.finetuning.task import TRAIN, Task
from bert_tf.finetuning.trained_head import check_kind, order_classes
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_folder import RunFolder
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Objective
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.loading import load_weights
from bert_tf.weights.reshaping import keep_layers, parse_layers, remove_heads
from tfrecords.progress import say


def initial_student(
    options: StudentOptions, recipe: Recipe, teacher: Checkpoint
) -> Checkpoint | None:
    """Returns what the student starts with; None for random weights.

    Raises:
        ValueError: --student_layers is wrong, or layers share weights, so that none can be chosen.
        OSError: --init_checkpoint cannot be read.
    """
    if options.is_random:
        return None
    file, run = options.bert_config_file, RunFolder(options.output_dir)
    given = open_init_checkpoint(options.init_checkpoint, file, options.replace_vocab, run)
    source = given or teacher
    count = source.spec.config.num_hidden_layers
    if options.student_layers:
        return keep_layers(source, parse_layers(options.student_layers, count, "student_layers"))
    layers = recipe.layers(count)
    return given or (source if len(layers) == count else keep_layers(source, layers))


def without_heads(options: CompressionOptions, task: Task, checkpoint: Checkpoint) -> Checkpoint:
    """Returns a fine-tuned model without its least important heads; see `head_importance`.

    Raises:
        ValueError, OSError: layers share weights, or the training data cannot be read.
    """
    config = checkpoint.spec.config
    if config.num_hidden_groups:
        raise ValueError(
            f"the layers of {checkpoint.path} share weights, so that heads cannot be removed from "
            "each: use another recipe"
        )
    spec = model_spec(options, RunFolder(options.output_dir), checkpoint, None)
    features = read_features(options, task, spec, [TRAIN], lambda line: None)[TRAIN]
    model = load_teacher(task, checkpoint)
    importance = head_importance(model, task.objective, features, options.eval_batch_size)
    heads = {
        layer: [config.kept_heads(layer)[place] for place in places]
        for layer, places in least_important(importance, options.pruned_share).items()
    }
    before, removed = sum(map(len, importance)), sum(map(len, heads.values()))
    names = (f"{layer}: {', '.join(map(str, heads[layer]))}" for layer in heads)
    say(
        f"Removing {removed} of {before} attention heads, the least important ones for the loss of "
        f"{len(features):,} training examples{'; by layer, ' if heads else ''}{'; '.join(names)}."
    )
    return remove_heads(checkpoint, heads)


class StudentTask:
    """A task that a student learns from its teacher; in all else, the task itself.

    Args:
        task: the task.
        teacher: a model that was fine-tuned on it.
        keeps_head: whether the student starts with the teacher's head.
        sparsity: the share of weights to set to zero, if the recipe does so.

    Raises:
        ValueError: the recipe or the teacher does not suit the task.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        teacher: Checkpoint,
        keeps_head: bool,
        sparsity: float = 0.0,
    ):
        self._task, self._recipe, self._teacher = task, recipe, teacher
        self._sparsity = sparsity
        check_kind(task.name, task.head, teacher.head, teacher.path)
        same = teacher.head and task.head and teacher.head.labels == task.head.labels
        self._keeps_head = keeps_head and same
        if recipe.has_teacher and not _is_supported(task):
            raise ValueError(
                f"--task={task.name}: this recipe compresses models that choose one class or "
                "predict a number for a text or a pair; for other tasks, use --recipe=layers"
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    @property
    def objective(self) -> Objective:
        return self.training_objective(1)

    def training_objective(self, num_train_steps: int) -> Objective:
        """See `Task.training_objective`."""
        if not self._recipe.has_teacher:
            return self._task.objective
        return DistillationObjective(self._task.objective, self._recipe, num_train_steps)

    def featurize(
        self, examples: Any, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """See `Task.featurize`.

        Raises:
            ValueError: the student's vocabulary or casing is not the teacher's.
        """
        ours, theirs = tokenizer.vocab, self._teacher.spec.vocab
        other_casing = self._teacher.spec.lower_case not in (None, tokenizer.lower_case)
        if other_casing or (theirs and ours.sha256 != theirs.sha256):
            raise ValueError(
                f"the student's vocabulary ({len(ours):,} tokens) or casing is not that of the "
                f"teacher, {self._teacher.path}: give --vocab_file={self._teacher.vocab_file} or "
                "another --init_checkpoint"
            )
        return self._task.featurize(examples, tokenizer, max_seq_length)

    def build_model(self, config: BertConfig) -> keras.Model:
        """See `Task.build_model`.

        Raises:
            ValueError: the recipe cannot compare these two models.
        """
        student = self._task.build_model(config)
        if not self._recipe.has_teacher:
            return student
        check_comparable(self._recipe, config, self._teacher.spec.config)
        return Distillation(student, load_teacher(self._task, self._teacher))

    def make_optimizer(
        self, weights: Sequence[keras.Variable], num_first_steps: int, **arguments: Any
    ) -> AdamW:
        """See `Task.make_optimizer`."""
        if not self._recipe.zeroes_weights:
            return self._task.make_optimizer(weights, num_first_steps, **arguments)
        return PruningAdamW(weights, self._sparsity, num_first_steps, **arguments)

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        """See `Task.initial_weights`."""
        return model.encoder.weights + (model.head.weights if self._keeps_head else [])


def load_teacher(task: Task, teacher: Checkpoint) -> BertTaskModel:
    """Returns the teacher with its classes in the order of the task's."""
    model = task.build_model(teacher.spec.config)
    load_weights(teacher.path, teacher.tensors, model.weights)
    order_classes(model, task.head, teacher.head, say)
    return model


def _is_supported(task: Task) -> bool:
    kinds = ClassificationObjective, RegressionObjective
    return task.head and task.head.kind == "classifier" and isinstance(task.objective, kinds)


def check_comparable(
    recipe: Recipe,
    student: BertConfig,
    teacher: BertConfig,
    or_else: str = ", or --recipe=pd, which compares predictions alone",
) -> None:
    """Raises a ValueError if a recipe cannot compare two models."""
    for reason, name, matters in (
        ("layers of one width", "hidden_size", recipe.replaces or _compares_widths(recipe)),
        ("as many heads", "num_attention_heads", "attention" in recipe.reads),
    ):
        ours, theirs = getattr(student, name), getattr(teacher, name)
        if matters and ours != theirs:
            raise ValueError(
                f"this recipe needs {reason} in student and teacher, but their {name} are {ours} "
                f"and {theirs}: use another --init_checkpoint{or_else}"
            )
    if "attention" in recipe.reads and (student.pruned_heads or teacher.pruned_heads):
        raise ValueError(
            "this recipe compares all attention heads of student and teacher, but one of them "
            "lacks some (pruned_heads): use --recipe=pd, which compares predictions alone"
        )
    if recipe.has_teacher and student.num_hidden_layers > teacher.num_hidden_layers:
        raise ValueError(
            f"the student has {student.num_hidden_layers} layers, more than the "
            f"{teacher.num_hidden_layers} of the teacher: use a smaller --init_checkpoint"
        )


def _compares_widths(recipe: Recipe) -> bool:
    return not all(term.projects for term in recipe.terms)
