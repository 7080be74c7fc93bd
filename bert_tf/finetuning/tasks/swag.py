"""SWAG (Zellers et al. 2018, arXiv:1808.05326): which of four endings continues a situation."""

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.tables import Table, read_table
from bert_tf.finetuning.tasks.multiple_choice import ChoiceExamples, MultipleChoiceTask
from tfrecords.progress import counted

ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def read_files(data_dir: str, split: str) -> ChoiceExamples:
    """Reads `train.csv`, `val.csv` or `test.csv`; the column `label` of the latter may be empty.

    As in the paper, the text is the first sentence, `sent1`, and a choice is the second one, the
    beginning `sent2` with an ending.

    Args:
        data_dir: the folder of the files, or its parent.
    """
    table = read_table(_find(data_dir, f"{'val' if split == 'dev' else split}.csv"))
    texts, beginnings = map(table.texts, ("sent1", "sent2"))
    endings = [*zip(*map(table.texts, ENDINGS), strict=True)]
    choices = [
        [(beginning + b" " + ending).strip() for ending in row]
        for beginning, row in zip(beginnings, endings, strict=True)
    ]
    labelled = split != "test" or any(map(str.strip, table.columns.get("label", [])))
    # The choices start with the beginnings, so the counts of empty texts miss empty endings.
    empty = sum(not ending.strip() for row in endings for ending in row)
    return ChoiceExamples(
        texts,
        choices,
        {"labels": _labels(table)} if labelled else {},
        (f"{counted(empty, 'empty ending')}",) if empty else (),
    )


def _find(data_dir: str, name: str) -> str:
    for path in (f"{data_dir}/{name}", f"{data_dir}/data/{name}"):
        if tf.io.gfile.exists(path):
            return path
    raise FileNotFoundError(
        f"{data_dir} contains neither {name} nor data/{name}: name their folder as --data_dir"
    )


def _labels(table: Table) -> np.ndarray:
    known = [str(number) for number in range(len(ENDINGS))]
    labels = table.column("label")
    for row, label in enumerate(labels):
        if label not in known:
            raise ValueError(f"{table.at(row)}: label {label!r} is not one of {', '.join(known)}")
    return np.array(labels, np.int32)


TASKS = (MultipleChoiceTask(name="swag", labels=ENDINGS, read_files=read_files),)
