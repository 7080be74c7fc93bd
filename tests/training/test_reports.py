"""The log of a run: read, resumed and damaged; the line that shows its progress; signals."""

import concurrent.futures
import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from support import Terminal

from bert_tf.training.interruption import Interrupted
from bert_tf.training.reports import Reports, append_metrics, read_metrics, read_results

_MEASURES = ("masked_lm_loss", "next_sentence_loss", "masked_lm_accuracy", "next_sentence_accuracy")
_PROGRAM = """
import signal, sys
from bert_tf.training.interruption import StopRequest

number = int(sys.argv[1])
with StopRequest(lambda: print("noticed", flush=True)).listen():
    sys.stdin.readline()
    signal.raise_signal(number)
    while True:
        pass
"""


@pytest.mark.parametrize("text", ["", "loss\n", "loss = x\nglobal_step = 1\n", "loss = 1.0\n"])
def test_damaged_results_are_named(text, tmp_path):
    path = tmp_path / "eval_results.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="eval_results.txt is damaged: restore it"):
        read_results(str(path))


def test_the_line_of_a_long_run_fits_100_columns(tmp_path, monkeypatch):
    """Oracle: a terminal's 100 columns."""
    monkeypatch.setattr("sys.stderr", Terminal())
    reports = Reports(str(tmp_path), 0, 1_000_000, peak_flops=1e12)
    bar = reports._bar
    bar.dynamic_ncols, bar.ncols, bar.start_t = None, 100, bar.start_t - 50_000
    bar.smoothing = 0  # The time left is that of the mean rate.
    reports.begin_phase(32, 10**9)
    means = {"loss": 7.2139} | dict.fromkeys(_MEASURES, 0.123456)
    reports.steps_done(500_000, 12_345.0, means)
    line = str(bar)
    assert len(line) == 100
    # The utilization, the last detail, has no room beside a bar.
    assert line.endswith(", loss 7.214, mlm 0.123, nsp 0.123, 1,296 seq/s]"), line
    bar.close()


def test_the_bar_says_that_the_first_step_is_compiled(tmp_path, monkeypatch):
    """Oracle: the start of the line, before and after the step."""
    monkeypatch.setattr("sys.stderr", Terminal())
    with Reports(str(tmp_path), 0, 16) as reports:
        reports.begin_phase(32)
        assert str(reports._bar).startswith("Compiling the first step:   0%|")
        reports.steps_done(4, 1.0, {"loss": 0.5})
        assert str(reports._bar).startswith(" 25%|")


def test_no_more_than_all_of_a_device_is_used(tmp_path):
    """Oracles: by hand; a peak that was measured too low rises."""
    with Reports(str(tmp_path), 0, 16, peak_flops=10.0) as reports:
        for seconds, share in ((2.0, 0.5), (0.1, 1.0), (0.2, 0.5)):
            reports.begin_phase(2, 5)
            reports._steps, reports._seconds = 0, 0.0
            reports.steps_done(1, seconds, {"loss": 0.5})
            assert reports._speed["model_flop_utilisation"] == pytest.approx(share)


def write_steps(path, steps, loss=1.0) -> None:
    for step in steps:
        append_metrics(str(path), {"step": step, "loss": loss * math.exp(-step / 7)})


def test_values_read_back_bit_for_bit(tmp_path):
    """Oracle: the values written, Python's and NumPy's; a line is one JSON object."""
    path = tmp_path / "metrics.jsonl"
    values = {
        "step": np.int64(12),
        "loss": 0.1 + 0.2,
        "masked_lm_accuracy": np.float32(1 / 3),
        "learning_rate": 5e-324,
        "sequences_per_second": np.nextafter(1e300, np.inf),
    }
    append_metrics(str(path), values)
    append_metrics(str(path), {"step": 13})
    text = path.read_text()
    assert [list(json.loads(line)) for line in text.splitlines()] == [list(values), ["step"]]
    found = read_metrics(str(path))
    assert found == [values, {"step": 13}]
    assert isinstance(found[0]["step"], int)


@pytest.mark.parametrize("cut", ["", '{"step": 11, "lo', '{"step": 11}', "\0\0\0"])
def test_a_resumed_run_has_the_metrics_of_an_uninterrupted_one(tmp_path, cut):
    """Oracle: the file of a run without the kill, which came later than the resumed run's end."""
    whole, resumed = tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"
    write_steps(whole, range(1, 10))
    write_steps(resumed, range(1, 7))
    write_steps(resumed, range(7, 11), loss=2.0)
    with resumed.open("a") as file:
        file.write(cut)
    assert [values["step"] for values in read_metrics(str(resumed))] == list(range(1, 11))
    write_steps(resumed, range(7, 10))
    assert read_metrics(str(resumed)) == read_metrics(str(whole))
    # Other programs can read every line, too.
    assert all(json.loads(line)["step"] for line in resumed.read_text().splitlines())


def test_evaluations_of_two_processes_are_all_kept(tmp_path):
    """Oracle: the steps of both; the results are those of the newest. Threads stand for them."""

    def evaluate(steps):
        reports = Reports(str(tmp_path), 0, 100)
        for step in steps:
            reports.evaluation(step, {"score": float(step)}, alone=True)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(evaluate, [range(2, 50, 2), range(1, 49, 2)]))
    lines = read_metrics(str(tmp_path / "eval_metrics.jsonl"))
    assert [line["step"] for line in lines] == list(range(1, 49))
    assert read_results(str(tmp_path / "eval_results.txt")) == {"score": 48.0, "global_step": 48}


def test_an_error_is_not_replaced_by_that_of_the_curves(tmp_path, monkeypatch):
    """Oracle: the first error; curves are still drawn at the end and after a signal."""

    def fail(*_):
        raise OSError("no space for curves.png")

    monkeypatch.setattr("bert_tf.training.reports.draw_curves", fail)
    write_steps(tmp_path / "metrics.jsonl", [1])
    for error, message in (
        (OSError("earlier checkpoints are kept"), "earlier checkpoints"),
        (Interrupted(signal.SIGTERM), "no space"),
        (None, "no space"),
    ):
        with pytest.raises(OSError, match=message), Reports(str(tmp_path), 1, 2):
            if error:
                raise error


@pytest.mark.parametrize("damage", ["{", "[1]", '{"loss": 1.0}', "\0\0", "\ufffd"])
def test_a_damaged_line_is_named(tmp_path, damage):
    """Oracle: the line that was damaged."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{damage}\n{{"step": 3}}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 2 is damaged: "):
        read_metrics(str(path))


def test_files_that_cannot_be_used_are_named(tmp_path):
    missing = str(tmp_path / "none" / "metrics.jsonl")
    assert read_metrics(missing) == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="cannot read .*folder"):
        read_metrics(str(tmp_path / "folder"))
    with pytest.raises(OSError, match="cannot write .*none/metrics.jsonl"):
        append_metrics(missing, {"step": 1})
    (tmp_path / "train").touch()
    with pytest.raises(OSError, match="cannot write to .*/train"):
        Reports(str(tmp_path), 0, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(number):
    """Oracle: the shell's exit code, 128 plus the number; the first calls the function given."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(int(number))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "noticed\n"
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    process.communicate()
