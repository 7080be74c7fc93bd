"""The student: the weights that it starts with, and the task that it learns with its teacher."""

import dataclasses
import hashlib
from collections.abc import Collection, Sequence, Sized
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.progress import counted, say, with_progress
from bert_tf.compression.augmentation import Augmentation
from bert_tf.compression.compression_options import CompressionOptions, StudentOptions
from bert_tf.compression.distillation import TEACHER, Distillation, DistillationObjective
from bert_tf.compression.recipes import HIDDEN, RECIPES, Loss
from bert_tf.compression.run_files import computed_once
from bert_tf.config import BertConfig, BiLSTMConfig, ModelSpec
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.fine_tuned import load_task_model
from bert_tf.finetuning.preparing import model_spec, read_features
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.task_learner import TaskLearner
from bert_tf.finetuning.tokenizing import Features
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.models.lstms import BiLSTMEncoder
from bert_tf.runs.run import Run
from bert_tf.sessions.session import Session, open_init_checkpoint
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.trainer import Objective, Trainer
from bert_tf.weights.checkpoint import Checkpoint, describe_model, fingerprint
from bert_tf.weights.reshaping import keep_layers, parse_layers
from tfrecords.vocabulary import Vocabulary


def initial_student(options: StudentOptions, teacher: Checkpoint) -> Checkpoint | None:
    """Returns what the student starts with; None for random weights."""
    if options.is_random:
        return None
    given = open_init_checkpoint(options)
    source = given or teacher
    count = source.spec.config.num_hidden_layers
    if options.student_layers:
        return keep_layers(source, parse_layers(options.student_layers, count, "student_layers"))
    kept = RECIPES[options.recipe].layers(count)
    return given or (source if len(kept) == count else keep_layers(source, kept))


def word_embeddings(options: CompressionOptions, task: Task, teacher: Checkpoint) -> Checkpoint:
    """Returns the word embeddings of an encoder, as the start of a BiLSTM."""
    kind = task.head.kind
    if kind == "span":
        raise ValueError(f"--task={task.name}: a BiLSTM cannot find answers: use another --recipe")
    source = open_init_checkpoint(options) or teacher
    spec = source.spec
    words = source.tensors["encoder/embeddings/word_embeddings"]
    pairs = kind == "multiple_choice" or getattr(task, "pairs", False)
    config = BiLSTMConfig(
        spec.config.vocab_size,
        max_position_embeddings=spec.config.max_position_embeddings,
        embedding_size=words.shape[1],
        bilstm="siamese" if pairs else "single",
    )
    spec = ModelSpec(config, spec.vocab, spec.lower_case)
    tensors = {"encoder/word_embeddings": words}
    return dataclasses.replace(source, spec=spec, tensors=tensors, head=None, config_file=None)


def known_spec(teacher: Checkpoint, vocab: Vocabulary, lower_case: bool) -> ModelSpec:
    """Returns the inputs of a teacher, which its student also reads unless it says otherwise."""
    spec = teacher.spec
    casing = lower_case if spec.lower_case is None else spec.lower_case
    return ModelSpec(spec.config, spec.vocab or vocab, casing)


def training_features(options: CompressionOptions, task: Task, model: Checkpoint) -> Features:
    """Returns the training examples in the tokens of a model."""
    session = Session(options, tf.distribute.get_strategy(), Run(options.output_dir), model)
    return read_features(options, task, model_spec(session), [TRAIN], lambda line: None)[TRAIN]


def teacher_predictions(task: Task, teacher: Checkpoint, features: Features) -> np.ndarray:
    """Returns a teacher's logits [N, C] or numbers [N], computed on the first GPU or the CPU."""
    say(f"The teacher predicts {counted(len(features), 'training example')}.")
    gpus = tf.config.list_logical_devices("GPU")
    strategy = tf.distribute.OneDeviceStrategy(gpus[0].name if gpus else "/cpu:0")
    with strategy.scope():
        model = load_task_model(task, teacher)
    if not gpus:
        skip_padding(model)
    trainer = Trainer(strategy, model, task.objective)
    batches = eval_batches(features, 32)
    batches = with_progress(batches, "Predicting", total=len(batches))
    (predictions,) = trainer.predict(batches).values()
    return predictions


class StudentLearner(TaskLearner):
    """Trains a task that a student learns from the labels alone; its teacher learned it before."""

    def __init__(self, options: CompressionOptions, task: Task, teacher: Checkpoint, loss: Loss):
        super().__init__(task)
        self._options, self._teacher, self._loss = options, teacher, loss

    @staticmethod
    def evaluated_task(task: Task, folder: str) -> Task:
        """Returns the task with the model of the finished student in a folder."""
        return task

    @staticmethod
    def facts(
        options: CompressionOptions, teacher: Checkpoint, student: Checkpoint
    ) -> dict[str, Any]:
        """Returns what the `Outcome` of a finished student says in addition."""
        return {}

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        if RECIPES[self._options.recipe].shares_layers and not spec.config.num_hidden_groups:
            raise ValueError(
                "--recipe=albert is for students whose layers share their weights, but this one is "
                "a BERT: give an ALBERT as --init_checkpoint, --preset or --bert_config_file"
            )
        return super().build_model(session, spec)

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        if isinstance(model.encoder, BiLSTMEncoder):
            return [model.encoder.word_embeddings]
        head = [] if self._options.init_checkpoint else model.head.weights
        return model.encoder.weights + head


class DistillingLearner(StudentLearner):
    """Trains a task that a student learns from its teacher.

    If only predictions for whole examples are compared, the teacher makes them once, before
    training. A resumed run reads them from its folder. The teacher then need not read the student's
    vocabulary: each model reads the same text with its own tokenizer.
    """

    def __init__(self, options: CompressionOptions, task: Task, teacher: Checkpoint, loss: Loss):
        super().__init__(options, task, teacher, loss)
        self.task = task.changed(read_splits=self._read_splits, featurize=self._featurize)
        self.made_from = describe_model("--teacher", teacher)
        self._task = task
        compares_layers = loss.reads or loss.replaces
        per_example = task.head.kind in ("classifier", "multiple_choice")
        self._predicts_once = per_example and not compares_layers
        self._augmentation = Augmentation.of(options, teacher)
        self._train: Any = None

    def objective(self, spec: ModelSpec, num_train_steps: int) -> Objective:
        return DistillationObjective(self.task.objective, self._loss, num_train_steps)

    def _read_splits(self, names: Collection[str], files: DataFiles) -> dict[str, Sized]:
        splits = self._task.read_splits(names, files)
        if self._augmentation and TRAIN in splits:
            if not isinstance(splits[TRAIN], TextExamples):
                raise ValueError(
                    f"--augment copies texts and pairs of texts, not the examples of "
                    f"--task={self.task.name}: omit it"
                )
            splits[TRAIN] = self._augmentation(splits[TRAIN])
        self._train = splits.get(TRAIN, self._train)
        return splits

    def _featurize(
        self, examples: Any, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """See `Task.featurize`; adds the teacher's predictions to the training examples."""
        # In what is not known of it, the teacher's tokenizer is the student's.
        spec, theirs = known_spec(self._teacher, tokenizer.vocab, tokenizer.lower_case), tokenizer
        if (spec.vocab.sha256, spec.lower_case) != (tokenizer.vocab.sha256, tokenizer.lower_case):
            theirs = make_tokenizer(spec.vocab, spec.lower_case)
        if theirs != tokenizer and not self._predicts_once:
            raise ValueError(
                f"the student's vocabulary ({len(tokenizer.vocab):,} tokens) or casing is not that "
                f"of the teacher, {self._teacher.path}: give "
                f"--vocab_file={self._teacher.vocab_file} or another --init_checkpoint, or use "
                "--recipe=pd, which compares predictions for whole texts"
            )
        trains = examples is self._train
        if trains and self._augmentation and self._augmentation.changes.masked:
            theirs, tokenizer = (
                make_tokenizer(x.vocab, x.lower_case, special_tokens_in_text=True)
                for x in (theirs, tokenizer)
            )
        features = read = self._task.featurize(examples, tokenizer, max_seq_length)
        if not (trains and self._predicts_once):
            return features
        if theirs != tokenizer:
            read = self._task.featurize(examples, theirs, max_seq_length)
        tokens = [read.ids.to_tensor(-1), read.types.to_tensor(-1)]
        digests = [hashlib.sha256(values.numpy().tobytes()).hexdigest() for values in tokens]
        precision = keras.config.dtype_policy().name
        found = computed_once(
            self._options.output_dir,
            "predictions",
            (fingerprint(self._teacher), self.task.head, precision, digests),
            lambda: {"values": teacher_predictions(self.task, self._teacher, read)},
        )
        targets = {**features.targets, TEACHER: found["values"]}
        return dataclasses.replace(features, targets=targets)

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        loss = self._loss
        check_comparable(spec.config, self._teacher.spec.config, loss.equal, loss.absent)
        student = super().build_model(session, spec)
        teacher = None if self._predicts_once else load_task_model(self.task, self._teacher)
        return Distillation(student, teacher, projects=HIDDEN in loss.reads)

    def first_best_step(self, num_train_steps: int) -> int:
        """See `Learner.first_best_step`; the last stage of the recipe must have begun."""
        return min(num_train_steps, int(self._loss.last_stage * num_train_steps) + 1)


def check_comparable(
    student: BertConfig, teacher: BertConfig, equal: Sequence[str], absent: Sequence[str]
) -> None:
    """Raises a ValueError if a recipe cannot compare two models.

    `equal` are the values that must be the same in both, and `absent` those that neither may have.
    """

    def values(name: str) -> tuple[Any, Any]:
        return getattr(student, name, None), getattr(teacher, name, None)

    wrong = [name for name in equal if len({*values(name)}) == 2]
    wrong += [name for name in absent if any(values(name))]
    if student.num_hidden_layers > teacher.num_hidden_layers:
        wrong.append("num_hidden_layers")
    if wrong:
        ours, theirs = values(wrong[0])
        raise ValueError(
            f"this recipe cannot compare student and teacher, whose {wrong[0]} are {ours} and "
            f"{theirs}: use another --init_checkpoint, --preset or --bert_config_file, or, on a "
            "task, --recipe=pd, which compares predictions alone"
        )
