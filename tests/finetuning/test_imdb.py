"""Two processes on this machine fine-tune as one."""

import json
import socket
import subprocess
import sys

import pytest

from bert_tf.run_finetuning import Options, run
from bert_tf.training.reports import read_results


@pytest.mark.slow
def test_two_workers_fine_tune_as_one(files, config, tmp_path):
    """Oracle: one process with the same global batch; dropout is 0."""
    values = config.to_dict() | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "no-dropout.json").write_text(json.dumps(values))
    flags = {
        "task": "imdb",
        "data_dir": str(files),
        "vocab_file": str(files / "vocab.txt"),
        "bert_config_file": str(tmp_path / "no-dropout.json"),
        "max_seq_length": 24,
        "train_batch_size": 16,
        "eval_batch_size": 6,
        "learning_rate": 3e-3,
        "num_train_epochs": 1.0,
    }
    expected = run(Options(**flags, output_dir=str(tmp_path / "one")))
    with socket.socket() as first, socket.socket() as second:
        first.bind(("localhost", 0))
        second.bind(("localhost", 0))
        hosts = ",".join(f"localhost:{s.getsockname()[1]}" for s in (first, second))
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    arguments += [f"--output_dir={tmp_path}/two", f"--worker_hosts={hosts}"]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "bert_tf.run_finetuning", *arguments, f"--task_index={index}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(2)
    ]
    chief_says, other_says = (worker.communicate(timeout=600)[0] for worker in workers)
    assert [worker.returncode for worker in workers] == [0, 0], chief_says + other_says
    assert read_results(f"{tmp_path}/two/eval_results.txt") == pytest.approx(expected, abs=1e-5)
    assert "on the test set" in chief_says
    assert "test set" not in other_says
