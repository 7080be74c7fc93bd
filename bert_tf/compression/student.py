"""The student: the weights that it starts with, and the task that it learns with its teacher."""

import dataclasses
import hashlib
from collections.abc import Collection, Sequence, Sized
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoint import open_init_checkpoint
from bert_tf.compression.augmentation import Augmentation
from bert_tf.compression.distillation import TEACHER, Distillation, DistillationObjective
from bert_tf.compression.heads import head_importance, least_important
from bert_tf.compression.options import CompressionOptions, StudentOptions
from bert_tf.compression.outputs import HIDDEN
from bert_tf.compression.precomputed import check_same_teacher, computed_once, fingerprint
from bert_tf.compression.pruning import PruningAdamW
from bert_tf.compression.recipes import Recipe
from bert_tf.compression.teacher import known_spec, predict
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.objectives import OBJECTIVES
from bert_tf.finetuning.run import model_spec, read_features
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.trained_head import load_task_model
from bert_tf.run_folder import RunFolder
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Objective
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.reshaping import keep_layers, parse_layers, remove_heads
from tfrecords.progress import say


def initial_student(
    options: StudentOptions, recipe: Recipe, teacher: Checkpoint, pairs: bool = False
) -> Checkpoint | None:
    """Returns what the student starts with; None for random weights.

    Args:
        pairs: whether a BiLSTM compares two texts.

    Raises:
        ValueError: --student_layers is wrong, or layers share weights, so that none can be chosen.
        OSError: --init_checkpoint cannot be read.
    """
    if options.is_random:
        return None
    file, run = options.bert_config_file, RunFolder(options.output_dir)
    given = open_init_checkpoint(
        options.init_checkpoint, file, options.replace_vocab, run, options.vocab_file
    )
    source = given or teacher
    if recipe.bilstm:
        return bilstm_student(source, pairs)
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
    if config.is_mobile:
        raise ValueError(
            f"{checkpoint.path} is a MobileBERT, whose heads cannot be removed: use another recipe"
        )
    if config.num_hidden_groups:
        raise ValueError(
            f"the layers of {checkpoint.path} share weights, so that heads cannot be removed from "
            "each: use another recipe"
        )
    spec = model_spec(options, RunFolder(options.output_dir), checkpoint, None)
    features = read_features(options, task, spec, [TRAIN], lambda line: None)[TRAIN]
    model = load_task_model(task, checkpoint)
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


def bilstm_student(source: Checkpoint, pairs: bool) -> Checkpoint:
    """Returns the word embeddings of an encoder, as the start of a BiLSTM.

    Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) section 4.3, for the
    sizes.
    """
    spec = source.spec
    words = source.tensors["encoder/embeddings/word_embeddings"]
    config = BertConfig(
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


class StudentTask:
    """A task that a student learns from its teacher; otherwise, the task itself.

    If only predictions for whole examples are compared, the teacher makes them once, before
    training. A resumed run reads them from its folder. The teacher then need not read the student's
    vocabulary: each model reads the same text with its own tokenizer.

    Args:
        task: the task.
        teacher: a model that was fine-tuned on it.
        keeps_head: whether the student starts with the teacher's head.
        sparsity: the share of weights to set to zero, if the recipe does so.
        augmentation: makes copies of the training examples, whose labels do not count.
        run_folder: where the teacher's checksum and predictions are kept; None to keep none.

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
        augmentation: Augmentation | None = None,
        run_folder: str | None = None,
    ):
        self._task, self._recipe, self._teacher = task, recipe, teacher
        self._sparsity, self._run_folder = sparsity, run_folder
        self._keeps_head = keeps_head and task.head is not None and not recipe.bilstm
        if recipe.has_teacher and not _is_supported(task):
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

    def read_splits(self, names: Collection[str], files: DataFiles, seed: int) -> dict[str, Sized]:
        """See `Task.read_splits`.

        Raises:
            ValueError: also if the run resumes with another teacher, or has no use for copies.
        """
        if TRAIN in names and self._recipe.has_teacher and self._run_folder:
            check_same_teacher(self._run_folder, self._teacher)
        splits = self._task.read_splits(names, files, seed)
        if self._augmentation and TRAIN in splits:
            if not isinstance(splits[TRAIN], TextExamples):
                raise ValueError(
                    f"--augment makes copies of texts and pairs of texts, but --task={self.name} "
                    "has other examples: omit it"
                )
            splits[TRAIN] = self._augmentation(splits[TRAIN])
        self._train = splits.get(TRAIN)
        return splits

    def featurize(
        self, examples: Any, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """See `Task.featurize`; adds the teacher's predictions to the training examples.

        Raises:
            ValueError: the student's vocabulary or casing must be the teacher's, but is not.
        """
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
        features = self._task.featurize(examples, tokenizer, max_seq_length)
        if not (trains and self._predicts_once):
            return features
        read = features
        if theirs != tokenizer:
            read = self._task.featurize(examples, theirs, max_seq_length)
        answers = self._predictions(read)
        return dataclasses.replace(features, targets={**features.targets, TEACHER: answers})

    def _predictions(self, features: Features) -> np.ndarray:
        """Returns the teacher's predictions for the training examples; see `predict`."""
        tokens = [features.ids.to_tensor(-1), features.types.to_tensor(-1)]
        read = [hashlib.sha256(values.numpy().tobytes()).hexdigest() for values in tokens]
        precision = keras.config.dtype_policy().name
        found = computed_once(
            self._run_folder,
            "predictions",
            (fingerprint(self._teacher), self._task.head, precision, read),
            lambda: {"values": predict(self._task, self._teacher, features)},
        )
        return found["values"]

    def _tokenizer(self, ours: WordPieceTokenizer) -> WordPieceTokenizer:
        """Returns the teacher's tokenizer, which is the student's in what is not known of it."""
        spec = known_spec(self._teacher, ours.vocab, ours.lower_case)
        if (spec.vocab.sha256, spec.lower_case) == (ours.vocab.sha256, ours.lower_case):
            return ours
        return WordPieceTokenizer(spec.vocab, spec.lower_case)

    def build_model(self, config: BertConfig) -> keras.Model:
        """See `Task.build_model`.

        Raises:
            ValueError: the recipe does not suit the student, or cannot compare these two models.
        """
        if self._recipe.shares_layers and not config.num_hidden_groups:
            raise ValueError(
                "--recipe=albert is for students whose layers share their weights, but this one is "
                "a BERT: give an ALBERT as --init_checkpoint, --preset or --bert_config_file"
            )
        student = self._task.build_model(config)
        if not self._recipe.has_teacher:
            return student
        check_comparable(self._recipe, config, self._teacher.spec.config)
        teacher = None if self._predicts_once else load_task_model(self._task, self._teacher)
        return Distillation(student, teacher, projects=HIDDEN in self._recipe.reads)

    def first_best_step(self, num_train_steps: int) -> int:
        """See `Task.first_best_step`; the last stage of the recipe must have begun."""
        return min(num_train_steps, int(self._recipe.last_stage * num_train_steps) + 1)

    def make_optimizer(
        self, weights: Sequence[keras.Variable], num_first_steps: int, **arguments: Any
    ) -> AdamW:
        """See `Task.make_optimizer`."""
        if not self._recipe.zeroes_weights:
            return self._task.make_optimizer(weights, num_first_steps, **arguments)
        return PruningAdamW(weights, self._sparsity, num_first_steps, **arguments)

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        """See `Task.initial_weights`."""
        if self._recipe.bilstm:
            return [model.encoder.word_embeddings]
        return model.encoder.weights + (model.head.weights if self._keeps_head else [])


def _reading_masks(tokenizer: WordPieceTokenizer) -> WordPieceTokenizer:
    return WordPieceTokenizer(tokenizer.vocab, tokenizer.lower_case, special_tokens_in_text=True)


def _is_supported(task: Task) -> bool:
    return task.head is not None and isinstance(task.objective, OBJECTIVES)


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
    reads_layers = recipe.replaces or HIDDEN in recipe.reads or "attention" in recipe.reads
    if reads_layers and (student.is_decoder or teacher.is_decoder):
        raise ValueError(
            "this recipe compares layers, but student or teacher reads from left to right "
            "(is_decoder): use --recipe=pd, which compares predictions alone"
        )
    if recipe.has_teacher and student.num_hidden_layers > teacher.num_hidden_layers:
        raise ValueError(
            f"the student has {student.num_hidden_layers} layers, more than the "
            f"{teacher.num_hidden_layers} of the teacher: use a smaller --init_checkpoint"
        )


def _compares_widths(recipe: Recipe) -> bool:
    return any(term.values == HIDDEN for term in recipe.terms)
