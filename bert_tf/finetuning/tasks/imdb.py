"""The Large Movie Review Dataset (Maas et al. 2011): positive and negative reviews."""

import numpy as np
import tensorflow as tf

from bert_tf.base.content import read_text
from bert_tf.base.files import names_in
from bert_tf.base.progress import progress_bar
from bert_tf.finetuning.examples import TextExamples, TfdsSource
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.csv_tables import TableReader

LABELS = ("neg", "pos")


def read_review_file(path: str, split: str) -> TextExamples:
    """Reads a table of reviews with the labels neg and pos, which test sets may lack."""
    reader = TableReader(FineTuningOptions(task="csv", output_dir="unused", do_eval=True))
    return reader.read(LABELS, DataFiles(**{f"{split}_file": path}), split)


def read_folder(data_dir: str, split: str) -> TextExamples:
    """Reads `aclImdb/<split>/{neg,pos}/*.txt` or `aclImdb/test/*.txt`, from it or its parent."""
    root = f"{data_dir}/aclImdb" if tf.io.gfile.isdir(f"{data_dir}/aclImdb") else data_dir
    folders = [f"{split}/{label}" for label in LABELS]
    labelled = split != "test" or any(tf.io.gfile.isdir(f"{root}/{name}") for name in folders)
    names = [_reviews(root, folder) for folder in (folders if labelled else [split])]
    paths = [path for part in names for path in part]
    shown = dict(total=len(paths), desc="Reading", unit="file", leave=False, delay=5)
    texts = [read_text(f"{root}/{path}") for path in progress_bar(iterable=paths, **shown)]
    labels = np.repeat(np.arange(len(names), dtype=np.int32), [len(part) for part in names])
    return TextExamples(texts, None, {"labels": labels} if labelled else {}, paths)


def _reviews(root: str, folder: str) -> list[str]:
    """Returns the files of a folder, in order, such as "train/neg/0_3.txt"."""
    found = f"{root}/{folder}"
    names = sorted(name for name in names_in(found) if name.endswith(".txt"))
    if not names:
        raise FileNotFoundError(
            f"{found} holds no reviews (*.txt): --data_dir must be aclImdb or its parent"
        )
    return [f"{folder}/{name}" for name in names]


TASKS = (
    ClassificationTask(
        name="imdb",
        labels=LABELS,
        read_file=read_review_file,
        read_files=read_folder,
        tfds=TfdsSource("imdb_reviews", text_a="text"),
        has_dev=False,
    ),
)
