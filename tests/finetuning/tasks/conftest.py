"""The task of the user's own tables."""

import pytest

from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import make_task
from bert_tf.finetuning.task import DataFiles


@pytest.fixture(scope="session")
def read():
    def read(head=None, names=("train", "dev"), **flags):
        options = FineTuningOptions(task="csv", output_dir="run", do_train=True, **flags)
        task = make_task(options, head)
        return task, task.read_splits(names, DataFiles.of(options))

    return read
