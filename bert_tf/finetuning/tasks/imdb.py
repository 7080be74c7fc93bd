"""The Large Movie Review Dataset (Maas et al. 2011): positive and negative reviews."""

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.examples import TextExamples, TfdsSource
from bert_tf.finetuning.tasks.classification import ClassificationTask

LABELS = ("neg", "pos")


def read_files(data_dir: str, split: str) -> TextExamples:
    """Reads `aclImdb/<split>/{neg,pos}/*.txt`.

    Args:
        data_dir: the folder aclImdb, or its parent.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: a folder contains no reviews.
    """
    root = data_dir
    if tf.io.gfile.isdir(f"{data_dir}/aclImdb"):
        root = f"{data_dir}/aclImdb"
    texts, labels = [], []
    for index, label in enumerate(LABELS):
        folder = f"{root}/{split}/{label}"
        if not tf.io.gfile.isdir(folder):
            raise FileNotFoundError(
                f"{folder}: no such folder: --data_dir must be aclImdb or its parent"
            )
        names = sorted(name for name in tf.io.gfile.listdir(folder) if name.endswith(".txt"))
        if not names:
            raise ValueError(f"{folder} contains no reviews (*.txt)")
        for name in names:
            with tf.io.gfile.GFile(f"{folder}/{name}", "rb") as file:
                texts.append(file.read())
        labels += [index] * len(names)
    return TextExamples(texts, None, {"labels": np.array(labels, np.int32)})


TASKS = (
    ClassificationTask(
        name="imdb",
        labels=LABELS,
        read_files=read_files,
        tfds=TfdsSource("imdb_reviews", text_a="text"),
        has_dev=False,
        test_has_targets=True,
    ),
)
