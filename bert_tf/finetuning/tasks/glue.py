"""The GLUE tasks (arXiv:1804.07461), with the files of predictions that its server takes."""

import abc
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from bert_tf.finetuning.examples import TextExamples, TfdsSource
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.predictions import write_table
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.glue_files import GlueFiles
from bert_tf.finetuning.tasks.regression import RegressionTask
from bert_tf.finetuning.tasks.text_task import TextTask
from tfrecords.progress import say

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


@dataclass(frozen=True, kw_only=True)
class _GlueTask(TextTask):
    """A task with official files, whose test predictions are written for GLUE's server, too.

    Attributes:
        files: the layout of the files.
        submissions: the name of the file for the server, by split.
    """

    files: GlueFiles
    submissions: Mapping[str, str] = field(default_factory=dict)

    def read_splits(
        self, names: Collection[str], files: DataFiles, seed: int
    ) -> dict[str, TextExamples]:
        """Reads splits; AX, which is not in the archive of MNLI, only if it is there."""
        if _AX in names and files.data_dir:
            try:
                self.files.find(files.data_dir, _AX)
            except FileNotFoundError as error:
                say(f"WARNING: no predictions for AX: {error}.")
                names = [name for name in names if name != _AX]
        return super().read_splits(names, files, seed)

    def write_predictions(
        self, folder: str, split: str, outputs: Mapping[str, np.ndarray], features: Features
    ) -> list[str]:
        written = super().write_predictions(folder, split, outputs, features)
        if split not in self.submissions:
            return written
        columns = {"index": features.examples.index, "prediction": self._submitted(outputs)}
        return [*written, write_table(folder, self.submissions[split], columns)]

    @abc.abstractmethod
    def _submitted(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        """Returns the predictions as the server expects them."""


@dataclass(frozen=True, kw_only=True)
class GlueClassification(_GlueTask, ClassificationTask):
    """Submits the classes as they are written in the official files."""

    def _submitted(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        return [self.files.labels[label] for label in outputs["logits"].argmax(axis=-1)]


@dataclass(frozen=True, kw_only=True)
class GlueRegression(_GlueTask, RegressionTask):
    """Submits numbers within the limits of the task."""

    def _submitted(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        return [f"{value:.3f}" for value in np.clip(outputs["values"], *self.files.limits)]


def _options(files: GlueFiles, **tfds) -> dict:
    """Returns what the name of the official folder, such as "SST-2", determines."""
    name = files.folder.replace("-", "").lower()
    source = TfdsSource(f"glue/{name}", **{"text_a": files.text_a, "text_b": files.text_b} | tfds)
    return dict(
        name=name,
        files=files,
        read_files=files.read,
        tfds=source,
        pairs=files.text_b is not None,
        submissions={"test": f"{files.folder}.tsv"},
    )


_BINARY = ("0", "1")
_SENTENCES = dict(text_a="sentence1", text_b="sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_COLA_HEADER = ("source", "label", "original_label", "sentence")
_AX_FILES = tuple(
    f"{folder}{name}"
    for folder in ("", "AX/", "../AX/", "diagnostic/", "../diagnostic/")
    for name in ("diagnostic.tsv", "AX.tsv")
)

_COLA = GlueFiles(
    folder="CoLA",
    text_a="sentence",
    labels=_BINARY,
    headers={"train": _COLA_HEADER, "dev": _COLA_HEADER},
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
    names={
        "dev": ("dev_matched.tsv",),
        "test": ("test_matched.tsv",),
        _AX: _AX_FILES,
    },
)
_QNLI = GlueFiles(folder="QNLI", text_a="question", text_b="sentence", labels=_ENTAILMENT)
_RTE = GlueFiles(folder="RTE", **_SENTENCES, labels=_ENTAILMENT)
_WNLI = GlueFiles(folder="WNLI", **_SENTENCES, labels=_BINARY)

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
    submissions={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", _AX: "AX.tsv"},
)

# The metric is the one in table 1 of the BERT paper.
TASKS = (
    GlueClassification(**_options(_COLA), labels=("unacceptable", "acceptable"), metric="matthews"),
    GlueClassification(**_options(_SST2), labels=("negative", "positive")),
    GlueClassification(
        **_options(_MRPC, **_SENTENCES), labels=("not_equivalent", "equivalent"), metric="f1"
    ),
    GlueRegression(**_options(_STSB)),
    GlueClassification(**_options(_QQP), labels=("not_duplicate", "duplicate"), metric="f1"),
    GlueClassification(**_MNLI_OPTIONS, labels=_NLI),
    GlueClassification(**_options(_QNLI), labels=_ENTAILMENT),
    GlueClassification(**_options(_RTE), labels=_ENTAILMENT),
    GlueClassification(**_options(_WNLI), labels=("not_entailment", "entailment")),
)
