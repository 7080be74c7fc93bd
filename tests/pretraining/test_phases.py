"""Phases, held-out records and objectives, on records of known content."""

import json
import pathlib
from types import SimpleNamespace

import pytest

from bert_tf.pretraining import phase_data
from bert_tf.pretraining.run_records import read_phases
from bert_tf.run_pretraining import Options, run
from bert_tf.sessions.learner import Training
from bert_tf.training.reports import read_metrics
from tfrecords.manifest import shard_entry, write_manifest


@pytest.fixture
def two_phases(flags, data, tmp_path) -> dict:
    """Three quarters of 12 steps with masked records, then dynamic ones in smaller batches."""
    phases = [
        {"share": 0.75},
        {
            "share": 0.25,
            "input_file": str(data / "dynamic.tfrecord"),
            "eval_input_file": str(data / "dynamic.tfrecord"),
            "train_batch_size": 4,
        },
    ]
    path = tmp_path / "phases.json"
    path.write_text(json.dumps(phases))
    return flags | {"phases_file": str(path), "log_steps": 1, "save_checkpoints_steps": 100}


@pytest.mark.slow
def test_two_phases_are_one_run(two_phases, monkeypatch, no_learning, capsys):
    """Oracles: shares computed by hand; one schedule over both phases; what each phase reads."""
    seen = []
    real = phase_data.reader.training_batches

    def spy(records, batch_size, *, context, first_step):
        seen.append((records.files[0].rpartition("/")[2], batch_size, first_step))
        return real(records, batch_size, context=context, first_step=first_step)

    monkeypatch.setattr(phase_data.reader, "training_batches", spy)
    run(Options(**two_phases))
    assert seen == [("train.tfrecord", 6, 0), ("dynamic.tfrecord", 4, 0)]
    folder = pathlib.Path(two_phases["output_dir"])
    assert sorted(path.stem for path in folder.glob("*.index")) == ["ckpt-12", "ckpt-9"]
    metrics = read_metrics(str(folder / "metrics.jsonl"))
    rates = [line["learning_rate"] for line in metrics]
    assert rates[2:] == pytest.approx([0.05 * (1 - step / 12) for step in range(2, 12)], rel=1e-5)
    # Evaluated at the end of each phase, on its own records.
    evaluations = read_metrics(str(folder / "eval_metrics.jsonl"))
    assert [line["step"] for line in evaluations] == [9, 12]
    # Every masked token is the same, so that no prediction is better than a constant one.
    assert capsys.readouterr().out.count("is no better than always predicting") == 1

    # Resuming within the second phase continues with its own steps.
    (folder / "checkpoint").unlink()
    for path in folder.glob("ckpt-12*"):
        path.unlink()
    run(Options(**two_phases | {"do_eval": False, "eval_input_file": None}))
    assert seen[2:] == [("dynamic.tfrecord", 4, 0)]
    assert read_metrics(str(folder / "metrics.jsonl"))[-1]["loss"] == metrics[-1]["loss"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a JSON list of objects"),
        ("{}", "is not a JSON list of objects"),
        ('[{"share": 0.5}]', "add up to 0.5, not to 1"),
        ("[{}]", "phase 1: share is None: give this phase's share"),
        ('[{"share": 1, "sequence": 1}]', "phase 1: unknown key 'sequence': the keys are"),
        ('[{"share": 1, "max_seq_length": "128"}]', "phase 1: --max_seq_length is '128'"),
        ('[{"share": 1, "train_batch_size": 0}]', "phase 1: --train_batch_size is 0"),
        # A hundredth of 6 steps rounds to none.
        ('[{"share": 0.99}, {"share": 0.01}]', "phase 2: share 0.01 of --num_train_steps=6 is"),
    ],
)
def test_impossible_phases_are_named(flags, tmp_path, content, message):
    """Oracle: the message."""
    path = tmp_path / "phases.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{path}.*{message}"):
        read_phases(Options(**flags | {"phases_file": str(path), "num_train_steps": 6}))


@pytest.mark.parametrize(("steps", "ends"), [(10, [1, 3, 10]), (33, [3, 10, 33])])
def test_shares_of_steps(flags, tmp_path, steps, ends):
    """Oracle: computed by hand; together the phases take all steps."""
    path = tmp_path / "phases.json"
    path.write_text(json.dumps([{"share": share} for share in (0.1, 0.2, 0.7)]))
    phases = read_phases(Options(**flags | {"phases_file": str(path), "num_train_steps": steps}))
    assert [last for last, _ in phases] == ends


@pytest.mark.usefixtures("no_learning", "eagerly")
@pytest.mark.slow
def test_records_are_held_out_and_stay_held_out(flags, data, tmp_path, capsys):
    """Oracles: the records trained on, even once they are moved; the results of other batches."""
    mine, other = tmp_path / "mine.tfrecord", data / "heldout.tfrecord"
    mine.write_bytes((data / "train.tfrecord").read_bytes())
    moved = tmp_path / "moved" / "mine.tfrecord"
    moved.parent.mkdir()
    path = tmp_path / "phases.json"
    path.write_text('[{"share": 0.5}, {"share": 0.5}]')
    asked = flags | {"input_file": str(mine), "eval_input_file": None, "eval_batch_size": 1}
    phases = {"phases_file": str(path), "num_train_steps": 2}
    results = run(Options(**asked | phases))
    assert "One record in a hundred of each file is held out" in capsys.readouterr().out
    alone = asked | {"do_train": False, "eval_batch_size": 5}
    for file, held_out in ((mine, True), (moved, True), (other, False)):
        found = run(Options(**alone | {"input_file": str(file)}))
        assert ("is held out of training" in capsys.readouterr().out) == held_out
        assert (found == pytest.approx(results, rel=1e-5)) == held_out
        if mine.exists():
            mine.rename(moved)


def _manifest(data: pathlib.Path, folder: pathlib.Path, objective: str) -> str:
    """Copies the records, with a manifest that states their objective."""
    path = folder / f"{objective}.tfrecord"
    path.write_bytes((data / "train.tfrecord").read_bytes())
    manifest = {"shards": [shard_entry(str(path), 24)], "settings": {"objective": objective}}
    write_manifest(str(folder / f"{objective}.manifest.json"), manifest)
    return str(path)


@pytest.mark.usefixtures("no_learning", "eagerly")
def test_the_objective_is_that_of_the_examples(flags, data, untrained, tmp_path):
    """Oracle: the metrics of each objective."""
    files = {name: _manifest(data, tmp_path, name) for name in ("mlm", "sop", "nsp")}
    alone = flags | {"do_train": False, "init_checkpoint": untrained}
    for name in ("mlm", "sop"):
        changes = {"eval_input_file": files[name], "output_dir": str(tmp_path / name)}
        results = run(Options(**alone | changes))
        assert ("next_sentence_loss" in results) == (name != "mlm")
    both = {"input_file": f"{files['nsp']},{files['sop']}"}
    with pytest.raises(ValueError, match="nsp.manifest.json says nsp, but .*sop.* says sop"):
        run(Options(**flags | both))
    for made_for, wanted in (("mlm", "nsp"), ("nsp", "sop"), ("sop", "nsp")):
        message = f"--objective says {wanted}, but .*{made_for}.manifest.json says {made_for}: "
        with pytest.raises(ValueError, match=message):
            run(Options(**flags | {"input_file": files[made_for], "objective": wanted}))
    run(Options(**flags | {"objective": "mlm", "num_train_steps": 1, "do_eval": False}))
    (metrics,) = read_metrics(f"{flags['output_dir']}/metrics.jsonl")
    assert "next_sentence_loss" not in metrics


@pytest.mark.slow
def test_left_to_right(flags, data, config, tmp_path):
    """Oracle: the records, [CLS] 7 7 7 ... [SEP], in which every next token can be learned.

    15 tokens are predicted; the last, [SEP], takes a model that counts positions.
    """
    dynamic = str(data / "dynamic.tfrecord")
    flags |= {"masking": "left_to_right", "input_file": dynamic, "eval_input_file": dynamic}
    with pytest.raises(ValueError, match='left_to_right needs .*"is_decoder": true'):
        run(Options(**flags))
    path = tmp_path / "decoder.json"
    path.write_text(json.dumps(config.to_dict() | {"is_decoder": True}))
    changes = {"bert_config_file": str(path), "num_train_steps": 40, "save_checkpoints_steps": 100}
    results = run(Options(**flags | changes))
    assert results["masked_lm_accuracy"] >= 14 / 15


def test_an_evaluation_alone_is_that_of_the_phase_that_trained_last():
    """Oracle: by hand; a phase ends with its last step."""
    phases = [SimpleNamespace(until_step=n, evaluate=n) for n in (5, 9)]
    session = SimpleNamespace(options=SimpleNamespace(do_train=False))
    for step, phase in ((0, 5), (5, 5), (6, 9), (12, 9)):
        driver = SimpleNamespace(step=step, evaluate=lambda evaluate: evaluate)
        training = SimpleNamespace(session=session, driver=driver)
        assert Training.run(training, phases) == phase
