"""The driver: what is logged, saved and evaluated when; signals, bad losses, the best weights."""

import os
import re
import shutil
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import one_device, one_line

from bert_tf.base.finite import NonFinite
from bert_tf.training import driver as driver_module
from bert_tf.training import reports
from bert_tf.training.driver import Driver, Phase, Plan
from bert_tf.training.optimizers import AdamW, make_schedule
from bert_tf.training.reports import rank, read_metrics, read_results
from bert_tf.training.trainer import Trainer

SETTINGS = dict(save_checkpoints_steps=4, log_steps=3, keep_checkpoints=2)


class _Line(keras.Model):
    """A linear model with noise from the dropout seed: it traces quickly."""

    def __init__(self):
        super().__init__(name="line")
        self.kernel = self.add_weight(name="kernel", shape=(3,), initializer="zeros")

    def call(self, inputs, training=None):
        noise = tf.random.stateless_normal([3], inputs["dropout_seed"])
        return tf.linalg.matvec(inputs["x"], self.kernel + 0.1 * noise)


class _SquaredError:
    measures = ("squared_error", "error")
    losses = ("squared_error",)

    def counts(self, batch):
        return dict.fromkeys(self.measures, tf.cast(tf.shape(batch["y"])[0], tf.float32))

    def sums(self, model, batch, training):
        errors = model(batch, training=training) - batch["y"]
        return {"squared_error": tf.reduce_sum(errors**2), "error": tf.reduce_sum(tf.abs(errors))}


def make_trainer(strategy) -> Trainer:
    with strategy.scope():
        model = _Line()
        optimizer = AdamW(model.trainable_weights)
    schedule = make_schedule(0.01, 20, 2)
    return Trainer(strategy, model, _SquaredError(), optimizer, schedule)


def make_iterator(strategy, first_step=0):
    x = np.random.default_rng(0).normal(size=[32, 3]).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices({"x": x, "y": x @ np.float32([1, -2, 3])})
    batches = rows.repeat().skip(first_step * 8).batch(8, drop_remainder=True)
    return iter(strategy.experimental_distribute_dataset(batches))


@pytest.fixture(scope="module")
def losses() -> list[float]:
    strategy = one_device()
    trainer, iterator = make_trainer(strategy), make_iterator(strategy)
    losses = []
    for _ in range(10):
        trainer.restart_means()
        assert trainer.train(iterator, 1) is None
        losses.append(trainer.training_means()["loss"])
    return losses


class Run:
    def __init__(self, folder):
        self.folder, self.evaluated = folder, []

    def evaluate(self) -> dict[str, float]:
        """Notes the step; the metrics are those of its number."""
        step = int(self.trainer.step.numpy())
        self.evaluated.append(step)
        return {"z": 0.5, "a": 1.5, "score": step % 8 / 8}

    def driver(self, prepare=lambda trainer: None, **settings) -> Driver:
        self.trainer = make_trainer(one_device())
        settings = SETTINGS | settings
        settings.setdefault("evaluation_steps", settings["save_checkpoints_steps"])
        driver = Driver(str(self.folder), self.trainer, Plan(**settings))
        self.restored = driver.restore()
        prepare(self.trainer)
        return driver

    def phase(self, until_step=10, evaluate=None, **values) -> Phase:
        def batches(step):
            return make_iterator(self.trainer.strategy, first_step=step)

        return Phase(
            until_step=until_step, batch_size=8, batches=batches, evaluate=evaluate, **values
        )

    def train(self, until_step=10, evaluate=None, prepare=lambda trainer: None, **settings):
        driver = self.driver(prepare, **settings)
        self.results = driver.train([self.phase(until_step, evaluate)])
        return self.metrics()

    def metrics(self) -> list[dict]:
        """Returns the lines of metrics.jsonl without the times."""
        lines = read_metrics(f"{self.folder}/metrics.jsonl")
        return [{k: v for k, v in line.items() if k != "sequences_per_second"} for line in lines]

    def checkpoints(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.index"))


def in_step(number, action):
    """Returns a `prepare` that has `action`, of trainer and steps, run when a step begins."""

    def prepare(trainer):
        real = trainer.train

        def train(iterator, steps, shortcut):
            if trainer.step.numpy() == number - 1:
                action(trainer, steps)
            return real(iterator, steps, shortcut)

        trainer.train = train

    return prepare


def kill(*_):
    raise KeyboardInterrupt


@pytest.fixture
def make_run(tmp_path):
    return lambda name="run": Run(tmp_path / name)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("runs") / "whole")
    run.train(evaluate=run.evaluate)
    return run


@pytest.fixture(autouse=True)
def quick(whole_run, monkeypatch):
    """Saves the seconds that drawing the curves takes, except in `whole_run`."""
    monkeypatch.setattr(reports, "draw_curves", lambda *_: None)


def test_what_is_logged_saved_and_evaluated_when(whole_run, losses):
    """Oracles: steps taken one at a time, the schedule by hand, the files expected."""
    metrics = read_metrics(f"{whole_run.folder}/metrics.jsonl")
    assert [line["step"] for line in metrics] == [3, 6, 9, 10]
    for line, steps in zip(metrics, ([0, 3], [3, 6], [6, 9], [9, 10]), strict=True):
        assert line["loss"] == pytest.approx(np.mean(losses[slice(*steps)]), rel=1e-5)
        # Linear from 0.01 to 0 at step 20; the last step taken has number `step` - 1.
        assert line["learning_rate"] == pytest.approx(0.01 * (1 - (line["step"] - 1) / 20))
        assert line["loss"] == line["squared_error"] != line["error"]
        assert line["sequences_per_second"] > 0
    assert whole_run.evaluated == [4, 8, 10]
    assert whole_run.checkpoints() == ["ckpt-10", "ckpt-8"]
    assert whole_run.results == {"a": 1.5, "global_step": 10, "score": 0.25, "z": 0.5}
    folder = whole_run.folder
    written = (folder / "eval_results.txt").read_text()
    assert written == "a = 1.5\nglobal_step = 10\nscore = 0.25\nz = 0.5\n"
    assert [line["step"] for line in read_metrics(f"{folder}/eval_metrics.jsonl")] == [4, 8, 10]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "train").glob("events.out.tfevents.*"))


def test_the_number_of_steps_per_call_changes_nothing(whole_run, make_run, monkeypatch):
    """Oracle: the same run with another rhythm."""
    assert make_run("often").train(iterations_per_loop=1) == whole_run.metrics()
    monkeypatch.setattr(driver_module, "_REPORT_SECONDS", 1e6)
    assert make_run("seldom").train() == whole_run.metrics()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_resumes_exactly(whole_run, make_run, capsys, number):
    """Oracle: the uninterrupted run, bit for bit; the signal comes in step 5 of 10."""

    def send(*_):
        os.kill(os.getpid(), number)

    before, run = signal.getsignal(number), make_run()
    with pytest.raises(SystemExit) as stopped:
        run.train(prepare=in_step(5, send), iterations_per_loop=1)
    assert stopped.value.code == 128 + number
    assert signal.getsignal(number) is before
    output = capsys.readouterr().out
    assert "Saving a checkpoint; press Ctrl-C again to stop without saving.\n" in output
    assert "Stopped after step 5 and saved a checkpoint" in output
    assert (run.folder / "ckpt-5.index").exists()
    assert run.train() == whole_run.metrics()
    assert run.restored == f"{run.folder}/ckpt-5"


def test_a_signal_ends_an_evaluation_at_once(whole_run, make_run, capsys):
    """Oracle: the evaluations of the uninterrupted run."""
    run, ended = make_run(), []

    def evaluate():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.getsignal(signal.SIGTERM)  # Python handles signals between two instructions
        ended.append(1)

    with pytest.raises(SystemExit) as stopped:
        run.train(evaluate=evaluate)
    assert stopped.value.code == 128 + signal.SIGTERM and not ended
    assert "Stopped after step 4 and saved a checkpoint" in capsys.readouterr().out
    run.train(evaluate=run.evaluate)
    evaluations = read_metrics(f"{run.folder}/eval_metrics.jsonl")
    assert [line["step"] for line in evaluations] == whole_run.evaluated


def test_a_kill_before_the_first_checkpoint_starts_the_run_over(whole_run, make_run):
    """Oracle: the uninterrupted run, bit for bit; the kill comes after a line of metrics."""

    run = make_run()
    with pytest.raises(KeyboardInterrupt):
        run.train(prepare=in_step(4, kill))
    assert [line["step"] for line in run.metrics()] == [3] and not run.checkpoints()
    assert run.train() == whole_run.metrics()
    assert run.restored is None


def test_a_kill_between_checkpoint_and_evaluation_is_made_up_for(make_run):
    """Oracle: the steps at which the undisturbed run evaluates."""
    run = make_run()
    with pytest.raises(KeyboardInterrupt):
        run.train(evaluate=kill)
    run.train(evaluate=run.evaluate)
    assert run.evaluated == [4, 8, 10]
    # Nothing is left to train: the same command evaluates, perhaps on other data.
    run.train(evaluate=run.evaluate)
    assert run.evaluated == [4, 8, 10, 10]


def test_evaluation_alone_is_written_as_in_training(make_run, whole_run):
    """Oracle: the results given; metrics, results and checkpoints of later steps stay."""
    run = make_run("alone")
    run.train(until_step=3)
    beside = run.driver()
    run.train(until_step=6, evaluate=lambda: {"metric": 1.0})
    before = run.metrics()
    assert before[-1]["step"] == 6
    for result in (1.5, 2.5):
        results = {"metric": result, "global_step": 3}
        assert beside.evaluate(lambda result=result: {"metric": result}) == results
    assert read_results(f"{run.folder}/eval_results.txt") == {"metric": 1.0, "global_step": 6}
    assert run.metrics() == before
    run.driver(keep_checkpoints=1)
    assert run.checkpoints() == ["ckpt-4", "ckpt-6"]
    lines = read_metrics(f"{run.folder}/eval_metrics.jsonl")
    assert [line["step"] for line in lines] == [3, 4, 6] and lines[0]["metric"] == 2.5


def test_the_best_weights_are_kept(make_run):
    """Oracles: the weights at the first of the two best evaluations; a run that resumes."""
    run, weights = make_run(), {}

    def evaluate_as(*values):
        values = iter(values)

        def evaluate():
            weights[int(run.trainer.step.numpy())] = run.trainer.model.get_weights()
            return {"score": next(values), "other": 1.0}

        return evaluate

    settings = dict(save_checkpoints_steps=2, keep_checkpoints=1, best_metric="score")
    assert rank("eval_loss", 0.5) > rank("eval_loss", 0.7) > rank("loss", float("nan"))
    assert rank("eval_f1/loss", 0.7) > rank("eval_f1/loss", -0.5)
    run.train(until_step=6, evaluate=evaluate_as(float("nan"), 0.75, 0.75), **settings)
    driver = run.driver(**settings)
    best = {"score": 0.75, "other": 1.0, "global_step": 4}
    assert driver.train([run.phase(10, evaluate_as(0.5, 0.75))]) == best
    assert driver.best_results == read_results(f"{run.folder}/best/eval_results.txt") == best
    assert [path.stem for path in (run.folder / "best").glob("*.index")] == ["ckpt-4"]
    assert run.checkpoints() == ["ckpt-10"]
    driver.restore_best()
    assert driver.step == 4
    for ours, expected in zip(run.trainer.model.get_weights(), weights[4], strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_checkpoints_between_evaluations(make_run):
    """Oracle: multiples of the two numbers; a killed run resumes from the newest of both."""
    run = make_run()
    settings = dict(save_checkpoints_steps=3, evaluation_steps=4, best_metric="score", patience=2)
    with pytest.raises(KeyboardInterrupt):
        run.train(30, run.evaluate, in_step(8, kill), iterations_per_loop=1, **settings)
    assert run.checkpoints() == ["ckpt-4", "ckpt-6"] and run.evaluated == [4]
    run.train(30, run.evaluate, **settings)
    assert run.restored.endswith("ckpt-6")
    # 8 and 12 are no better than 4.
    assert run.evaluated == [4, 8, 12] and set(run.checkpoints()) == {"ckpt-9", "ckpt-12"}


def test_an_evaluation_is_one_line(make_run, capsys):
    """Oracle: the lines, by hand: values with four digits, and the first of the best marked."""

    def lines(folder, values, **settings):
        make_run(folder).train(
            until_step=10, evaluate=lambda: next(values), save_checkpoints_steps=4, **settings
        )
        return capsys.readouterr().out

    tasks = ({"eval_accuracy": x, "eval_f1": 0.5, "eval_loss": 1.23456} for x in (0.5, 0.75, 0.75))
    assert re.fullmatch(
        r"epoch 1/3: loss 1\.2346, accuracy 0\.5000 \(best\), \d+ seconds\n"
        r"epoch 2/3: loss 1\.2346, accuracy 0\.7500 \(best\), \d+ seconds\n"
        r"epoch 3/3: loss 1\.2346, accuracy 0\.7500, \d+ seconds\n",
        lines("tasks", tasks, best_metric="eval_accuracy", epoch_steps=4),
    )
    pretraining = ({"masked_lm_accuracy": 0.25, "masked_lm_loss": 2.0, "loss": 3.0} for _ in "123")
    assert re.fullmatch(
        r"(step (4|8|10)/10: loss 3\.0000, masked_lm_accuracy 0\.2500, \d+ seconds\n){3}",
        lines("pretraining", pretraining),
    )


def test_weights_before_the_first_best_step_are_not_kept(make_run):
    """Oracle: the best of the later evaluations, which is worse than an earlier one."""
    run, scores = make_run(), {2: 1.0, 4: 0.5, 6: 0.25}
    run.train(
        until_step=6,
        evaluate=lambda: {"score": scores[int(run.trainer.step.numpy())]},
        save_checkpoints_steps=2,
        best_metric="score",
        first_best_step=3,
    )
    assert run.results == {"score": 0.5, "global_step": 4}


def test_training_ends_early_and_a_resumed_run_at_the_same_step(make_run, capsys):
    """Oracle: the third and the fourth of the evaluations at steps 2, 4, ... are no better."""
    scores = {2: 0.5, 4: 0.75, 6: 0.7, 8: 0.75, 10: 1.0}
    settings = dict(save_checkpoints_steps=2, best_metric="score", patience=2)

    def evaluate():
        return {"score": scores[int(run.trainer.step.numpy())]}

    run = make_run()
    for _ in range(2):  # the finished run is not continued
        run.train(20, evaluate, **settings)
        assert run.checkpoints()[-1] == "ckpt-8"
        assert run.results == {"score": 0.75, "global_step": 4}
        line = "Stopping early after step 8: score was best at step 4, 0.7500.\n"
        assert line in capsys.readouterr().out
    run = make_run("killed")
    with pytest.raises(KeyboardInterrupt):
        run.train(20, evaluate, in_step(8, kill), iterations_per_loop=1, **settings)
    run.train(20, evaluate, **settings)
    assert run.restored.endswith("ckpt-6") and run.checkpoints()[-1] == "ckpt-8"


@pytest.mark.parametrize("steps", [(100, 150, 200), (0, 0, 1), (2**24, 2**24 + 1)])
def test_workers_that_start_from_different_steps_are_refused(make_run, monkeypatch, steps):
    """Oracle: the numbers; of the middle one, their mean is that of the worker itself."""
    monkeypatch.setattr(driver_module, "values_of_workers", lambda *_: np.array([steps]).T)
    with pytest.raises(ValueError, match="the workers start from different checkpoints"):
        make_run().driver(lambda trainer: trainer.step.assign(steps[1]))


def test_a_loss_that_is_not_finite_stops_at_its_step(make_run):
    """Oracle: the step after which a weight was made NaN, and the files in the folder."""
    run = make_run()
    run.train(until_step=6)

    def break_weight(trainer):
        trainer.model.kernel.assign(np.full(3, np.nan))

    driver = run.driver(break_weight)
    phase = run.phase(describe_batch=lambda step: f"Its records: those of {step}")
    with pytest.raises(NonFinite, match="the loss or the gradient of step 7 is not") as error:
        driver.train([phase])
    assert str(error.value).endswith("warm-up. Its records: those of 7")
    assert run.checkpoints() == ["ckpt-4", "ckpt-6"]
    assert [line["step"] for line in run.metrics()] == [3, 6]


def test_an_evaluation_whose_loss_is_not_finite_is_an_error(make_run):
    """Oracle: the name of the loss; no evaluation is written."""
    run = make_run()
    with pytest.raises(NonFinite, match="eval_loss is nan"):
        run.train(until_step=6, evaluate=lambda: {"eval_loss": float("nan")})
    assert read_metrics(f"{run.folder}/eval_metrics.jsonl") == []


def test_a_bad_loss_amid_a_call_is_found():
    """Oracle: step number 2, the third, gets an infinite learning rate: the fourth loss is bad."""
    strategy = one_device()
    trainer = make_trainer(strategy)
    schedule = trainer.schedule
    trainer.schedule = lambda step: tf.where(tf.equal(step, 2), np.inf, schedule(step))
    assert trainer.train(make_iterator(strategy), 6) == 4


@pytest.mark.parametrize("best_metric", [None, "score"])
@pytest.mark.parametrize("when", ["step", "evaluation"])
def test_a_removed_folder_does_not_appear_again(make_run, when, best_metric):
    """Oracle: the folder that the user removed is still gone after the error."""
    run = make_run()

    def remove(*_):
        shutil.rmtree(run.folder)

    prepare = in_step(2, remove) if when == "step" else lambda trainer: None
    evaluate = run.evaluate if when == "step" else lambda: remove() or run.evaluate()
    with one_line(f"{run.folder}.* was removed while the run trained: start it again"):
        run.train(8, evaluate, prepare, log_steps=8, best_metric=best_metric)
    assert not run.folder.exists()
