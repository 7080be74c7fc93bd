"""The files of finished runs."""

import dataclasses
import json

import pytest

from bert_tf.base.output_files import atomic_write, make_folder
from bert_tf.config import Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.runs.run import FINISHED, FLAGS, Run


@pytest.fixture
def add_run(tmp_path):
    """A function that writes the files of a run that the comparison reads; returns its folder."""

    def add(folder, results, task="sst2", finished=True, kind=FineTuningOptions, **flags) -> str:
        path = f"{tmp_path}/runs/{folder}"
        flags = {"do_train": True, "init_checkpoint": "small"} | flags
        options = kind(task=task, output_dir=path, **flags)
        make_folder(path)
        Run(path).write_head(Head("classifier", ("a", "b")))
        values = dataclasses.asdict(options) | {FINISHED: finished}
        atomic_write(f"{path}/{FLAGS}", json.dumps(values))
        if results is not None:
            results = {"global_step": 9} | results
            atomic_write(f"{path}/eval_results.json", json.dumps(results))
        return path

    return add
