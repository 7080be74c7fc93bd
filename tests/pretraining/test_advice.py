"""What a run says about its duration and its predictions; what it remembers of its records."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelSpec, preset_config
from bert_tf.pretraining import phase_data
from bert_tf.pretraining.run_records import (
    PhaseRecords,
    check_unchanged,
    describe_records,
    name_records,
)
from bert_tf.run_pretraining import Options, run
from bert_tf.runs.run import Run
from tfrecords.manifest import shard_entry, write_manifest
from tfrecords.reader import RecordSet

RECORDS = RecordSet(files=(), max_seq_length=128, max_predictions_per_seq=20, vocab_size=30522)


def phase(records: RecordSet, first_step: int, until_step: int, batch_size: int) -> PhaseRecords:
    return PhaseRecords(
        first_step=first_step,
        until_step=until_step,
        train=records,
        evaluation=records,
        train_batch_size=batch_size,
    )


@pytest.mark.parametrize(
    ("preset", "length", "predictions", "batch_size", "peak", "seconds_per_step"),
    [
        ("base", 128, 20, 16, 953e9, 3.527),
        ("tiny", 64, 10, 32, 953e9, 1 / 9.4),
        ("mini", 64, 20, 32, 953e9, 1 / 3.6),
    ],
)
def test_the_duration_is_about_right(
    preset, length, predictions, batch_size, peak, seconds_per_step
):
    """Oracle: the steps that docs/results.md measured, and the peak of that machine. A factor of
    1.5 is close enough for a first estimate."""
    config = preset_config(preset)
    records = dataclasses.replace(
        RECORDS, max_seq_length=length, max_predictions_per_seq=predictions
    )
    phases = [phase(records, 0, 9000, batch_size), phase(records, 9000, 10_000, batch_size)]
    # 5,000 steps are left.
    line = phase_data.announce_duration(config, phases, 5000, peak)
    assert line.startswith("5,000 steps will take roughly ")
    value, unit = line.removeprefix("5,000 steps will take roughly ").split(",")[0].split()
    seconds = float(value) * {"hours": 3600, "minutes": 60}[unit]
    expected = 5000 * seconds_per_step
    assert expected / 1.5 < seconds < expected * 1.5


def test_a_constant_prediction_is_recognized():
    """Oracle: a factor of 1.1, by hand; three of five tokens are the token 7."""
    counts = np.bincount([7, 5, 5, 7, 7], minlength=40)
    assert phase_data.constant_prediction(counts, 9, 0.67, None) is None
    warning = phase_data.constant_prediction(counts, 4000, 0.65, None)
    assert warning.startswith(
        "WARNING: step 4,000: masked_lm_accuracy 0.6500 is no better than always predicting the "
        "token 7 (0.6000)."
    )


def test_an_evaluation_warns(flags, untrained, write_records_of, tmp_path, capsys):
    """Oracle: numpy's count of the masked tokens of the records that the evaluation reads."""
    random = np.random.default_rng(0)
    ids = random.choice(40, [30, 3], p=np.r_[0.5, np.full(39, 0.5 / 39)])
    weights = (np.arange(3) < random.integers(1, 4, [30, 1])).astype(np.float32)
    ids *= weights.astype(int)
    positions = [1, 2, 3] * weights.astype(int)
    path = str(tmp_path / "records.tfrecord")
    predictions = dict(masked_lm_positions=positions, masked_lm_ids=ids, masked_lm_weights=weights)
    write_records_of(path, 30, **predictions)
    flags |= {"eval_input_file": path, "eval_batch_size": 8, "max_eval_steps": 2}
    flags |= {"init_checkpoint": untrained, "do_train": False, "vocab_file": None}
    run(Options(**flags))
    share = ((ids[:16] == 0) * weights[:16]).sum() / weights[:16].sum()
    printed = capsys.readouterr().out
    assert f"is no better than always predicting the token 0 ({share:.4f})" in printed
    assert f"WARNING: in 100.0% of the first 30 records of {path}, next_sentence_labels" in printed


def test_records_with_nothing_to_teach_give_a_warning(data, write_records_of, tmp_path):
    """Oracles: the labels of the records, which are all 1; weights that are all 0."""
    read = dict(max_seq_length=16, max_predictions_per_seq=3, vocab_size=40)
    train, heldout = (str(data / f"{name}.tfrecord") for name in ("train", "heldout"))
    records = phase(RecordSet(files=(train,), **read), 0, 9, 8)
    records = dataclasses.replace(records, evaluation=RecordSet(files=(heldout,), **read))

    def warnings(with_pairs=True, **flags) -> list[str]:
        options = Options(input_file="x", output_dir="x", **flags)
        return phase_data.record_warnings(options, [records, records], with_pairs)

    first, second = warnings(do_train=True, do_eval=True)
    assert f"the first 24 records of {train}, next_sentence_labels is 1" in first
    assert f"the first 21 records of {heldout}" in second
    assert warnings(do_train=True) == [first] and warnings(do_eval=True) == [second]
    assert warnings(do_train=True, with_pairs=False) == []
    empty = str(tmp_path / "empty.tfrecord")
    nothing = {f"masked_lm_{x}": np.zeros((24, 3), int) for x in ("positions", "ids")}
    write_records_of(empty, 24, masked_lm_weights=np.zeros((24, 3), np.float32), **nothing)
    records = dataclasses.replace(records, train=RecordSet(files=(empty,), **read))
    (warning,) = warnings(do_train=True, with_pairs=False)
    assert warning.startswith(f"WARNING: the first 24 records of {empty} predict no token")


def test_the_perplexity_of_a_diverged_run_is_finite():
    """Oracle: the largest float32, the type of TensorBoard's numbers."""
    metrics = {"masked_lm_loss": 1e5, "masked_lm_accuracy": 0.0}
    trainer = types.SimpleNamespace(step=tf.Variable(1), evaluate=lambda batches, steps: metrics)
    options = Options(input_file="x", output_dir="x", do_train=True)
    session = types.SimpleNamespace(options=options, is_chief=True, say=print)
    training = types.SimpleNamespace(session=session, trainer=trainer)
    data = phase_data.PhaseData(training, None, [], np.zeros(1))
    data._evaluation_batches = []
    assert np.isfinite(np.float32(data._evaluate()["masked_lm_perplexity"]))


def test_what_the_run_does_not_know_is_not_part_of_the_command(config, tmp_path):
    """Oracle: the line itself: it can be pasted, and says what to add."""
    *_, line = phase_data.next_step(ModelSpec(config), Run(str(tmp_path))).split("\n")
    assert line == (
        "Next (add --vocab_file and --do_lower_case or --nodo_lower_case): "
        f"python -m export.encoder --checkpoint={tmp_path} --output_dir=encoder"
    )


def test_other_records_under_the_same_name_are_named(tmp_path, monkeypatch):
    """Oracles: a file without a manifest changed, removed, added; a new set with a manifest."""
    monkeypatch.chdir(tmp_path)
    files = [tmp_path / f"{name}.tfrecord" for name in "abc"]
    for file in files[:2]:
        file.write_text("records of " + file.name)
    options = dict(input_file="*.tfrecord", output_dir="run", preset="tiny", do_train=True)
    run = Run("run")

    def contents(**changes):
        return describe_records(name_records(Options(**options | changes)))

    def differences(message, **changes):
        with pytest.raises(ValueError, match=f"run was made from .*{message}"):
            check_unchanged(Run("run"), contents(**changes))

    run.record_made_from(contents())
    files[0].write_text("longer records of a")
    (tmp_path / "run" / "flags.json").write_text('{"command": "x"}')
    check_unchanged(Run("run"), contents())  # there is no checkpoint to resume from
    (tmp_path / "run" / "ckpt-1.index").touch()
    differences(r"\(./a.tfrecord had 21 bytes and has 19\): restore the records")
    files[0].write_text("RECORDS of " + files[0].name)
    differences(r"\(./a.tfrecord has changed\)")
    files[2].write_text("more")
    files[1].unlink()
    differences("changed, ./c.tfrecord is new, ./b.tfrecord is gone")
    # Another --input_file is a decision, and does not make the run forget the first.
    check_unchanged(Run("run"), contents(input_file="c.tfrecord"))
    run.record_made_from(contents(input_file="c.tfrecord"))
    differences("b.tfrecord is gone")
    # The manifest knows the checksum of the whole file.
    write_manifest("c.manifest.json", {"shards": [shard_entry("c.tfrecord", 1)]})
    check_unchanged(Run("run"), contents(input_file="c.tfrecord"))
    run.record_made_from(contents(input_file="c.tfrecord"))
    entry = shard_entry("c.tfrecord", 1) | {"sha256": "0" * 64}
    write_manifest("c.manifest.json", {"shards": [entry]})
    differences("c.tfrecord has changed", input_file="c.tfrecord")
    (tmp_path / "run" / "made_from.json").unlink()
    check_unchanged(Run("run"), contents(input_file="c.tfrecord"))
