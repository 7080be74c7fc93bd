"""Numbers of any unit, from a table to predictions and files for other programs."""

import csv
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from support import tuning_options

from bert_tf import compress, convert_checkpoint, predict
from bert_tf.finetuning.registry import make_task
from bert_tf.run_finetuning import Options, run
from bert_tf.runs.run import Run
from bert_tf.sessions.learner import Training
from bert_tf.training.reports import read_results
from export import classifier

MEAN, DEVIATION = 250_000.0, 40_000.0
FILES = ("train_file", "dev_file")


@pytest.fixture(scope="module")
def runs(files, sentences, tmp_path_factory) -> dict[str, Options]:
    """Finished runs on prices, and on the same prices as deviations from their mean."""
    folder = tmp_path_factory.mktemp("numbers")
    texts, labels = zip(*sentences(128, seed=0), strict=True)
    values = np.array(labels) + np.random.default_rng(0).normal(0, 0.1, len(labels))
    values = (values - values.mean()) / values.std()
    found = {}
    for name, column in (("prices", values * DEVIATION + MEAN), ("plain", values)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *zip(texts, column, strict=True)])
        flags = dict.fromkeys(FILES, str(folder / f"{name}.csv"))
        flags |= {"task": "csv", "label_type": "number", "data_dir": None}
        found[name] = tuning_options(files, folder / name, num_train_epochs=3.0, **flags)
        run(found[name])
    return found


def dev_predictions(options: Options) -> np.ndarray:
    with open(f"{options.output_dir}/predictions_dev.tsv") as file:
        return np.array([float(row["prediction"]) for row in csv.DictReader(file, delimiter="\t")])


def predicted(path: str, texts: list[str], capsys) -> np.ndarray:
    capsys.readouterr()
    predict.run(predict.Options(checkpoint=path, texts=tuple(texts), json=True, max_seq_length=24))
    lines = capsys.readouterr().out.splitlines()
    return np.array([json.loads(line)["value"] for line in lines])


@pytest.mark.slow
def test_the_unit_of_the_numbers_does_not_matter(runs):
    """Oracle: the run on the standardized numbers, in which every step is the same."""
    head = Run(runs["prices"].output_dir).head
    assert (head.mean, head.deviation) == pytest.approx((MEAN, DEVIATION), rel=1e-6)
    found, plain = map(dev_predictions, runs.values())
    np.testing.assert_allclose((found - MEAN) / DEVIATION, plain, atol=1e-3)
    prices, numbers = (read_results(f"{o.output_dir}/eval_results.txt") for o in runs.values())
    assert prices["eval_pearson"] > 0.9
    for metric in ("eval_loss", "eval_pearson"):
        assert prices[metric] == pytest.approx(numbers[metric], rel=1e-3)
    error = numbers["eval_mean_squared_error"] * DEVIATION**2
    assert prices["eval_mean_squared_error"] == pytest.approx(error, rel=1e-3)


def test_other_runs_know_the_unit(runs, tmp_path, eagerly):
    """Oracles: the results of the run; for a student, its teacher."""
    options = runs["prices"]
    results = read_results(f"{options.output_dir}/eval_results.txt")
    again = run(dataclasses.replace(options, do_train=False))
    assert again["eval_mean_squared_error"] == pytest.approx(results["eval_mean_squared_error"])
    flags = {name: getattr(options, name) for name in ("task", "label_type", *FILES)}
    student = compress.Options(
        recipe="pd", teacher=options.output_dir, output_dir=str(tmp_path / "student"),
        student_layers="0", max_seq_length=24, num_train_epochs=1.0, **flags,
    )  # fmt: skip
    found = compress.run(student)
    head = Run(options.output_dir).head
    assert make_task(Options(task="stsb", output_dir="unused", do_eval=True), head).head == head
    assert Run(student.output_dir).head == head
    assert found["eval_loss"] == pytest.approx(results["eval_loss"], abs=0.1)


def test_a_run_without_a_checkpoint_says_nothing_of_the_next(runs, tmp_path, monkeypatch):
    """Oracle: the numbers of the second run."""
    prices, plain = (dataclasses.replace(x, output_dir=str(tmp_path)) for x in runs.values())

    def stop(*_):
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run", stop)
        for options in (prices, plain):
            with pytest.raises(InterruptedError):
                run(options)
    head = Run(str(tmp_path)).head
    assert head == Run(runs["plain"].output_dir).head and abs(head.mean) < 1


@pytest.mark.slow
def test_other_programs_get_the_numbers_themselves(runs, sentences, tmp_path, capsys):
    """Oracle: the predictions of the run."""
    source, texts = runs["prices"].output_dir, [text for text, _ in sentences(4, seed=0)]
    expected = dev_predictions(runs["prices"])[:4]
    np.testing.assert_allclose(predicted(source, texts, capsys), expected, rtol=2e-5)
    for target in ("huggingface", "google", "run"):
        folder = str(tmp_path / target)
        options = convert_checkpoint.Options(from_=f"{source}/best", to=target, output_dir=folder)
        convert_checkpoint.run(options)
        np.testing.assert_allclose(predicted(folder, texts, capsys), expected, rtol=2e-5)
    config = json.loads((tmp_path / "huggingface/config.json").read_text())
    assert config["problem_type"] == "regression"
    classifier.run(classifier.Options(checkpoint=source, output_dir=f"{tmp_path}/export"))
    found = tf.saved_model.load(f"{tmp_path}/export")(texts)["value"]
    np.testing.assert_allclose(found, expected, rtol=2e-5)
