"""The flags of ablation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.ablations.grids import GRIDS, GridRow, select_rows
from bert_tf.base.command import option, rare_option
from bert_tf.choices import PAIR_LENGTH, RATE
from bert_tf.pretraining.pretraining_options import SharedOptions

# Flags of run_pretraining that rows set.
_OF_ROWS = ("masking", "objective", "replacements")


@dataclass(frozen=True, kw_only=True)
class AblationOptions(SharedOptions):
    """Which rows to pre-train, on which records, and on which tasks to fine-tune them."""

    # The same for all rows.
    do_train: ClassVar[bool] = True
    do_eval: ClassVar[bool] = True
    phases_file: ClassVar[str | None] = None
    absent_flags: ClassVar[Mapping[str, str]] = SharedOptions.absent_flags | {
        "do_train": "all rows are trained, so omit it",
        "do_eval": "all rows are evaluated, so omit it",
        "init_checkpoint": "rows start with random weights, so omit it",
        "num_train_epochs": "use --finetuning_epochs",
        "task": "use --tasks",
    }

    grid: str = option(help="What to compare.", choices=tuple(GRIDS))
    output_dir: str = option(
        help="Folder for the runs and the tables of one or more grids.", role="location"
    )
    rows: str | None = option(
        None,
        "Only these rows, comma-separated; docs/ablations.md lists them. For sizes, any "
        "layers, width and heads, such as L-12_H-768_A-12, or `paper` for all rows of the paper.",
        role="free",
    )
    tasks: str | None = option(
        None,
        "The tasks to fine-tune on, such as mrpc,sst2,ner=conll: values of run_finetuning "
        "--task, each with =FOLDER if its data is not in --data_dir. none: no fine-tuning. "
        "Default: those of the paper.",
        role="free",
    )
    data_dir: str | None = option(
        None,
        "The folder of GLUE with MRPC, SST-2 and so on. Without it, tensorflow-datasets "
        "downloads the data.",
        role="free",
    )
    finetuning_learning_rate: float = option(
        5e-5, "The peak learning rate of fine-tuning; 3e-4 suits tiny.", **RATE
    )
    finetuning_epochs: float = option(3.0, "Epochs of fine-tuning.", at_least=0, at_most=10**6)
    finetuning_max_seq_length: int | None = rare_option(
        None,
        "Tokens per example in fine-tuning. Default: 384 for squad, otherwise 128.",
        **PAIR_LENGTH,
    )
    num_seeds: int = option(
        1,
        "Fine-tune with this many seeds; the table shows mean and deviation.",
        at_least=1,
        at_most=1000,
        role="free",
    )
    lexicon_file: str | None = option(
        None, "For --grid=entities, the phrases that the records were created with."
    )
    preset: str | None = option(
        None, "The size of all rows, for all grids but sizes; see run_pretraining. Default: tiny."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _OF_ROWS:
            if getattr(self, name) and any(name in row.flags for row in GRIDS[self.grid].rows):
                raise ValueError(f"--{name} does not suit --grid={self.grid}: omit it")
        if self.grid == "sizes" and (self.preset or self.bert_config_file):
            raise ValueError("--grid=sizes: choose sizes with --rows, not --preset or a file")
        if (self.grid == "entities") != bool(self.lexicon_file):
            raise ValueError("--grid=entities and --lexicon_file go together: give both or none")
        if self.grid == "steps" and self.num_train_steps % 5:
            raise ValueError(
                f"--num_train_steps={self.num_train_steps}: --grid=steps needs a multiple of 5"
            )
        self.selected_rows  # noqa: B018 - raises an error

    @property
    def folder(self) -> str:
        """The folder of this grid's runs."""
        return f"{self.output_dir.rstrip('/')}/{self.grid}"

    @property
    def selected_rows(self) -> tuple[GridRow, ...]:
        """The rows to run."""
        return select_rows(self.grid, self.rows)

    @property
    def data_dirs(self) -> dict[str, str | None]:
        """The folder of each task's data, by the name that the user gave the task."""
        given = ",".join(GRIDS[self.grid].tasks) if self.tasks is None else self.tasks
        pairs = [part.strip().partition("=") for part in given.split(",")]
        return {
            name: folder or self.data_dir for name, _, folder in pairs if name not in ("", "none")
        }
