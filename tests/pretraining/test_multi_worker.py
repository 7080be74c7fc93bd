"""Two processes on this machine train as one: real workers, a real kill."""

import json
import pathlib
import shutil
import signal
import time

import pytest
from support import assert_same_state, start_workers

from bert_tf.run_pretraining import Options, run
from bert_tf.training.checkpoints import latest_checkpoint
from bert_tf.training.reports import read_metrics

_MEASURES = ("loss", "masked_lm_loss", "next_sentence_loss", "masked_lm_accuracy")


@pytest.fixture
def exact_flags(flags, config, data, tmp_path) -> dict:
    """Flags without dropout, whose masks differ between replicas; with dynamic masking."""
    values = config.to_dict() | {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    (tmp_path / "no-dropout.json").write_text(json.dumps(values))
    return flags | {
        "bert_config_file": str(tmp_path / "no-dropout.json"),
        "input_file": str(data / "dynamic.tfrecord"),
        "eval_input_file": str(data / "dynamic.tfrecord"),
        "num_train_steps": 40,
        "save_checkpoints_steps": 10,
        "log_steps": 1,
        "learning_rate": 0.01,
    }


def assert_same_curve(found: str, expected: str) -> None:
    """The found run may be shorter."""
    for name in ("metrics.jsonl", "eval_metrics.jsonl"):
        lines = [read_metrics(f"{folder}/{name}") for folder in (found, expected)]
        for ours, theirs in zip(*lines, strict=False):
            assert ours["step"] == theirs["step"]
            for measure in _MEASURES:
                assert ours[measure] == pytest.approx(theirs[measure], abs=1e-5)


def copy_as_of_step_10(folder: str, copy: str) -> None:
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("ckpt-[2-4]0*", "checkpoint"))
    for name in ("metrics.jsonl", "eval_metrics.jsonl"):
        lines = [line for line in read_metrics(f"{folder}/{name}") if line["step"] <= 10]
        pathlib.Path(copy, name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_two_workers_train_as_one_and_survive_a_kill(exact_flags, tmp_path):
    """Oracle: one process, the same global batch; dropout is 0.

    One process takes the first steps, and two take more until one is killed. One could go on: the
    last checkpoint is that of one process.
    """
    folder, whole = exact_flags["output_dir"], str(tmp_path / "one")
    run(Options(**exact_flags | {"output_dir": whole}))
    copy_as_of_step_10(whole, folder)
    workers = start_workers("run_pretraining", exact_flags | {"strategy": "multi_worker"})
    while read_metrics(f"{folder}/eval_metrics.jsonl")[-1]["step"] < 20:
        assert workers[0].poll() is None, workers[0].communicate()[0]
        time.sleep(0.05)
    workers[1].send_signal(signal.SIGKILL)
    chief_says, other_says = (worker.communicate(timeout=600)[0] for worker in workers)
    assert f"Resuming from {folder}/ckpt-10, step 10." in chief_says
    assert "on 2 CPU replicas" in chief_says
    assert "Resuming" not in other_says and "Traceback" not in other_says
    if workers[0].returncode:  # otherwise the kill came after the end
        assert workers[0].returncode == 1
        assert "error: the connection to another machine was lost" in chief_says
        assert "Traceback" not in chief_says
        assert not pathlib.Path(folder, "ckpt-40.index").exists()

    assert_same_curve(folder, whole)
    newest = latest_checkpoint(folder)
    assert_same_state(newest, newest.replace(folder, whole), atol=1e-4)
