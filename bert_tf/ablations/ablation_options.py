"""The flags of ablation, and the rows of its grids with the results that were published for them.

Sources: BERT (arXiv:1810.04805v2) tables 5 to 8 and figure 5; ERNIE: Enhanced Representation
through Knowledge Integration (arXiv:1904.09223) section 3.2. Scores are of dev sets, in percent.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from bert_tf.base.choices import FEATURES, PAIR_LENGTH, RATE
from bert_tf.base.command import option, rare_option
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
    row; without a `size`, that of the flags holds. The encoder of a decoder attends to the left
    only. Several rows may share the pre-training `run`, at the `percent` of its steps. A tagger
    reads the `features` of a frozen encoder; without them, the encoder is fine-tuned. `beside` is
    the paper's row, if it is another one, and `published` its results, by the names of columns.
    """

    name: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    size: Size | None = None
    is_decoder: bool = False
    run: str = ""
    percent: int = 100
    features: str = ""
    beside: "GridRow | None" = None
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """An ablation: what is compared, and where the paper does; its rows, and the paper's tasks.

    `results` are the columns of the pre-training run.
    """

    title: str
    rows: tuple[GridRow, ...]
    tasks: tuple[str, ...]
    results: tuple[str, ...] = ()


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


def _published(names: str, scores: Sequence[float]) -> dict[str, float]:
    return dict(zip(names.split(", "), scores, strict=True))


def _sized(name: str, scores: Sequence[float] = ()) -> GridRow:
    published = _published(f"{PERPLEXITY}, MNLI-m, MRPC, SST-2", scores) if scores else {}
    return GridRow(name, size=parse_size(name), published=published)


# Table 6.
PAPER_SIZES = (
    _sized("L-3_H-768_A-12", (5.84, 77.9, 79.8, 88.4)),
    _sized("L-6_H-768_A-3", (5.24, 80.6, 82.2, 90.7)),
    _sized("L-6_H-768_A-12", (4.68, 81.9, 84.8, 91.3)),
    _sized("L-12_H-768_A-12", (3.99, 84.4, 86.7, 92.9)),
    _sized("L-12_H-1024_A-16", (3.54, 85.7, 86.9, 93.3)),
    _sized("L-24_H-1024_A-16", (3.23, 86.6, 87.8, 93.7)),
)
# A third of the layers and about a sixth of the width.
_SMALL = "L-1_H-128_A-2 L-2_H-128_A-1 L-2_H-128_A-2 L-4_H-128_A-2 L-4_H-192_A-3 L-8_H-192_A-3"
_SMALL_SIZES = tuple(
    dataclasses.replace(row, name=name, size=parse_size(name), beside=row)
    for row, name in zip(PAPER_SIZES, _SMALL.split(), strict=True)
)
_LEFT_TO_RIGHT = {"masking": "left_to_right", "objective": "mlm"}


def _objective(name: str, flags: Mapping[str, str], *scores: float, is_decoder=False) -> GridRow:
    published = _published("MNLI-m, QNLI, MRPC, SST-2, SQuAD F1", scores)
    return GridRow(name, flags, is_decoder=is_decoder, published=published)


def _masked(mask: int, same: int, random: int, *scores: float) -> GridRow:
    flags = {"replacements": f"{mask},{same},{random}"}
    published = _published("MNLI-m, NER F1, NER features F1", scores)
    return GridRow(f"{mask}-{same}-{random}", flags, published=published)


# Table 7. `sum_last_four` is not in it.
_FEATURE_SCORES = dict(zip(FEATURES, (91.0, 94.9, 95.6, None, 96.1, 95.9, 95.5), strict=True))

GRIDS = {
    "sizes": Grid(
        "Layers, width and heads; table 6 of BERT",
        _SMALL_SIZES,
        ("mnli", "mrpc", "sst2"),
        (PERPLEXITY, LM_ACCURACY),
    ),
    "tasks": Grid(
        "Pre-training tasks; table 5 of BERT",
        (
            _objective("bert", {}, 84.4, 88.4, 86.7, 92.7, 88.5),
            _objective("no-nsp", {"objective": "mlm"}, 83.9, 84.9, 86.5, 92.6, 87.9),
            _objective("ltr", _LEFT_TO_RIGHT, 82.1, 84.3, 77.5, 92.1, 77.8, is_decoder=True),
        ),
        ("mnli", "qnli", "mrpc", "sst2", "squad"),
    ),
    "steps": Grid(
        "Pre-training steps; figure 5 of BERT: from 500,000 to 1,000,000 steps, base gains almost "
        "1.0 on MNLI-m",
        tuple(
            GridRow(f"{run}-{percent}", flags, is_decoder=bool(flags), run=run, percent=percent)
            for run, flags in (("mlm", {}), ("ltr", _LEFT_TO_RIGHT))
            for percent in (20, 40, 60, 80, 100)
        ),
        ("mnli",),
    ),
    "masking": Grid(
        "Tokens to predict that become [MASK], stay, become random, in percent; table 8 of BERT",
        (
            _masked(80, 10, 10, 84.2, 95.4, 94.9),
            _masked(100, 0, 0, 84.3, 94.9, 94.0),
            _masked(80, 0, 20, 84.1, 95.2, 94.6),
            _masked(80, 20, 0, 84.4, 95.2, 94.7),
            _masked(0, 20, 80, 83.7, 94.8, 94.6),
            _masked(0, 0, 100, 83.6, 94.9, 94.6),
        ),
        ("mnli", "ner"),
    ),
    "rates": Grid(
        "Tokens masked in training, in percent; tested at 15",
        tuple(
            GridRow(str(rate), {"masked_lm_prob": rate / 100, "eval_masked_lm_prob": 0.15})
            for rate in (5, 15, 30, 50)
        ),
        (),
        (PERPLEXITY, LM_ACCURACY),
    ),
    "layers": Grid(
        "Outputs of one frozen encoder that a tagger reads; table 7 of BERT (base)",
        (
            GridRow("fine-tuned", published={"NER F1": 96.4}),
            *(
                GridRow(name, features=name, published={"NER F1": score} if score else {})
                for name, score in _FEATURE_SCORES.items()
            ),
        ),
        ("ner",),
    ),
    "entities": Grid(
        "Masking of single tokens or of whole words and phrases, as in ERNIE",
        (
            GridRow("wordpiece", {"masking": "wordpiece"}),
            GridRow("entity", {"masking": "whole_word"}),
        ),
        (),
        ("entity_accuracy", "token_accuracy"),
    ),
}


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
        None, "TFRecord files, comma-separated; globs allowed. For all grids but layers."
    )
    init_checkpoint: str | None = option(
        None, "For --grid=layers, the encoder, as in run_finetuning."
    )

    # The same for all rows.
    do_train: ClassVar[bool] = True
    do_eval: ClassVar[bool] = True
    phases_file: ClassVar[str | None] = None
    absent_flags: ClassVar[Mapping[str, str]] = SharedOptions.absent_flags | {
        "do_train": "all rows are trained, so omit it",
        "do_eval": "all rows are evaluated, so omit it",
        "num_train_epochs": "use --finetuning_epochs",
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
    finetuning_epochs: float = option(
        3.0, "Epochs of fine-tuning.", at_least=0, at_most=10**6, role="place"
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
        None, "For --grid=entities, the phrases that the records were created with."
    )
    preset: str | None = option(
        None, "The size of all rows, for all grids but sizes; see run_pretraining. Default: tiny."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        set_by_rows = [name for row in GRIDS[self.grid].rows for name in row.flags]
        self.refuse(set_by_rows, f"does not suit --grid={self.grid}")
        if self.grid == "sizes" and (self.preset or self.bert_config_file):
            raise ValueError("--grid=sizes: choose sizes with --rows, not --preset or a file")
        for grid, name in (("entities", "lexicon_file"), ("layers", "init_checkpoint")):
            if (self.grid == grid) != bool(getattr(self, name)):
                raise ValueError(f"--grid={grid} and --{name} go together: give both or none")
        if (self.grid == "layers") == bool(self.input_file):
            raise ValueError(f"--grid={self.grid}: all grids but layers need --input_file")
        if self.grid == "steps" and self.num_train_steps % 5:
            raise ValueError(
                f"--num_train_steps={self.num_train_steps}: --grid=steps needs a multiple of 5"
            )
        select_rows(self.grid, self.rows)  # raises an error

    @property
    def folder(self) -> str:
        """The folder of this grid's runs."""
        return f"{self.output_dir.rstrip('/')}/{self.grid}"
