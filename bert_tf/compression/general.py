"""General distillation: a student of a pre-trained model, on pre-training records."""

from collections.abc import Sequence

import keras

from bert_tf.base.progress import say
from bert_tf.checkpoint import open_checkpoint
from bert_tf.compression.compression_options import GeneralOptions
from bert_tf.compression.distillation import Distillation, DistillationObjective
from bert_tf.compression.mixed_vocabulary import DualLearner
from bert_tf.compression.outcome import num_parameters
from bert_tf.compression.precomputed import check_same_teacher
from bert_tf.compression.recipes import GENERAL_RECIPES, Loss
from bert_tf.compression.student import check_comparable, initial_student
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.phase_data import PretrainingLearner
from bert_tf.pretraining.pretrain import pretrain
from bert_tf.pretraining.records import masked_lm_prob, name_records
from bert_tf.resolution import check_readable
from bert_tf.runs.run import COMMAND, Run
from bert_tf.session import Session
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, load_weights
from bert_tf.weights.names import part_of


def distill(options: GeneralOptions) -> dict[str, float]:
    """Trains a student of a pre-trained model; resumes the run in output_dir.

    The output folder is that of a pre-training run. The student of a recipe that compares no
    predictions is an encoder without a masked-LM head.

    Returns:
        the metrics of the last evaluation; see `pretrain`, also for what it raises.
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
        learner = GeneralStudent(recipe.loss, teacher, run.path if options.do_train else None)
    else:
        learner = DualLearner(teacher, masked_lm_prob(options, name_records(options)[0]))
    say(f"Recipe {options.recipe}: {recipe.paper}.")
    init = None if resumes else initial_student(options, teacher)
    results = pretrain(options, learner, init)
    before, after = (num_parameters(model) for model in (teacher, open_checkpoint(run.path)))
    say(
        f"The encoders of teacher and student have {before:,} and {after:,} parameters "
        f"({before / after:.2f} times fewer)."
    )
    return results


class GeneralStudent(PretrainingLearner):
    """A student that learns from a pre-trained teacher with the loss of one of `GENERAL_RECIPES`.

    `run_folder` is where the teacher's checksum is kept; None to keep none.
    """

    def __init__(self, loss: Loss, teacher: Checkpoint, run_folder: str | None = None):
        self._loss, self._teacher, self._run_folder = loss, teacher, run_folder
        self._theirs = teacher.spec.config
        self.readers = {teacher.path: teacher.spec}
        if loss.predicts and "masked_lm" not in map(part_of, teacher.tensors):
            raise ValueError(
                f"{teacher.path} has no masked-LM head, whose predictions this recipe compares: "
                "use another --teacher, or --recipe=tinybert, which compares layers alone"
            )

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        source, loss, ours, theirs = self._teacher, self._loss, spec.config, self._theirs
        equal = [*loss.equal, *(["vocab_size"] if loss.predicts else [])]
        check_comparable(ours, theirs, equal, loss.absent)
        if self._run_folder:
            check_same_teacher(self._run_folder, source)
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
