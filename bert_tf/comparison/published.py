"""Published results that fine-tuning runs are compared with, in percent.

Source: BERT (arXiv:1810.04805v2) tables 1, 2, 3, 4 and 7, with the systems it names; for TagLM,
Semi-supervised sequence tagging with bidirectional language models (arXiv:1705.00108).
"""

from typing import NamedTuple

Scores = tuple[float | None, ...]


class Column(NamedTuple):
    """A column: its heading; the task, and the metric in `eval_results.json`, of our values."""

    name: str
    task: str
    metric: str


class PublishedTable(NamedTuple):
    """A table of published scores.

    Attributes:
        title: what was measured, and on which split.
        rows: (system, its scores), None where there is none.
        average: whether the last score of a row is the mean of the others.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, Scores], ...]
    average: bool = False


GLUE = PublishedTable(
    "GLUE. Published: test set, from GLUE's server. Runs: dev set",
    (
        Column("MNLI-m", "mnli", "eval_accuracy"),
        Column("MNLI-mm", "mnli", "eval_mismatched_accuracy"),
        Column("QQP F1", "qqp", "eval_f1"),
        Column("QNLI", "qnli", "eval_accuracy"),
        Column("SST-2", "sst2", "eval_accuracy"),
        Column("CoLA Matthews", "cola", "eval_matthews"),
        Column("STS-B Spearman", "stsb", "eval_spearman"),
        Column("MRPC F1", "mrpc", "eval_f1"),
        Column("RTE", "rte", "eval_accuracy"),
    ),
    (
        ("Pre-OpenAI SOTA", (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0)),
        ("BiLSTM+ELMo+Attn", (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0)),
        ("OpenAI GPT", (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1)),
        ("BERT-base", (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6)),
        ("BERT-large", (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1)),
    ),
    average=True,
)

SQUAD_1 = PublishedTable(
    "SQuAD 1.1",
    (Column("dev EM", "squad", "eval_exact_match"), Column("dev F1", "squad", "eval_f1")),
    (
        ("BiDAF+ELMo, single", (None, 85.6)),
        ("R.M. Reader, ensemble", (81.2, 87.9)),
        ("BERT-base, single", (80.8, 88.5)),
        ("BERT-large, single", (84.1, 90.9)),
    ),
)

SQUAD_2 = PublishedTable(
    "SQuAD 2.0, at the best threshold on the dev set",
    (
        Column("dev EM", "squad2", "eval_best_exact"),
        Column("dev F1", "squad2", "eval_best_f1"),
        Column("test EM", "squad2", "test_best_exact"),
        Column("test F1", "squad2", "test_best_f1"),
    ),
    (
        ("unet, ensemble", (None, None, 71.4, 74.9)),
        ("SLQA+, single", (None, None, 71.4, 74.4)),
        ("BERT-large, single", (78.7, 81.9, 80.0, 83.1)),
    ),
)

SWAG = PublishedTable(
    "SWAG, accuracy",
    (Column("dev", "swag", "eval_accuracy"), Column("test", "swag", "test_accuracy")),
    (
        ("ESIM+GloVe", (51.9, 52.7)),
        ("ESIM+ELMo", (59.1, 59.2)),
        ("OpenAI GPT", (None, 78.0)),
        ("BERT-base", (81.6, None)),
        ("BERT-large", (86.6, 86.3)),
    ),
)

NER = PublishedTable(
    "CoNLL-2003 named entities, F1",
    (Column("dev", "ner", "eval_f1"), Column("test", "ner", "test_f1")),
    (
        ("TagLM", (None, 91.93)),
        ("ELMo", (95.7, 92.2)),
        ("CVT", (None, 92.6)),
        ("Flair", (None, 93.1)),
        ("BERT-large, fine-tuned", (96.6, 92.8)),
        ("BERT-base, fine-tuned", (96.4, 92.4)),
        ("BERT-base, embeddings as features", (91.0, None)),
        ("BERT-base, second-to-last layer as features", (95.6, None)),
        ("BERT-base, last layer as features", (94.9, None)),
        ("BERT-base, weighted sum of the last four layers", (95.9, None)),
        ("BERT-base, concatenation of the last four layers", (96.1, None)),
        ("BERT-base, weighted sum of all layers", (95.5, None)),
    ),
)

TABLES = (GLUE, SQUAD_1, SQUAD_2, SWAG, NER)
