"""A killed run resumes exactly: a real process and real signals, then the undisturbed run."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.run_pretraining import Options, run
from bert_tf.training.reports import read_metrics
from bert_tf.training.trainer import Trainer

# As in the processes that the tests start.
pytestmark = pytest.mark.usefixtures("optimized_graphs")

# The command, without measuring the peak of the CPU and drawing the curves, where TensorFlow Text
# cannot be imported, nor two packages that Keras imports for parts of it that nothing here uses.
_PROGRAM = """
import sys
from bert_tf import run_pretraining

def run(options, real=run_pretraining.run):
    from bert_tf.pretraining import pretrain
    from bert_tf.training import reports
    pretrain.peak_flops = lambda *_: 1e12
    reports.draw_curves = lambda *_: None
    return real(options)

sys.modules.update(tensorflow_text=None, matplotlib=None, sklearn=None)
run_pretraining.run = run
run_pretraining.command.run("bert_tf.run_pretraining")
"""
_TIMES = ("sequences_per_second", "model_flop_utilisation")


@pytest.fixture
def long_flags(flags, data, config, tmp_path) -> dict:
    """With dropout and dynamic masking: everything random that could differ."""
    values = config.to_dict() | {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    (tmp_path / "dropout.json").write_text(json.dumps(values))
    return flags | {
        "bert_config_file": str(tmp_path / "dropout.json"),
        "input_file": str(data / "dynamic.tfrecord"),
        "eval_input_file": None,
        "num_train_steps": 30,
        "save_checkpoints_steps": 10,
        "log_steps": 3,
    }


def start(flags: dict) -> subprocess.Popen:
    arguments = [f"--{name}={str(value)}" for name, value in flags.items() if value is not None]
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def what_was_learned(folder: str) -> tuple[list[dict], list[dict], dict]:
    """Returns metrics without times, evaluations, and every array of the last checkpoint."""
    metrics = [
        {name: value for name, value in line.items() if name not in _TIMES}
        for line in read_metrics(f"{folder}/metrics.jsonl")
    ]
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(folder))
    arrays = {
        key: reader.get_tensor(key).tobytes()
        for key in reader.get_variable_to_shape_map()
        if not key.startswith("_")
    }
    return metrics, read_metrics(f"{folder}/eval_metrics.jsonl"), arrays


@pytest.mark.slow
def test_a_kill_and_a_sigterm_change_nothing(long_flags, tmp_path, monkeypatch, capsys):
    """Oracles: the undisturbed run, bit for bit: metrics, evaluations, weights, moments; up to the
    kill, standard error holds the progress bar alone."""
    run(Options(**long_flags | {"output_dir": str(tmp_path / "whole")}))
    expected = what_was_learned(str(tmp_path / "whole"))
    assert [line["step"] for line in expected[0]] == list(range(3, 31, 3))
    folder = long_flags["output_dir"]

    process = start(long_flags)
    while not any(line["step"] >= 12 for line in read_metrics(f"{folder}/metrics.jsonl")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL
    # TensorFlow 2.20 says so once, past every log level.
    compiled = r"WARNING: All log messages before absl.*\n.*Compiled cluster using XLA!.*\n"
    bars = re.split(r"[\r\n]+", re.sub(compiled, "\n", errors).strip())
    assert all(re.match(r"\s*\d+% \d+/30 \[|Evaluating: \d", bar) for bar in bars), errors

    train = Trainer.train

    def train_and_stop(trainer, *arguments):
        if trainer.step.numpy() >= 18:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", train_and_stop)
        with pytest.raises(SystemExit) as error:
            run(Options(**long_flags))
    assert error.value.code == 128 + signal.SIGTERM
    output = capsys.readouterr().out
    assert f"Resuming from {folder}/ckpt-" in output
    stopped = re.search(r"Stopped after step (\d+) and saved", output)[1]
    assert pathlib.Path(folder, f"ckpt-{stopped}.index").exists()

    run(Options(**long_flags))
    assert f"Resuming from {folder}/ckpt-{stopped}, step {stopped}." in capsys.readouterr().out
    assert what_was_learned(folder) == expected


@pytest.mark.slow
def test_the_records_of_a_bad_batch_are_named(flags, tmp_path):
    """Oracle: an epoch is the 24 records, 6 per step, each once."""
    options = Options(**flags | {"num_warmup_steps": 0})
    # No rate that the flag allows makes such a small model diverge at once.
    object.__setattr__(options, "learning_rate", 1e38)
    with pytest.raises(
        ValueError, match=r"the loss or the gradient of step (\d+) is not finite.*records"
    ) as error:
        run(options)
    step = int(str(error.value).split("step ")[1].split()[0])
    listed = pathlib.Path(flags["output_dir"], f"records-of-step-{step}.txt").read_text()
    rows = [line.split("\t") for line in listed.splitlines()]
    assert {file for file, _ in rows} == {flags["input_file"]}
    numbers = [int(number) for _, number in rows]
    assert len(set(numbers)) == 6 and set(numbers) <= set(range(1, 25))
    assert f"{flags['input_file']} {numbers[0]}" in str(error.value)
    assert np.isfinite(
        [line["loss"] for line in read_metrics(f"{flags['output_dir']}/metrics.jsonl")]
    ).all()
