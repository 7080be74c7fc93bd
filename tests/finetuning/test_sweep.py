"""Several seeds and the paper's grid in one command."""

import contextlib
import dataclasses
import itertools
import json
import math
import os

import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import list_session_groups
from tensorboard.plugins.hparams.api_pb2 import ListSessionGroupsRequest
from tensorboard.plugins.hparams.backend_context import Context

from bert_tf.base.finite import NonFinite
from bert_tf.base.output_files import atomic_write, make_folder
from bert_tf.base.process import embedded
from bert_tf.compression.compression_options import COMPRESSION, CompressionOptions
from bert_tf.finetuning import sweep as sweep_module
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.run_process import run_apart
from bert_tf.finetuning.sweep import ScoreTable, list_settings, summarize, sweep
from bert_tf.runs.run import FINISHED, FLAGS, Run
from bert_tf.weights.opening import open_checkpoint


def make_options(folder, **flags) -> FineTuningOptions:
    values = dict(task="SST-2", output_dir=f"{folder}/runs", do_train=True, random_seed=7)
    return FineTuningOptions(**values | flags)


@pytest.fixture
def trained(monkeypatch) -> list[FineTuningOptions]:
    """The options of the runs that `sweep` starts; a run scores as `score` of its options says,
    which may also be an error."""
    options_of_runs = []

    def fake(name, options):
        if name.endswith(":check_data_of"):
            return {}
        accuracy = score(options)
        if isinstance(accuracy, BaseException):
            raise accuracy
        options_of_runs.append(options)
        results = {"eval_accuracy": accuracy, "eval_loss": 1 - accuracy, "global_step": 3}
        flags = dataclasses.asdict(options) | {"task": "sst2", FINISHED: True}
        make_folder(options.output_dir)
        for name, values in ((FLAGS, flags), (EVAL_RESULTS_JSON, results)):
            atomic_write(f"{options.output_dir}/{name}", json.dumps(values))
        return results

    monkeypatch.setattr(sweep_module, "run_apart", fake)
    return options_of_runs


def score(options: FineTuningOptions) -> float:
    """The best single run is that of seed 8 at 3e-5; the best mean is that of 2e-5."""
    scores = {2e-5: (0.5, 0.75), 3e-5: (0.25, 0.875)}
    epoch = 0.001 * options.num_train_epochs - 0.0001 * options.train_batch_size
    return scores.get(options.learning_rate, (0.5, 0.25))[options.random_seed - 7] + epoch


def test_the_paper_grid():
    """Oracle: BERT (arXiv:1810.04805) appendix A.3: 2 * 3 * 3 settings."""
    settings = list_settings(make_options("out", grid=True, num_seeds=2))
    assert len(settings) == len({setting.name for setting in settings}) == 18
    runs = [run for setting in settings for run in setting.runs.values()]
    assert len({run.output_dir for run in runs}) == 36
    found = {(r.train_batch_size, r.learning_rate, r.num_train_epochs, r.random_seed) for r in runs}
    assert found == {*itertools.product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4), (7, 8))}
    assert settings[0].name == "batch-16-rate-5e-05-epochs-2"
    assert not any(run.is_sweep for run in runs)


def test_seeds_are_compared(tmp_path, trained, capsys):
    """Oracle: the mean 0.3718 and the deviation sqrt(2) / 8 of two accuracies by hand."""
    options = make_options(tmp_path, num_seeds=2)
    best = sweep(options)
    assert [run.random_seed for run in trained] == [7, 8]
    assert best["eval_accuracy"] == pytest.approx(0.4998)
    values = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert (values["task"], values["metric"]) == ("sst2", "eval_accuracy")
    assert values["best"] == "seed-7"
    (setting,) = values["settings"]
    assert list(setting["runs"]) == ["seed-7", "seed-8"] and setting["runs"]["seed-7"] == best
    expected = {"mean": pytest.approx(0.3748), "deviation": pytest.approx(math.sqrt(2) / 8)}
    assert setting["summary"]["eval_accuracy"] == expected
    printed = capsys.readouterr().out
    assert (tmp_path / "runs" / "results.txt").read_text().rstrip() in printed
    assert "0.3748 on the dev set: mean of 2 seeds, standard deviation 0.1768; the best" in printed
    assert "run, seed-7, has 0.4998.\n" in printed
    assert printed.endswith(f"--checkpoint={tmp_path}/runs/seed-7 --output_dir=classifier\n")
    sweep(dataclasses.replace(options, num_seeds=1))
    assert "\nAccuracy 0.4998 on the dev set: seed-7.\n" in capsys.readouterr().out


DIVERGED = NonFinite("the loss of step 3 is not finite")


def test_seeds_that_diverge_do_not_count(tmp_path, trained, capsys, monkeypatch):
    """Oracle: the accuracies of the other seeds, by hand; one that is not a number is no best."""
    scores = {7: 0.4998, 8: DIVERGED}
    monkeypatch.setitem(globals(), "score", lambda options: scores[options.random_seed])
    sweep(make_options(tmp_path / "a", num_seeds=2))
    assert "Accuracy 0.4998 on the dev set: seed-7.\n" in capsys.readouterr().out
    rows = (tmp_path / "a/runs/results.txt").read_text().splitlines()
    assert [row.split() for row in rows if row.startswith("seed-8")] == [["seed-8", "diverged"]]
    scores.update({7: 7 / 16, 8: 0.5, 9: DIVERGED})
    sweep(make_options(tmp_path / "b", num_seeds=3))
    printed = capsys.readouterr().out
    assert "0.4688 on the dev set: mean of 2 seeds, standard deviation 0.0442; the best" in printed
    assert "run, seed-8, has 0.5000.\n" in printed
    rows = (tmp_path / "b/runs/results.txt").read_text().splitlines()
    found = [" ".join(row.split()) for row in rows[3:5]]
    assert found == ["seed-9 diverged", "mean 0.4688 ± 0.0442"]
    scores.update({7: math.nan, 8: 0.25})
    assert sweep(make_options(tmp_path / "c", num_seeds=2))["eval_accuracy"] == 0.25


def test_a_student_without_a_comparison_is_not_finished(tmp_path, trained):
    """Oracle: the runs that compress must finish; it evaluates the teacher last."""
    flags = dict(recipe="pd", teacher="big", task="sst2", num_seeds=2, random_seed=7)
    options = CompressionOptions(**flags, output_dir=f"{tmp_path}/runs")
    sweep(options)
    (tmp_path / "runs" / "seed-8" / COMPRESSION).write_text('{"recipe": "pd"}')
    for name in ("compression.md", "compression.png"):  # of compress --report
        (tmp_path / "runs" / name).touch()
    sweep(options)
    assert [run.random_seed for run in trained] == [7, 8, 7]


def test_a_folder_of_several_runs_stands_for_no_model(tmp_path, trained):
    """Oracle: the run with the highest accuracy, as predict and --init_checkpoint name it."""
    sweep(make_options(tmp_path, grid=True))
    best = f"{tmp_path}/runs/batch-16-rate-5e-05-epochs-4/seed-7"
    line = f"runs holds several runs and no model of its own: use the best run, {best}$"
    for open_ in (open_checkpoint, lambda path: open_fine_tuned(path, None, None, False)):
        with pytest.raises(FileNotFoundError, match=line):
            open_(f"{tmp_path}/runs/")
    options = make_options(tmp_path, do_train=False, do_eval=True)
    with pytest.raises(FileNotFoundError, match=line):
        fine_tune(dataclasses.replace(options, output_dir=f"{tmp_path}/runs"))


def test_finished_runs_are_not_repeated(tmp_path, trained, monkeypatch):
    """Oracle: the runs that are missing after a kill, and after more seeds were asked for."""
    options = make_options(tmp_path, num_seeds=2)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        scores = {7: 0.5, 8: KeyboardInterrupt()}
        patch.setitem(globals(), "score", lambda options: scores[options.random_seed])
        sweep(options)
    sweep(options)
    sweep(dataclasses.replace(options, num_seeds=3, learning_rate=5e-5, random_seed=6))
    assert [run.random_seed for run in trained] == [7, 8, 6]
    # A changed flag is for `fine_tune` to judge.
    sweep(dataclasses.replace(options, do_predict=True))
    assert [run.random_seed for run in trained[3:]] == [7, 8]


def test_the_grid_chooses_by_the_mean_over_seeds(tmp_path, trained, capsys, monkeypatch):
    """Oracle: by hand from `score`; one run diverged and does not count."""
    real = score

    def diverge_once(options):
        diverges = (options.learning_rate, options.train_batch_size) == (5e-5, 32)
        return DIVERGED if diverges else real(options)

    with monkeypatch.context() as patch:
        patch.setitem(globals(), "score", diverge_once)
        sweep(make_options(tmp_path, grid=True, num_seeds=2))
    values = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert values["best"] == "batch-16-rate-2e-05-epochs-4/seed-8"
    lines = (tmp_path / "runs" / "results.txt").read_text().splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:19]}
    assert rows["batch-16-rate-2e-05-epochs-4"][:3] == ["0.6274", "±", "0.1768"]
    assert rows["batch-16-rate-2e-05-epochs-4"][-1] == "best"
    assert rows["batch-32-rate-5e-05-epochs-2"] == ["diverged"]
    warning = "batch-32-rate-5e-05-epochs-4/seed-8 diverged: the loss of step 3 is not finite"
    assert warning in capsys.readouterr().out
    # A second sweep replaces the page of the first.
    sweep(make_options(tmp_path, grid=True, num_seeds=2))
    names = [path.name for path in (tmp_path / "runs").glob("events*")]
    assert len(names) == 1 and names[0].endswith(".hparams")
    rows = rows_of_tensorboard(tmp_path / "runs")
    assert len(rows) == 18
    assert rows[2e-5, 16, 4.0] == {"eval_accuracy": pytest.approx(0.6274)}


def rows_of_tensorboard(folder) -> dict[tuple, dict[str, float]]:
    """What TensorBoard's page HParams shows of the folder."""
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    context = Context(TBContext(logdir=str(folder), data_provider=provider))
    request = ListSessionGroupsRequest(slice_size=100, allowed_statuses=range(4))
    handler = list_session_groups.Handler(RequestContext(), context, "", request)
    names = ("learning_rate", "train_batch_size", "num_train_epochs")
    return {
        tuple(group.hparams[name].number_value for name in names): {
            value.name.tag: value.value for value in group.metric_values
        }
        for group in handler.run().session_groups
    }


def test_bad_sweeps_are_one_clear_line(tmp_path, trained):
    with pytest.raises(ValueError, match="num_seeds has no effect without --do_train: omit it, or"):
        make_options(tmp_path, num_seeds=2, do_train=False, do_eval=True)
    with pytest.raises(ValueError, match="--learning_rate and --grid exclude each other"):
        sweep(make_options(tmp_path, grid=True, learning_rate=1e-3))
    Run(f"{tmp_path}/runs").write_head(sweep_module.make_task(make_options(tmp_path)).head)
    with pytest.raises(ValueError, match="runs holds head.json, which --num_seeds and --grid"):
        sweep(make_options(tmp_path, grid=True))
    for name in ("results.json", "results.txt"):
        sweep_module.atomic_write(f"{tmp_path}/mine/{name}", "{}")
        with pytest.raises(FileExistsError, match=f"{name} exists: move it away, or choose"):
            sweep(make_options(tmp_path, num_seeds=2, output_dir=f"{tmp_path}/mine"))
        os.remove(f"{tmp_path}/mine/{name}")
    assert not trained


def test_summaries_and_tables():
    """Oracle: by hand; n - 1 in the denominator."""
    summary = summarize([{"f1": 0.25, "global_step": 1}, {"f1": 0.75, "global_step": 2}])
    assert summary == {"f1": (0.5, math.sqrt(0.125))}
    # A type of entity that only one of the taggers predicted.
    assert summarize([{"f1": 0.5, "f1_MISC": 0.0}, {"f1": 0.5}]).keys() == {"f1"}
    assert summarize([{"f1": 0.5}, {"f1": 0.5, "f1_MISC": 0.0}]).keys() == {"f1"}
    table = ScoreTable("F1", ["run", "f1"], [["a|b", "0.25"], ["c", "1,5"]])
    assert table.text() == "F1\nrun    f1\na|b  0.25\nc     1,5"
    assert table.markdown() == "**F1**\n\n| run | f1 |\n|---|---|\n| a\\|b | 0.25 |\n| c | 1,5 |"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "hint"), [(embedded, "python"), (contextlib.nullcontext, "shell")]
)
def test_a_run_in_another_process_talks_to_the_same_user(where, hint):
    """Oracle: the text for the user of this process."""
    with where():
        assert run_apart("bert_tf.base.progress:for_caller", "shell", "python") == hint
