"""The flags of compress, on a task and on pre-training records."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.base import command
from bert_tf.base.choices import SHARE
from bert_tf.base.command import option, rare_option
from bert_tf.base.command_help import docs
from bert_tf.compression.recipes import GENERAL_RECIPES, RECIPES
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.pretraining.pretraining_options import PretrainingOptions

COMPRESSION = "compression.json"
# The folder of results that take long to compute.
PRECOMPUTED = "precomputed"


@dataclass(frozen=True, kw_only=True)
class StudentOptions(command.Options):
    """What a student starts with, whatever it is trained on."""

    command: ClassVar[str] = "compress"

    student_layers: str | None = option(
        None,
        "The layers that the student starts with, counted from 0, such as 0-5 or 0,2,4. "
        "Default: those of the recipe, or all layers of --init_checkpoint.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy == "multi_worker":
            raise ValueError("--strategy=multi_worker: compress runs on one machine")
        own = self.init_checkpoint or self.is_random
        if self.recipe == "mobilebert":
            own = own or self.student_layers
        if not (own or RECIPES[self.recipe].has_default):
            raise ValueError(
                f"--recipe={self.recipe} has no default student: give --init_checkpoint, or "
                f"--bert_config_file or --preset ({docs('compression')})"
            )
        if self.student_layers and self.is_random:
            raise ValueError(
                "--student_layers has no effect on a student with random weights: omit it, or "
                "omit --preset and --bert_config_file"
            )

    @property
    def is_random(self) -> bool:
        """Whether the student starts with random weights."""
        return not self.init_checkpoint and bool(self.preset or self.bert_config_file)


@dataclass(frozen=True, kw_only=True)
class CompressionOptions(StudentOptions, FineTuningOptions):
    """Which model to compress, how, and on which task; the other flags are those of fine-tuning."""

    absent_flags: ClassVar[Mapping[str, str]] = FineTuningOptions.absent_flags | {
        "teacher_model": "use --teacher",
        "student_model": "use --init_checkpoint",
    }
    changes_examples: ClassVar[bool] = True
    result_files: ClassVar[tuple[str, ...]] = (*FineTuningOptions.result_files, COMPRESSION)
    early_files: ClassVar[tuple[str, ...]] = (PRECOMPUTED,)

    recipe: str = option(
        help="The method, such as pkd6 or tinybert; --helpfull describes all of them.",
        choices=tuple(RECIPES),
    )
    teacher: str = option(
        help="The model to compress: a run folder of run_finetuning on the same task, or a "
        "fine-tuned model of another program."
    )
    sparsity: float | None = option(
        None,
        "Share of the attention heads to remove, or of the weights to set to zero. Default: 0.4.",
        **SHARE,
        needs=("recipe=heads or recipe=weights",),
    )
    init_checkpoint: str | None = option(
        None,
        "The student's initial encoder; bilstm takes its word embeddings. It must read the "
        "teacher's vocabulary, except with recipes that compare only predictions (pd, minibert, "
        "bilstm) or do not use the teacher in training (layers, weights, q8bert, albert, "
        "mixed-vocabulary). Default: the teacher; the student then also starts with its head.",
        role="place",
    )
    augment: int = rare_option(
        0,
        "Add this many copies of every training text or pair, in which --masked_lm replaces "
        "words; the teacher labels them. 20 in the papers of tinybert and bilstm.",
        at_least=0,
        at_most=1000,
        needs=("masked_lm",),
    )
    masked_lm: str | None = rare_option(
        None,
        "A run of run_pretraining, or another masked LM with its head. It replaces words that "
        "are a single token.",
        needs=("augment",),
    )
    glove_file: str | None = rare_option(
        None,
        "Word vectors in GloVe's format, such as glove.6B.300d.txt, to replace words of several "
        "tokens, too. All vectors stay in memory: 0.6 GB for this file.",
        needs=("augment",),
    )
    bits: str | None = rare_option(
        None,
        "The bits of a layer's weights, from 2 to 8: such as 4, or 2/3 (the default), which gives "
        "3 to the more sensitive half of the layers.",
        needs=("recipe=qbert",),
    )
    do_train: bool = rare_option(True, "Train the student; always on.", role="place")
    do_eval: bool = rare_option(
        True,
        "Evaluate the best weights on the dev set and on a test set with answers.",
        role="place",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.do_train:
            raise ValueError(
                "--nodo_train: to evaluate a student, use run_finetuning --do_eval with its folder "
                "as --output_dir"
            )
        if self.bits and not re.fullmatch(r"[2-8](/[2-8])?", self.bits):
            raise ValueError(f"--bits={self.bits}: give a number from 2 to 8, or two such as 2/3")
        recipe = RECIPES[self.recipe]
        unsuited = {"feature_based", "lora_rank", *recipe.unsuited}
        if recipe.loss.compares:
            unsuited |= {"class_weights", "freeze_encoder", "num_train_examples"}
        if recipe.loss.last_stage:
            unsuited.add("early_stopping")  # it would end the run before the last stage
        if not recipe.loss.terms:
            unsuited.add("augment")  # without a teacher, copies have no labels
        self.refuse(sorted(unsuited), f"does not suit --recipe={self.recipe}")

    @property
    def layer_bits(self) -> tuple[int, ...]:
        """The numbers in --bits, the smaller one first."""
        return tuple(sorted(set(map(int, self.bits.split("/"))))) if self.bits else ()

    def num_train_steps(self, num_examples: int) -> int:
        """Returns the number of steps; with 0 epochs, `layers` and `heads` train nothing."""
        if self.num_train_epochs == 0 and self.recipe in ("layers", "heads"):
            return 0
        return super().num_train_steps(num_examples)

    @property
    def pruned_share(self) -> float:
        """The share of heads or weights that a recipe removes."""
        return 0.4 if self.sparsity is None else self.sparsity


@dataclass(frozen=True, kw_only=True)
class GeneralOptions(StudentOptions, PretrainingOptions):
    """Which pre-trained model to compress, how, and on which records."""

    absent_flags: ClassVar[Mapping[str, str]] = PretrainingOptions.absent_flags | {
        "task": "a student learns on a task, with --task, or on records, with --input_file: omit "
        "one of them"
    }

    recipe: str = option(
        help="The method: distilbert, tinybert, mobilebert or mixed-vocabulary. With --task, there "
        "are more.",
        choices=tuple(GENERAL_RECIPES),
    )
    teacher: str = option(
        help="The model to compress: a run folder of run_pretraining, or a checkpoint of "
        "another program."
    )
    init_checkpoint: str | None = option(
        None,
        "The student's initial model. It must read the teacher's vocabulary, except with "
        "mixed-vocabulary, which has no default. Default: the teacher.",
    )
    do_train: bool = rare_option(True, "Train the student.")
    do_eval: bool = rare_option(
        True, "Evaluate at every checkpoint, and write eval_results.txt to --output_dir."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in (None, "mlm"):
            raise ValueError(f"--objective={self.objective}: students learn masked tokens: omit it")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(command.Options):
    """Which students to compare."""

    report: str = option(
        help="Folder with run folders of compress, at any depth. The command measures the speed "
        "of all students and their teachers, and writes compression.md and compression.png there."
    )
    overwrite: bool = option(False, "Replace an existing compression.md and compression.png.")
