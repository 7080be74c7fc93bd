"""The flags of ablation, and the rows of its grids with what was published about them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from bert_tf.base.choices import PAIR_LENGTH, RATE
from bert_tf.base.command import option, rare_option
from bert_tf.base.published import read_published
from bert_tf.config import Size
from bert_tf.pretraining.pretraining_options import SharedOptions

PERPLEXITY, LM_ACCURACY = "LM perplexity", "LM accuracy"
# Names for --rows that stand for several rows.
PAPER = "paper"


class TaskColumn(NamedTuple):
    """A column of results: its heading, and the task of run_finetuning.

    `metric` is None for the one that chooses the best weights. With `features`, the encoder is
    frozen, and its outputs are the features of a tagger.
    """

    name: str
    task: str
    metric: str | None = None
    features: bool = False

    @property
    def folder(self) -> str:
        return f"{self.task}-features" if self.features else self.task


@dataclass(frozen=True)
class GridRow:
    """A row: how it is pre-trained, and what the paper reports.

    The name is the value of --rows, and the row's folder. `flags` of run_pretraining are set by the
    row; without a `size`, that of the flags holds. Several rows may share the pre-training `run`,
    at the `percent` of its steps. `finetuning` has the flags of run_finetuning that the row sets,
    and an `encoder` has random weights: one of the `size` of --init_checkpoint, or a `bilstm`.
    `beside` names the paper's row, if it is another one, and `published` are its results, in
    percent, by the names of columns.
    """

    name: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    size: Size | None = None
    run: str = ""
    percent: int = 100
    finetuning: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    beside: str = ""
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_decoder(self) -> bool:
        """Whether the encoder attends to the left only."""
        return self.flags.get("masking") == "left_to_right"

    @property
    def labels(self) -> int:
        """How many training examples the row sees; 0 for all."""
        return self.finetuning.get("num_train_examples", 0)


@dataclass(frozen=True)
class Grid:
    """An ablation: what is compared, and where the paper does; its rows, and the paper's tasks.

    `results` are the columns of the pre-training run. The picture has a line for every `run` of
    the rows, over the `axis`, "step" or "labels"; without one, it has no lines.
    """

    title: str
    rows: Sequence[GridRow]
    tasks: Sequence[str] = ()
    results: Sequence[str] = ()
    axis: str = ""


_COLUMNS = {
    "mnli": TaskColumn("MNLI-m", "mnli", "eval_accuracy"),
    "qnli": TaskColumn("QNLI", "qnli", "eval_accuracy"),
    "mrpc": TaskColumn("MRPC", "mrpc", "eval_accuracy"),
    "sst2": TaskColumn("SST-2", "sst2", "eval_accuracy"),
    "squad": TaskColumn("SQuAD F1", "squad", "eval_f1"),
    "ner": TaskColumn("NER F1", "ner", "eval_f1"),
}
_FEATURES = TaskColumn("NER features F1", "ner", "eval_f1", features=True)


def columns(grid: str, task: str) -> tuple[TaskColumn, ...]:
    """Returns the columns of a task; the paper's metrics where it has the task."""
    found = _COLUMNS.get(task, TaskColumn(task, task))
    return (found, _FEATURES) if (grid, task) == ("masking", "ner") else (found,)


def parse_size(name: str) -> Size:
    """Returns the size that a name such as L-2_H-128_A-2 states."""
    match = re.fullmatch(r"L-([1-9]\d*)_H-([1-9]\d*)_A-([1-9]\d*)", name)
    if not match:
        raise ValueError(f"{name} is not a size: write layers, width and heads as L-2_H-128_A-2")
    layers, width, heads = map(int, match.groups())
    return Size(layers, width, num_attention_heads=heads)


def _sized(name: str, **fields: Any) -> GridRow:
    return GridRow(name, size=parse_size(name), **fields)


def _read_grid(name: str, rows: Sequence[dict], columns: Sequence[str] = (), **fields) -> Grid:
    make = _sized if name == "sizes" else GridRow
    found = []
    for row in rows:
        published = dict(zip(columns, row.pop("scores", ()), strict=False))
        found.append(make(**row, published=published))
    return Grid(rows=tuple(found), **fields)


GRIDS = {name: _read_grid(name, **grid) for name, grid in read_published("ablations").items()}
PAPER_SIZES = tuple(_sized(row.beside, published=row.published) for row in GRIDS["sizes"].rows)


def select_rows(grid: str, names: str | None) -> tuple[GridRow, ...]:
    """Returns the rows that --rows names, by default all; the name of a run stands for its rows."""
    rows = GRIDS[grid].rows
    if not names:
        return rows
    if (grid, names) == ("sizes", PAPER):
        return PAPER_SIZES
    known, chosen = rows + (PAPER_SIZES if grid == "sizes" else ()), {}
    for name in map(str.strip, names.split(",")):
        found = [row for row in known if name in (row.name, row.run)]
        if not found and grid != "sizes":
            of_grid = ", ".join(row.name for row in known)
            raise ValueError(f"--rows={name}: the rows of {grid} are {of_grid}")
        chosen |= {row.name: row for row in found or [_sized(name)]}
    return tuple(chosen.values())


@dataclass(frozen=True, kw_only=True)
class AblationOptions(SharedOptions):
    """Which rows to pre-train, on which records, and on which tasks to fine-tune them."""

    input_file: str | None = option(
        None,
        "TFRecord files, comma-separated; globs allowed.",
        instead_of=("grid=layers", "grid=labels"),
    )
    init_checkpoint: str | None = option(
        None,
        "The encoder, as in run_finetuning.",
        needs=("grid=layers or grid=labels",),
        instead_of=("preset", "bert_config_file", "vocab_file", "do_lower_case"),
    )

    # The same for all rows.
    do_train: ClassVar[bool] = True
    do_eval: ClassVar[bool] = True
    phases_file: ClassVar[str | None] = None
    absent_flags: ClassVar[Mapping[str, str]] = SharedOptions.absent_flags | {
        "do_train": "all rows are trained, so omit it",
        "do_eval": "all rows are evaluated, so omit it",
        "num_train_epochs": "docs/ablations.md has the epochs of fine-tuning, so omit it",
        "task": "use --tasks",
    }

    grid: str = option(help="What to compare.", choices=tuple(GRIDS))
    output_dir: str = option(
        help="Folder for the runs and the tables of one or more grids.", role="place"
    )
    rows: str | None = option(
        None,
        "Only these rows, comma-separated; docs/ablations.md lists them. For sizes, any "
        "layers, width and heads, such as L-12_H-768_A-12, or `paper` for all rows of the paper.",
        role="place",
    )
    tasks: str | None = option(
        None,
        "The tasks to fine-tune on, such as mrpc,sst2,ner=conll: values of run_finetuning "
        "--task, each with =FOLDER if its data is not in --data_dir. none: no fine-tuning. "
        "Default: those of the paper.",
        role="place",
    )
    data_dir: str | None = option(
        None,
        "The folder of GLUE with MRPC, SST-2 and so on. Without it, tensorflow-datasets "
        "downloads the data.",
        role="place",
    )
    finetuning_learning_rate: float = option(
        5e-5, "The peak learning rate of fine-tuning; 3e-4 suits tiny.", role="place", **RATE
    )
    finetuning_max_seq_length: int | None = rare_option(
        None,
        "Tokens per example in fine-tuning. Default: 384 for squad, otherwise 128.",
        role="place",
        **PAIR_LENGTH,
    )
    num_seeds: int = option(
        1,
        "Fine-tune with this many seeds; the table shows mean and deviation.",
        at_least=1,
        at_most=1000,
        role="place",
    )
    lexicon_file: str | None = option(
        None, "The phrases that the records were created with.", needs=("grid=entities",)
    )
    preset: str | None = option(
        None,
        "The size of all rows; see run_pretraining. Default: tiny.",
        instead_of=("bert_config_file", "grid=sizes"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        set_by_rows = [name for row in GRIDS[self.grid].rows for name in row.flags]
        if self.grid == "sizes":
            set_by_rows.append("bert_config_file")
        self.refuse(set_by_rows, f"does not suit --grid={self.grid}")
        needed = dict.fromkeys(("layers", "labels"), ["init_checkpoint"])
        needed["entities"] = ["input_file", "lexicon_file"]
        for name in needed.get(self.grid, ["input_file"]):
            if not getattr(self, name):
                raise ValueError(f"--grid={self.grid} needs --{name}")
        if self.grid == "steps" and self.num_train_steps % 5:
            raise ValueError(
                f"--num_train_steps={self.num_train_steps}: --grid=steps needs a multiple of 5"
            )
        select_rows(self.grid, self.rows)  # raises an error

    @property
    def folder(self) -> str:
        """The folder of this grid's runs."""
        return f"{self.output_dir.rstrip('/')}/{self.grid}"
