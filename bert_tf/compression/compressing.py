"""From the flags of compress to the student's run folder, and what it is compared with."""

from collections.abc import Mapping, Sequence

import keras

from bert_tf.base.progress import say
from bert_tf.compression import student as students
from bert_tf.compression.compression_options import CompressionOptions, GeneralOptions
from bert_tf.compression.distillation import Distillation, DistillationObjective
from bert_tf.compression.mixed_vocabulary import DualLearner
from bert_tf.compression.pruning import ZeroingLearner, without_heads
from bert_tf.compression.quantized_student import Q8BertLearner, QBertLearner
from bert_tf.compression.recipes import GENERAL_RECIPES, RECIPES, Loss
from bert_tf.compression.run_files import Outcome, num_parameters
from bert_tf.config import EMBEDDING, BertConfig, ModelSpec
from bert_tf.finetuning.evaluating import load_evaluator
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.fine_tuned import in_task_order
from bert_tf.finetuning.preparing import read_features
from bert_tf.finetuning.registry import make_task, task_name, with_length
from bert_tf.finetuning.saved_run import resumed_flags
from bert_tf.finetuning.sweep import sweep
from bert_tf.finetuning.task import Task
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.phase_data import PretrainingLearner
from bert_tf.pretraining.pretrain import pretrain
from bert_tf.pretraining.run_records import masked_lm_prob, name_records
from bert_tf.runs.run import COMMAND, Run
from bert_tf.sessions.session import Session
from bert_tf.training.strategy import make_strategy
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, describe_model, load_weights
from bert_tf.weights.names import part_of
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import check_readable

LEARNERS = {"weights": ZeroingLearner, "q8bert": Q8BertLearner, "qbert": QBertLearner}
"""The learners of recipes that do more than compare a student with its teacher."""
STARTS = {"heads": without_heads, "bilstm": students.word_embeddings}
"""What students start with that are more than layers of BERT."""


def learner_of(recipe: str) -> type[students.StudentLearner]:
    """Returns what trains the students of a recipe on a task."""
    compares = RECIPES[recipe].loss.compares
    return LEARNERS.get(recipe, students.DistillingLearner if compares else students.StudentLearner)


def start_of(options: CompressionOptions, task: Task, teacher: Checkpoint) -> Checkpoint | None:
    """Returns what a student starts with; None for random weights."""
    start = STARTS.get(options.recipe)
    return start(options, task, teacher) if start else students.initial_student(options, teacher)


def compress(options: CompressionOptions) -> dict[str, float]:
    """Trains a student of a fine-tuned model; resumes the run in output_dir.

    The output folder is that of a fine-tuning run, with `compression.json` in addition; see
    `Outcome`. Returns the results of the student; see `fine_tune`, also for what it raises.
    """
    options = options.changed(task=task_name(options.task))
    if "," in options.task:
        raise ValueError(f"--task={options.task}: a student learns one task, so name one")
    recipe, run = RECIPES[options.recipe], Run(options.output_dir)
    learner_type = learner_of(options.recipe)
    teacher = open_checkpoint(options.teacher)
    if not teacher.head:
        raise ValueError(
            f"--teacher={options.teacher} is not a fine-tuned model: give a run folder of "
            "run_finetuning on this task"
        )
    if teacher.head.kind == EMBEDDING:
        raise ValueError(f"{options.teacher} computes vectors: compress needs another head")
    if not options.replace_vocab:
        check_readable(teacher)
    options = with_length(options, teacher.spec.config)
    say(f"Recipe {options.recipe}: {recipe.paper}.")
    task = make_task(options, teacher.head)
    teacher = in_task_order(teacher, task, say)
    options = resumed_flags(options, run)
    if run.finished:
        results = fine_tune(options, learner_type.evaluated_task(task, run.path))
    else:
        learner = learner_type(options, task, teacher, recipe.loss)
        learner.init = None if run.has_checkpoint else start_of(options, task, teacher)
        results = fine_tune(options, learner=learner)
    outcome = Outcome.read(run.path)
    if not outcome:
        outcome = _compare(options, task, teacher, results)
        outcome.write(run.path)
    *lines, last = outcome.describe(task.dev_set)
    for line in lines:
        say(line)
    print(last)
    return results


def compress_all(options: CompressionOptions) -> Mapping[str, float]:
    """Makes the student or the students that the flags ask for; returns the best one's results."""
    name = "bert_tf.compression.compressing:compress"
    return sweep(options, run=name) if options.is_sweep else compress(options)


def _compare(
    options: CompressionOptions, task: Task, teacher: Checkpoint, results: dict[str, float]
) -> Outcome:
    """Compares a finished student with its teacher, whose metric is measured on the dev set."""
    run, dev, metric = Run(options.output_dir), task.dev_splits[0], f"eval_{task.metric}"
    student = open_checkpoint(run.path, any_encoder=True)
    spec = students.known_spec(teacher, run.vocab, run.lower_case)
    splits = read_features(options, task, spec, [dev], lambda line: None)
    session = Session(options, make_strategy(options), run)
    evaluator = load_evaluator(session, task, teacher, splits)
    count = num_parameters(student)
    facts = {"student_bytes": 4 * count}
    facts |= learner_of(options.recipe).facts(options, teacher, student)
    return Outcome(
        recipe=options.recipe,
        teacher=options.teacher,
        teacher_parameters=num_parameters(teacher),
        student_parameters=count,
        metric=metric,
        teacher_value=evaluator.evaluate(dev)[metric],
        student_value=results[metric],
        **facts,
    )


def distill(options: GeneralOptions) -> dict[str, float]:
    """Trains a student of a pre-trained model; resumes the run in output_dir.

    The output folder is that of a pre-training run. The student of a recipe that compares no
    predictions is an encoder without a masked-LM head. Returns the metrics of the last evaluation;
    see `pretrain`, also for what it raises.
    """
    recipe, run = GENERAL_RECIPES[options.recipe], Run(options.output_dir)
    resumes = run.has_checkpoint
    if resumes:
        # Stages are shares of the steps.
        names = ["recipe", "teacher", *(["num_train_steps"] if recipe.loss.last_stage else [])]
        flags = {name: getattr(options, name) for name in names}
        run.check_flags(flags | {COMMAND: options.command})
    teacher = open_checkpoint(options.teacher)
    if not options.replace_vocab:
        check_readable(teacher)
    if recipe.loss.terms:
        learner = GeneralStudent(recipe.loss, teacher)
    else:
        learner = DualLearner(teacher, masked_lm_prob(options, name_records(options)[0]))
    say(f"Recipe {options.recipe}: {recipe.paper}.")
    learner.init = None if resumes else students.initial_student(options, teacher)
    results = pretrain(options, learner)
    before, after = (num_parameters(model) for model in (teacher, open_checkpoint(run.path)))
    say(
        f"The encoders of teacher and student have {before:,} and {after:,} parameters "
        f"({before / after:.2f} times fewer)."
    )
    return results


class GeneralStudent(PretrainingLearner):
    """A student of a pre-trained teacher."""

    def __init__(self, loss: Loss, teacher: Checkpoint):
        self._loss, self._teacher = loss, teacher
        self._theirs = teacher.spec.config
        self.readers = {teacher.path: teacher.spec}
        self.made_from = describe_model("--teacher", teacher)
        if loss.predicts and "masked_lm" not in map(part_of, teacher.tensors):
            raise ValueError(
                f"{teacher.path} has no masked-LM head, whose predictions this recipe compares: "
                "use another --teacher, or --recipe=tinybert, which compares layers alone"
            )

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        source, loss, ours, theirs = self._teacher, self._loss, spec.config, self._theirs
        equal = [*loss.equal, *(["vocab_size"] if loss.predicts else [])]
        students.check_comparable(ours, theirs, equal, loss.absent)
        model_type = BertPretrainer if loss.predicts else BertEncoder
        student, teacher = model_type(ours, session.rematerialize), model_type(theirs)
        load_weights(source.path, source.tensors, teacher.weights, optional_parts=OPTIONAL)
        return Distillation(student, teacher)

    def objective(self, spec: ModelSpec, num_train_steps: int) -> DistillationObjective:
        base = PretrainingObjective(next_sentence=False) if self._loss.predicts else _Nothing()
        return DistillationObjective(base, self._loss, num_train_steps)

    def initial_weights(self, model: Distillation) -> Sequence[keras.Variable]:
        return model.student.weights

    def training_flops(self, config: BertConfig, length: int, predictions: int) -> int:
        predicted = predictions if self._loss.predicts else 0
        ours = super().training_flops(config, length, predicted)
        # The teacher has a forward pass only.
        return ours + super().training_flops(self._theirs, length, predicted) // 3


class _Nothing:
    """The objective of a model that predicts nothing."""

    measures = losses = ()

    def counts(self, batch: dict) -> dict:
        return {}

    def sums(self, model: keras.Model, batch: dict, training: bool) -> dict:
        return {}
