"""The loop: what is reported and saved when, and what a signal or a bad loss does."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training import loop
from bert_tf.training.loop import NonFiniteLoss, fit
from bert_tf.training.metrics import read_metrics
from bert_tf.training.reports import Reports
from bert_tf.training.strategy import make_strategy

SETTINGS = dict(save_checkpoints_steps=4, log_steps=3)


@pytest.fixture
def train(tmp_path, make_trainer, make_iterator, make_checkpointer):
    """A function that trains, or goes on, in a folder and returns its metrics and the trainer."""

    def train(name, until_step=10, prepare=lambda trainer: None, **settings):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        strategy = make_strategy("cpu")
        trainer = make_trainer(strategy)
        checkpointer = make_checkpointer(folder, trainer, 2)
        checkpointer.restore()
        prepare(trainer)
        step = int(trainer.step.numpy())
        with Reports(str(folder), step, 10) as reports:
            reports.begin_phase(8)
            iterator = make_iterator(strategy, first_step=step)
            fit(trainer, iterator, until_step, checkpointer, reports, **SETTINGS | settings)
        return read_metrics(f"{folder}/metrics.jsonl")

    return train


def _without_times(metrics: list[dict]) -> list[dict]:
    return [{k: v for k, v in line.items() if k != "sequences_per_second"} for line in metrics]


def test_what_is_logged_and_saved_when(train, tmp_path, losses):
    """Oracles: steps taken one at a time, the schedule by hand, the files asked for."""
    seen = []
    metrics = train("run", on_checkpoint=seen.append)
    assert [line["step"] for line in metrics] == [3, 6, 9, 10]
    one_by_one = losses(make_strategy("cpu"))
    for line, steps in zip(metrics, ([0, 3], [3, 6], [6, 9], [9, 10]), strict=True):
        assert line["loss"] == pytest.approx(np.mean(one_by_one[slice(*steps)]), abs=1e-5)
        # Linear to 0 at step 20 from 0.01; the step taken last has number `step` - 1.
        assert line["learning_rate"] == pytest.approx(0.01 * (1 - (line["step"] - 1) / 20))
        assert line["loss"] == pytest.approx(line["masked_lm_loss"] + line["next_sentence_loss"])
        assert line["sequences_per_second"] > 0
    assert seen == [4, 8, 10]
    assert sorted(p.stem for p in (tmp_path / "run").glob("*.index")) == ["ckpt-10", "ckpt-8"]
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "run" / "train").glob("events.out.tfevents.*"))


def test_how_often_the_device_reports_changes_nothing(train, monkeypatch):
    """Oracle: the same run with another rhythm."""
    expected = _without_times(train("often", iterations_per_loop=1))
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 1e6)
    assert _without_times(train("seldom")) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_goes_on_exactly(train, tmp_path, capsys, number):
    """Oracle: the uninterrupted run, bit for bit; the signal comes in step 5 of 10."""
    expected = _without_times(train("whole"))

    def signal_in_step_5(trainer):
        real = trainer.train

        def train_and_kill(iterator, steps):
            if trainer.step.numpy() == 4:
                os.kill(os.getpid(), number)
            return real(iterator, steps)

        trainer.train = train_and_kill

    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stopped:
        train("stopped", prepare=signal_in_step_5, iterations_per_loop=1)
    assert stopped.value.code == 128 + number
    assert signal.getsignal(number) is before
    assert "Stopped after step 5, which is saved" in capsys.readouterr().out
    assert (tmp_path / "stopped" / "ckpt-5.index").exists()
    assert _without_times(train("stopped")) == expected


def test_a_loss_that_is_not_finite_stops_at_its_step(train, tmp_path):
    """Oracle: the step after which a weight was made NaN, and the files in the folder."""
    train("run", until_step=6)

    def break_weight(trainer):
        trainer.model.encoder.pooler.dense_bias.assign(np.full(32, np.nan))

    with pytest.raises(NonFiniteLoss, match="the loss of step 7 is not finite") as error:
        train("run", prepare=break_weight)
    assert error.value.step == 7
    assert sorted(p.stem for p in (tmp_path / "run").glob("*.index")) == ["ckpt-4", "ckpt-6"]
    metrics = read_metrics(f"{tmp_path}/run/metrics.jsonl")
    assert [line["step"] for line in metrics] == [3, 6]


def test_a_bad_loss_amid_a_call_is_found(make_trainer, make_iterator):
    """Oracle: step number 2, the third, gets an infinite learning rate: the fourth loss is bad."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    schedule = trainer.schedule
    trainer.schedule = lambda step: tf.where(tf.equal(step, 2), np.inf, schedule(step))
    assert trainer.train(make_iterator(strategy), 6) == 4
