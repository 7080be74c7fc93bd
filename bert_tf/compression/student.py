"""The student: the weights that it starts with, and the task that it learns with its teacher."""

import dataclasses
import hashlib
from collections.abc import Collection, Sequence, Sized
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.compression.augmentation import Augmentation
from bert_tf.compression.compression_options import StudentOptions
from bert_tf.compression.distillation import TEACHER, Distillation, DistillationObjective
from bert_tf.compression.outputs import ATTENTION, HIDDEN
from bert_tf.compression.precomputed import check_same_teacher, computed_once, fingerprint
from bert_tf.compression.pruning import PruningAdamW
from bert_tf.compression.recipes import Recipe
from bert_tf.config import BertConfig, BiLSTMConfig, ModelSpec
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.fine_tuned import load_task_model
from bert_tf.finetuning.fine_tuner import Training
from bert_tf.finetuning.objectives import OBJECTIVES
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.runs.run import Run
from bert_tf.session import open_init_checkpoint
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.iteration import with_progress
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Objective, Trainer
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.reshaping import keep_layers, parse_layers
from tfrecords.progress import counted, say
from tfrecords.vocabulary import Vocabulary


def initial_student(
    options: StudentOptions, recipe: Recipe, teacher: Checkpoint, pairs: bool = False
) -> Checkpoint | None:
    """Returns what the student starts with; None for random weights.

    Args:
        pairs: whether a BiLSTM compares two texts.
    """
    if options.is_random:
        return None
    given = open_init_checkpoint(options, Run(options.output_dir))
    source = given or teacher
    if recipe.bilstm:
        return bilstm_student(source, pairs)
    count = source.spec.config.num_hidden_layers
    if options.student_layers:
        return keep_layers(source, parse_layers(options.student_layers, count, "student_layers"))
    layers = recipe.layers(count)
    return given or (source if len(layers) == count else keep_layers(source, layers))


def bilstm_student(source: Checkpoint, pairs: bool) -> Checkpoint:
    """Returns the word embeddings of an encoder, as the start of a BiLSTM.

    Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) section 4.3, for the
    sizes.
    """
    spec = source.spec
    words = source.tensors["encoder/embeddings/word_embeddings"]
    config = BiLSTMConfig(
        spec.config.vocab_size,
        hidden_size=400,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=150,
        hidden_act="relu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=spec.config.max_position_embeddings,
        embedding_size=words.shape[1],
        bilstm="siamese" if pairs else "single",
    )
    spec = ModelSpec(config, spec.vocab, spec.lower_case)
    tensors = {"encoder/word_embeddings": words}
    return dataclasses.replace(source, spec=spec, tensors=tensors, head=None, config_file=None)


def reads_pairs(task: Task) -> bool:
    """Returns whether the examples of a task are pairs of texts."""
    return task.head.kind == "multiple_choice" or getattr(task, "pairs", False)


def known_spec(teacher: Checkpoint, vocab: Vocabulary, lower_case: bool) -> ModelSpec:
    """Returns the inputs of a teacher, which its student also reads unless it says otherwise."""
    spec = teacher.spec
    casing = lower_case if spec.lower_case is None else spec.lower_case
    return ModelSpec(spec.config, spec.vocab or vocab, casing)


def predict(task: Task, teacher: Checkpoint, features: Features) -> np.ndarray:
    """Returns what a teacher predicts for every example: logits [N, C] or numbers [N].

    It computes on the first GPU, if there is one, or else on the CPU.
    """
    say(f"The teacher predicts {counted(len(features), 'training example')}.")
    gpus = tf.config.list_logical_devices("GPU")
    strategy = tf.distribute.OneDeviceStrategy(gpus[0].name if gpus else "/cpu:0")
    with strategy.scope():
        model = load_task_model(task, teacher)
    trainer = Trainer(strategy, model, task.objective)
    batches = eval_batches(features, 32)
    batches = with_progress(batches, "Predicting", total=len(batches))
    (predictions,) = trainer.predict(batches).values()
    return predictions


class StudentTraining(Training):
    """Trains a task that a student learns from its teacher.

    If only predictions for whole examples are compared, the teacher makes them once, before
    training. A resumed run reads them from its folder. The teacher then need not read the student's
    vocabulary: each model reads the same text with its own tokenizer.

    Args:
        task: the task.
        recipe: how it learns.
        teacher: a model that was fine-tuned on the task.
        keeps_head: whether the student starts with the teacher's head.
        sparsity: the share of weights to set to zero, if the recipe does so.
        augmentation: makes copies of the training examples, whose labels do not count.
        run_folder: where the teacher's checksum and predictions are kept; None to keep none.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        teacher: Checkpoint,
        keeps_head: bool,
        sparsity: float = 0.0,
        augmentation: Augmentation | None = None,
        run_folder: str | None = None,
    ):
        super().__init__(task)
        self._recipe, self._teacher = recipe, teacher
        self._sparsity, self._run_folder = sparsity, run_folder
        self._keeps_head = keeps_head and task.head is not None and not recipe.bilstm
        supported = task.head is not None and isinstance(task.objective, OBJECTIVES)
        if recipe.has_teacher and not supported:
            raise ValueError(
                f"--task={task.name}: of tasks of your own, this recipe compresses those whose "
                "objective is one of bert_tf.finetuning.objectives; use --recipe=layers"
            )
        if recipe.bilstm and task.head.kind == "span":
            raise ValueError(
                f"--task={task.name}: a BiLSTM cannot find answers: use another --recipe"
            )
        self._predicts_once = (
            recipe.has_teacher
            and not (recipe.reads or recipe.replaces)
            and task.head.kind in ("classifier", "multiple_choice")
        )
        self._augmentation, self._train = augmentation, None

    def objective(self, num_train_steps: int) -> Objective:
        if not self._recipe.has_teacher:
            return self.task.objective
        return DistillationObjective(self.task.objective, self._recipe, num_train_steps)

    def read_splits(self, names: Collection[str], files: DataFiles, seed: int) -> dict[str, Sized]:
        if TRAIN in names and self._recipe.has_teacher and self._run_folder:
            check_same_teacher(self._run_folder, self._teacher)
        splits = self.task.read_splits(names, files, seed)
        if self._augmentation and TRAIN in splits:
            if not isinstance(splits[TRAIN], TextExamples):
                raise ValueError(
                    f"--augment makes copies of texts and pairs of texts, but "
                    f"--task={self.task.name} has other examples: omit it"
                )
            splits[TRAIN] = self._augmentation(splits[TRAIN])
        self._train = splits.get(TRAIN)
        return splits

    def featurize(
        self, examples: Any, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """See `Task.featurize`; adds the teacher's predictions to the training examples."""
        theirs = self._tokenizer(tokenizer)
        reads_alone = self._predicts_once or not self._recipe.has_teacher
        if theirs != tokenizer and not reads_alone:
            raise ValueError(
                f"the student's vocabulary ({len(tokenizer.vocab):,} tokens) or casing is not that "
                f"of the teacher, {self._teacher.path}: give "
                f"--vocab_file={self._teacher.vocab_file} or another --init_checkpoint, or use "
                "--recipe=pd, which compares predictions for whole texts"
            )
        trains = examples is self._train
        if trains and self._augmentation and self._augmentation.changes.masked:
            theirs, tokenizer = map(_reading_masks, (theirs, tokenizer))
        features = read = self.task.featurize(examples, tokenizer, max_seq_length)
        if not (trains and self._predicts_once):
            return features
        if theirs != tokenizer:
            read = self.task.featurize(examples, theirs, max_seq_length)
        targets = {**features.targets, TEACHER: self._predictions(read)}
        return dataclasses.replace(features, targets=targets)

    def _predictions(self, features: Features) -> np.ndarray:
        """Returns the teacher's predictions for the training examples; see `predict`."""
        tokens = [features.ids.to_tensor(-1), features.types.to_tensor(-1)]
        read = [hashlib.sha256(values.numpy().tobytes()).hexdigest() for values in tokens]
        precision = keras.config.dtype_policy().name
        found = computed_once(
            self._run_folder,
            "predictions",
            (fingerprint(self._teacher), self.task.head, precision, read),
            lambda: {"values": predict(self.task, self._teacher, features)},
        )
        return found["values"]

    def _tokenizer(self, ours: WordPieceTokenizer) -> WordPieceTokenizer:
        """Returns the teacher's tokenizer, which is the student's in what is not known of it."""
        spec = known_spec(self._teacher, ours.vocab, ours.lower_case)
        if (spec.vocab.sha256, spec.lower_case) == (ours.vocab.sha256, ours.lower_case):
            return ours
        return WordPieceTokenizer(spec.vocab, spec.lower_case)

    def build_model(self, config: BertConfig) -> keras.Model:
        if self._recipe.shares_layers and not config.num_hidden_groups:
            raise ValueError(
                "--recipe=albert is for students whose layers share their weights, but this one is "
                "a BERT: give an ALBERT as --init_checkpoint, --preset or --bert_config_file"
            )
        student = self.task.build_model(config)
        if not self._recipe.has_teacher:
            return student
        check_comparable(self._recipe, config, self._teacher.spec.config)
        teacher = None if self._predicts_once else load_task_model(self.task, self._teacher)
        return Distillation(student, teacher, projects=HIDDEN in self._recipe.reads)

    def first_best_step(self, num_train_steps: int) -> int:
        """See `Training.first_best_step`; the last stage of the recipe must have begun."""
        return min(num_train_steps, int(self._recipe.last_stage * num_train_steps) + 1)

    def make_optimizer(
        self, weights: Sequence[keras.Variable], num_first_steps: int, **arguments: Any
    ) -> AdamW:
        if not self._recipe.zeroes_weights:
            return super().make_optimizer(weights, num_first_steps, **arguments)
        return PruningAdamW(weights, self._sparsity, num_first_steps, **arguments)

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        if self._recipe.bilstm:
            return [model.encoder.word_embeddings]
        return model.encoder.weights + (model.head.weights if self._keeps_head else [])


def _reading_masks(tokenizer: WordPieceTokenizer) -> WordPieceTokenizer:
    return WordPieceTokenizer(tokenizer.vocab, tokenizer.lower_case, special_tokens_in_text=True)


def check_comparable(
    recipe: Recipe,
    student: BertConfig,
    teacher: BertConfig,
    or_else: str = ", or --recipe=pd, which compares predictions alone",
) -> None:
    """Raises a ValueError if a recipe cannot compare two models."""
    compares_widths = recipe.replaces or any(term.values == HIDDEN for term in recipe.terms)
    compares_heads = ATTENTION in recipe.reads
    for reason, name, matters in (
        ("layers of one width", "hidden_size", compares_widths),
        ("as many heads", "num_attention_heads", compares_heads),
    ):
        ours, theirs = getattr(student, name), getattr(teacher, name)
        if matters and ours != theirs:
            raise ValueError(
                f"this recipe needs {reason} in student and teacher, but their {name} are {ours} "
                f"and {theirs}: use another --init_checkpoint{or_else}"
            )
    alone = "use --recipe=pd, which compares predictions alone"
    if compares_heads and (student.pruned_heads or teacher.pruned_heads):
        raise ValueError(
            "this recipe compares all attention heads of student and teacher, but one of the two "
            f"lacks some heads (pruned_heads): {alone}"
        )
    if (recipe.replaces or recipe.reads) and (student.is_decoder or teacher.is_decoder):
        raise ValueError(
            "this recipe compares layers, but student or teacher reads from left to right "
            f"(is_decoder): {alone}"
        )
    if recipe.has_teacher and student.num_hidden_layers > teacher.num_hidden_layers:
        raise ValueError(
            f"the student has {student.num_hidden_layers} layers, more than the "
            f"{teacher.num_hidden_layers} of the teacher: use a smaller --init_checkpoint"
        )
