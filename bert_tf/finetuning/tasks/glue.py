"""The tasks of GLUE: their official files, TSV without quoting, and those for its server."""

import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from bert_tf.base.content import read_text
from bert_tf.base.files import read_file
from bert_tf.base.output_files import atomic_write, check_output_files
from bert_tf.base.progress import counted, say
from bert_tf.config import EMBEDDING, Head
from bert_tf.finetuning.examples import OWN_TABLE, TextExamples, TfdsSource, find_file
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.task import Outputs
from bert_tf.finetuning.tasks import embedding
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.text_task import RegressionTask
from bert_tf.runs.run import Run
from bert_tf.tables.memory import TableInMemory
from bert_tf.tables.rows import not_empty
from bert_tf.tables.table import Table, as_number

_LABELLED = ("train", "dev", "dev_mismatched")


@dataclass(frozen=True, kw_only=True)
class GlueFiles:
    """The layout of the files of a task in its `folder` of the official archive.

    `text_a`, `text_b` and `label` name the columns, as does `index`, which numbers the examples, in
    files that have it. `labels` are the classes as written in the files, in the order of
    `ClassificationTask.labels`; () if the labels are numbers, which have `limits` by the definition
    of the task. `names` are the possible names of a split's file, where it is not `<split>.tsv`;
    with "/" for a file in a folder beside `folder`. Only some files of CoLA have no header:
    `header`. With `skips_short_lines`, lines of labelled files without some of the columns are
    skipped and counted.
    """

    folder: str
    text_a: str
    text_b: str | None = None
    label: str = "label"
    labels: tuple[str, ...] = ()
    limits: tuple[float, float] = (-np.inf, np.inf)
    index: str = "index"
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    skips_short_lines: bool = False

    def read(self, data_dir: str, split: str) -> TextExamples:
        """Reads the examples of a split; `data_dir` is the folder of the files, or its parent."""
        return self.read_file(self.find(data_dir, split), split)

    def read_file(self, path: str, split: str) -> TextExamples:
        """Reads a file; only those of test sets may lack labels, or have -1 in their place."""
        labelled = split in _LABELLED
        if isinstance(path, TableInMemory):
            raise ValueError(f"--task={self.folder} reads TSV files, not data in memory{OWN_TABLE}")
        table, notes = self._read_table(path, labelled)
        labelled = labelled or not {*table.columns.get(self.label, [])} <= {b"", b"-1", b"-1.0"}
        ids = None
        if self.index in table.columns:
            ids = [value.decode(errors="replace") for value in table.columns[self.index]]
            if repeated := len(ids) - len(set(ids)):
                notes.append(f"{repeated:,} with a repeated {self.index}")
        texts_a, texts_b = (name and table.columns[name] for name in (self.text_a, self.text_b))
        targets = self._targets(table) if labelled else {}
        return TextExamples(texts_a, texts_b, targets, ids, tuple(notes))

    def _read_table(self, path: str, labelled: bool) -> tuple[Table, list[str]]:
        """Reads the lines that have all of the columns; returns notes on the others, too."""
        text = not_empty(path, read_text(path))
        # The csv module and splitlines also split at a lone carriage return, which is text.
        lines = [line.rstrip(b"\r").split(b"\t") for line in text.split(b"\n")]
        header = [name.decode(errors="replace") for name in lines[0]]
        first = 0 if len(header) == len(self.header) and self.text_a not in header else 1
        header = header if first else [*self.header]
        columns = [name for name in (self.text_a, self.text_b) if name]
        if labelled:
            columns.append(self.label)
        for column in columns:
            Table(path, [], dict.fromkeys(header, [])).column(column, OWN_TABLE)
        names = [*columns, self.label, self.index]
        places = {name: header.index(name) for name in names if name in header}
        rows, short, long = [], 0, []
        for number, fields in enumerate(lines[first:], first + 1):
            if not b"".join(fields).strip():
                continue
            if len(fields) > len(header):
                long.append(number)
            if len(fields) > max(places.values()):
                rows.append((number, fields))
            elif self.skips_short_lines and labelled:
                short += 1
            else:
                raise ValueError(
                    f"{path}, line {number}: {counted(len(fields), 'column')}, but there must be "
                    f"{len(header)}"
                )
        notes = [f"skipped lines that lack columns: {short:,}"] if short else []
        if long:
            notes.append(
                f"lines with too many columns, whose extra columns are ignored: {len(long):,}, the "
                f"first is line {long[0]:,}"
            )
        cells = {name: [fields[place] for _, fields in rows] for name, place in places.items()}
        return Table(path, [number for number, _ in rows], cells), notes

    def find(self, data_dir: str, split: str) -> str:
        """Returns the path of a split's file."""
        names = self.names.get(split, (f"{split}.tsv",))
        names = [*names, *(f"{self.folder}/{name}" for name in names if "/" not in name)]
        if split == _AX:
            advice = "save the diagnostic test set, a file of its own at gluebenchmark.com, there"
            return find_file(data_dir, *names, advice=advice)
        return find_file(data_dir, *names)

    def _targets(self, table: Table) -> dict[str, np.ndarray]:
        targets = []
        for row, label in enumerate(table.columns[self.label]):
            try:
                targets.append(self.target(label.decode(errors="replace")))
            except ValueError as error:
                raise ValueError(f"{table.at(row)}: {self.label} {error}") from None
        if self.labels:
            return {"labels": np.array(targets, np.int32)}
        low, high = self.limits
        if outside := [row for row, value in enumerate(targets) if not low <= value <= high]:
            say(
                f"WARNING: {table.path}: {len(outside):,} of {len(targets):,} values of "
                f"{self.label} are not from {low} to {high}, the first in line "
                f"{table.lines[outside[0]]}. They stay as they are."
            )
        return {"values": np.array(targets, np.float32)}

    def submitted(self, outputs: Outputs) -> list[str]:
        """Returns predictions as the server expects them, like the labels in the files."""
        if self.labels:
            return [self.labels[label] for label in outputs["logits"].argmax(axis=-1)]
        return [f"{value:.3f}" for value in np.clip(outputs["values"], *self.limits)]

    def target(self, label: str) -> int | float:
        """Returns the index of a class, or the number, that is written in the files as `label`."""
        if not self.labels:
            if not np.isfinite(number := as_number(label)):
                raise ValueError(f"{label!r} is not a number")
            return number
        if label not in self.labels:
            raise ValueError(f"{label!r} is not one of {', '.join(self.labels)}")
        return self.labels.index(label)


# The split of GLUE's diagnostic test set, which belongs to MNLI.
_AX = "ax"
# The files of a submission, with the number of examples of each test set.
SUBMISSION = {
    "CoLA.tsv": 1_063,
    "SST-2.tsv": 1_821,
    "MRPC.tsv": 1_725,
    "STS-B.tsv": 1_379,
    "QQP.tsv": 390_965,
    "MNLI-m.tsv": 9_796,
    "MNLI-mm.tsv": 9_847,
    "QNLI.tsv": 5_463,
    "RTE.tsv": 3_000,
    "WNLI.tsv": 146,
    "AX.tsv": 1_104,
}


def _options(files: GlueFiles, **tfds) -> dict:
    """Returns what the name of the official folder, such as "SST-2", determines."""
    name = files.folder.replace("-", "").lower()
    source = TfdsSource(f"glue/{name}", **{"text_a": files.text_a, "text_b": files.text_b} | tfds)
    return dict(
        name=name,
        read_file=files.read_file,
        read_files=files.read,
        tfds=source,
        pairs=files.text_b is not None,
        submissions={"test": f"{files.folder}.tsv"},
        submitted=files.submitted,
    )


_BINARY = ("0", "1")
_SENTENCES = dict(text_a="sentence1", text_b="sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_AX_FILES = tuple(
    f"{folder}{name}"
    for folder in ("", "AX/", "../AX/", "diagnostic/", "../diagnostic/")
    for name in ("diagnostic.tsv", "AX.tsv")
)

_COLA = GlueFiles(
    folder="CoLA",
    text_a="sentence",
    labels=_BINARY,
    header=("source", "label", "original_label", "sentence"),
)
_SST2 = GlueFiles(folder="SST-2", text_a="sentence", labels=_BINARY)
_MRPC = GlueFiles(
    folder="MRPC", text_a="#1 String", text_b="#2 String", label="Quality", labels=_BINARY
)
_STSB = GlueFiles(folder="STS-B", **_SENTENCES, label="score", limits=(0, 5))
_QQP = GlueFiles(
    folder="QQP",
    text_a="question1",
    text_b="question2",
    label="is_duplicate",
    labels=_BINARY,
    index="id",
    skips_short_lines=True,
)
_MNLI = GlueFiles(
    folder="MNLI",
    **_SENTENCES,
    label="gold_label",
    labels=_NLI,
    names={"dev": ("dev_matched.tsv",), "test": ("test_matched.tsv",), _AX: _AX_FILES},
)
_QNLI = GlueFiles(folder="QNLI", text_a="question", text_b="sentence", labels=_ENTAILMENT)
_RTE = GlueFiles(folder="RTE", **_SENTENCES, labels=_ENTAILMENT)
_WNLI = GlueFiles(folder="WNLI", **_SENTENCES, labels=_BINARY)

_FILES = (_COLA, _SST2, _MRPC, _STSB, _QQP, _QNLI, _RTE, _WNLI)
# The official files whose labels the server takes, by the name of its file.
_OFFICIAL = {f"{files.folder}.tsv": files for files in _FILES} | dict.fromkeys(
    ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"), _MNLI
)

_MNLI_SPLITS = {
    "dev": "validation_matched",
    "dev_mismatched": "validation_mismatched",
    "test": "test_matched",
    "test_mismatched": "test_mismatched",
    _AX: "glue/ax:test",
}
_MNLI_OPTIONS = _options(_MNLI, text_a="premise", text_b="hypothesis", splits=_MNLI_SPLITS) | dict(
    dev_splits=("dev", "dev_mismatched"),
    test_splits=("test", "test_mismatched", _AX),
    # It is not in the archive of MNLI.
    optional_splits=(_AX,),
    submissions={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", _AX: "AX.tsv"},
)

# The metric is the one in table 1 of the BERT paper.
TASKS = (
    ClassificationTask(**_options(_COLA), labels=("unacceptable", "acceptable"), metric="matthews"),
    ClassificationTask(**_options(_SST2), labels=("negative", "positive")),
    ClassificationTask(
        **_options(_MRPC, **_SENTENCES), labels=("not_equivalent", "equivalent"), metric="f1"
    ),
    RegressionTask(**_options(_STSB)),
    ClassificationTask(**_options(_QQP), labels=("not_duplicate", "duplicate"), metric="f1"),
    ClassificationTask(**_MNLI_OPTIONS, labels=_NLI),
    ClassificationTask(**_options(_QNLI), labels=_ENTAILMENT),
    ClassificationTask(**_options(_RTE), labels=_ENTAILMENT),
    ClassificationTask(**_options(_WNLI), labels=("not_entailment", "entailment")),
)


def make_similarity(options: FineTuningOptions, head: Head | None) -> embedding.SimilarityTask:
    """Returns STS-B as the task of vectors whose cosine is the similarity."""
    if options.label_type != "similarity":
        raise ValueError(f"--label_type={options.label_type} does not suit --task=stsb: omit it")
    low, high = _STSB.limits
    head = head or Head(EMBEDDING, mean=low, deviation=high - low)
    head = embedding.with_settings(head, options)
    return embedding.SimilarityTask(**_options(_STSB), head=head)


def write_submission(
    runs: Iterable[str], output_file: str, overwrite: bool = False
) -> tuple[list[str], list[str]]:
    """Zips the files for GLUE's server in run folders; returns their names and those missing."""
    paths = {}
    for run in runs:
        found = [name for name in SUBMISSION if tf.io.gfile.exists(f"{run}/{name}")]
        if not found:
            Run(run).check_single()
            Run(run).check_one_task()
            raise ValueError(
                f"{run} holds no predictions for a GLUE test set: run_finetuning --task=TASK "
                f"--do_predict --output_dir={run} writes them"
            )
        for name in found:
            path = f"{run}/{name}"
            if name in paths:
                raise ValueError(f"{paths[name]} and {path} are for the same task: choose one")
            paths[name] = path
    check_output_files([output_file], [*paths.values()], overwrite)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in filter(paths.get, SUBMISSION):
            zipped.writestr(name, _read_whole(paths[name], name))
    atomic_write(output_file, archive.getvalue(), overwrite)
    return [*filter(paths.get, SUBMISSION)], [name for name in SUBMISSION if name not in paths]


def _read_whole(path: str, name: str) -> str:
    """Returns the text of a file that predicts every example of its test set once."""
    text = read_file(path).decode(errors="replace")
    lines, count = text.splitlines()[1:], SUBMISSION[name]
    for number, line in enumerate(lines, start=2):
        try:
            _OFFICIAL[name].target(line.partition("\t")[2])
        except ValueError as error:
            raise ValueError(f"{path}, line {number:,}: prediction {error}") from None
    if sorted(line.partition("\t")[0] for line in lines) != sorted(map(str, range(count))):
        raise ValueError(
            f"{path} has {counted(len(lines), 'prediction')}, but the official test set has "
            f"{count:,} examples with the indices 0 to {count - 1}: predict the whole official file"
        )
    return text
