"""The GLUE tasks (arXiv:1804.07461), with the files of predictions that its server takes."""

from bert_tf.finetuning.examples import TfdsSource
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.glue_files import GlueFiles
from bert_tf.finetuning.tasks.regression import RegressionTask

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
    names={"dev": ("dev_matched.tsv",), "test": ("test_matched.tsv",), _AX: _AX_FILES},
)
_QNLI = GlueFiles(folder="QNLI", text_a="question", text_b="sentence", labels=_ENTAILMENT)
_RTE = GlueFiles(folder="RTE", **_SENTENCES, labels=_ENTAILMENT)
_WNLI = GlueFiles(folder="WNLI", **_SENTENCES, labels=_BINARY)

_FILES = (_COLA, _SST2, _MRPC, _STSB, _QQP, _QNLI, _RTE, _WNLI)
# The official files whose labels the server takes, by the name of its file.
OFFICIAL = {f"{files.folder}.tsv": files for files in _FILES} | dict.fromkeys(
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
