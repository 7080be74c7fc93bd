"""Pre-training from records on disk: results file, resuming, manifests, bad input."""

import contextlib
import dataclasses
import io
import pathlib
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from support import create_records

from bert_tf import run_pretraining
from bert_tf.base.output_files import locked
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.pretraining.run_records import check_records, name_records, stated_by_manifests
from bert_tf.run_pretraining import Options, run
from bert_tf.runs.run import Run
from bert_tf.sessions.session import Session
from bert_tf.training.driver import Driver
from bert_tf.training.trainer import Trainer
from bert_tf.weights.resolving import resolve_model
from tfrecords.features import write_records
from tfrecords.vocabulary import load_vocab


@pytest.fixture(scope="module")
def finished(base_flags, tmp_path_factory) -> types.SimpleNamespace:
    """A run that was killed after its first checkpoint and then resumed."""
    flags = base_flags | {"output_dir": str(tmp_path_factory.mktemp("finished") / "run")}
    folder, train = pathlib.Path(flags["output_dir"]), Trainer.train

    def killed_after_the_first_checkpoint(trainer, *arguments):
        if trainer.step.numpy() >= 4:
            raise KeyboardInterrupt
        return train(trainer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train", killed_after_the_first_checkpoint)
        with pytest.raises(KeyboardInterrupt):
            run(Options(**flags))
    killed_at = [path.stem for path in folder.glob("*.index")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        results = run(Options(**flags))
    return types.SimpleNamespace(
        folder=folder, killed_at=killed_at, results=results, printed=printed.getvalue()
    )


@pytest.fixture
def copied(finished, flags) -> dict:
    shutil.copytree(finished.folder, flags["output_dir"])
    return flags


def test_trains_evaluates_and_resumes(finished, copied, config, capsys):
    """Oracles: what the records teach, the original's result keys, and the flags."""
    save = run_pretraining.Options.save_checkpoints_steps
    assert save == 1000  # the original's default
    folder, results = finished.folder, finished.results
    assert finished.killed_at == ["ckpt-4"]
    assert f"Resuming from {folder}/ckpt-4, step 4." in finished.printed
    assert "Changed since the last start" not in finished.printed
    assert sorted(path.stem for path in folder.glob("*.index")) == ["ckpt-12", "ckpt-4", "ckpt-8"]
    assert results["global_step"] == 12
    assert results["masked_lm_accuracy"] == results["next_sentence_accuracy"] == 1.0
    assert BertConfig.from_json_file(str(folder / "bert_config.json")) == config
    texts = Run(str(folder)).flags["some_texts"]
    assert len(texts) == 4 and all(re.fullmatch(r"w\d+( w\d+){13}", text) for text in texts)

    lines = (folder / "eval_results.txt").read_text().splitlines()
    written = {key: float(value) for key, value in (line.split(" = ") for line in lines)}
    assert written == results
    keys = """global_step loss masked_lm_accuracy masked_lm_loss masked_lm_perplexity
    next_sentence_accuracy next_sentence_loss"""
    assert set(written) == {*keys.split()}
    assert written["masked_lm_perplexity"] == pytest.approx(np.exp(written["masked_lm_loss"]))
    for name in ("train", "eval"):
        assert list((folder / name).glob("events.out.tfevents.*"))

    # Nothing is left to train; another batch size gives the same metrics and is reported.
    again = run(Options(**copied | {"eval_batch_size": 5}))
    assert again == pytest.approx(results, rel=1e-5)
    output = capsys.readouterr().out
    assert "Changed since the last start: --eval_batch_size 8 -> 5." in output
    assert output.count("Changed since the last start") == 1


@pytest.mark.slow
def test_starts_from_a_checkpoint_of_another_run(copied, finished, tmp_path, capsys, no_learning):
    """Oracle: the results of the run that the weights come from."""
    start = {"init_checkpoint": copied["output_dir"], "output_dir": str(tmp_path / "second")}
    second = copied | start | {"num_train_steps": 1}
    found = run(Options(**second))
    assert f"weights from {copied['output_dir']}/ckpt-12." in capsys.readouterr().out
    for name in ("masked_lm_loss", "next_sentence_loss"):
        assert found[name] == pytest.approx(finished.results[name], rel=1e-5)
    # Once the run has a checkpoint of its own, it no longer needs the other.
    shutil.rmtree(copied["output_dir"])
    assert run(Options(**second)) == pytest.approx(found, rel=1e-5)


def test_evaluation_alone_uses_the_input_file(copied, finished, data, monkeypatch, capsys):
    """Oracle: the evaluation of the same file as --eval_input_file; --quiet leaves four lines."""
    monkeypatch.setenv("BERT_TF_QUIET", "1")
    same = {"input_file": str(data / "heldout.tfrecord"), "eval_input_file": None}
    assert run(Options(**copied | same | {"do_train": False})) == finished.results
    printed = capsys.readouterr()
    labels, warning, metrics, result = printed.out.splitlines()
    assert "next_sentence_labels is 1" in labels
    assert warning.startswith("WARNING: step 12: masked_lm_accuracy 1.0000 is no better than")
    assert metrics.startswith("masked_lm_accuracy 1.0000, next_sentence_accuracy ")
    assert metrics.endswith(" at step 12.")
    assert result.startswith(f"Wrote {copied['output_dir']}: eval_results.txt.")
    assert printed.err == ""


def test_one_run_trains_in_a_folder_but_another_may_evaluate(copied, finished):
    """Oracle: the files of the folder; the evaluation of the finished run."""
    folder = pathlib.Path(copied["output_dir"])
    with locked(str(folder)):
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        with pytest.raises(OSError, match="run is in use by process"):
            run(Options(**copied))
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
        assert run(Options(**copied | {"do_train": False})) == finished.results


@pytest.mark.usefixtures("eagerly")
@pytest.mark.slow
def test_skips_padding_where_xla_compiles(
    flags, config, write_records_of, tmp_path, monkeypatch, capsys
):
    """Oracle: the evaluation of a run on a CPU. Half of the places are padding."""
    still = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    flags |= {name: str(tmp_path / name) for name in ("bert_config_file", "input_file")}
    flags |= {"train_batch_size": 64, "gradient_accumulation_steps": 2, "num_train_steps": 4}
    dataclasses.replace(config, **still).to_json_file(flags["bert_config_file"])
    mask = np.tile(np.arange(16) < 8, (24, 1)).astype(np.int64)
    ids = np.tile([2, *[7] * 6, 3, *[0] * 8], (24, 1))
    write_records_of(flags["input_file"], 24, input_mask=mask, input_word_ids=ids)
    expected = run(Options(**flags))
    assert "Skipping padding" not in capsys.readouterr().out
    monkeypatch.setattr(Session, "device", "GPU")
    found = run(Options(**flags | {"output_dir": str(tmp_path / "gpu")}))
    assert found == pytest.approx(expected, rel=1e-4)
    assert "Skipping padding: steps compute 256 of 512 positions," in capsys.readouterr().out


@pytest.mark.slow
def test_masks_dynamic_records(flags, data):
    """Oracles: what the records teach; the flags, in training and in evaluation."""
    dynamic = str(data / "dynamic.tfrecord")
    flags = flags | {"input_file": dynamic, "eval_input_file": dynamic}
    flags |= {"masking": "whole_word", "masked_lm_prob": 0.2, "save_checkpoints_steps": 100}
    flags |= {"replacements": "100,0,0"}
    options = Options(**flags)
    assert run(options)["masked_lm_accuracy"] == 1.0
    spec = Run(options.output_dir).spec
    (phase,) = check_records(options, spec, name_records(options), ())
    for records in (phase.train, phase.evaluation):
        assert records.masking.units == "whole_word"
        assert records.masking.masked_lm_prob == 0.2
        assert records.masking.tenths == (10, 0, 0)
    with pytest.raises(ValueError, match="masked_lm_prob is 0: it must be from"):
        run(Options(**flags | {"masked_lm_prob": 0}))


def test_masking_flags_are_checked(flags, data):
    """Oracle: the message names the file or flag."""
    masked = {"masking": "wordpiece"}, {"masked_lm_prob": 0.15}, {"replacements": "80,10,10"}
    for change in masked:
        (name,) = change
        with pytest.raises(ValueError, match=f"--{name} needs .*train.tfrecord is already masked"):
            run(Options(**flags | change))
    dynamic = {"input_file": str(data / "dynamic.tfrecord")}
    # Not that the masked records lack the length, which is only that of the dynamic ones.
    for length in (3, 7):
        change = dynamic | {"max_predictions_per_seq": length}
        with pytest.raises(ValueError, match="heldout.* as in .*dynamic.tfrecord: create both"):
            run(Options(**flags | change))
    alone = dynamic | {"do_eval": False, "vocab_file": None}
    with pytest.raises(ValueError, match="dynamic.tfrecord is masked while .* its --vocab_file"):
        run(Options(**flags | alone))


@pytest.fixture(scope="module")
def created(data, tmp_path_factory) -> pathlib.Path:
    """Examples of a small cased text as create_pretraining_data leaves them, masked and dynamic."""
    folder = tmp_path_factory.mktemp("created")
    (folder / "text.txt").write_text("w1 w2 w3\nw4 w5\n\nw6 w7\nw8 w9\n" * 4)
    (folder / "vocab.txt").write_text((data / "vocab.txt").read_text() + "\n")
    for masking, changes in (("wordpiece", {}), ("dynamic", {"masked_lm_prob": 0.25})):
        changes |= dict(masking=masking, do_lower_case=False)
        create_records(folder, masking, 24, 4, **changes)
    return folder


@pytest.mark.parametrize("masking", ["wordpiece", "dynamic"])
def test_the_manifest_replaces_flags(created, tmp_path, masking):
    """Oracle: what data creation was given: lengths, vocabulary, casing, share of masks."""
    options = Options(
        input_file=str(created / f"{masking}.tfrecord"),
        preset="tiny",
        output_dir=str(tmp_path),
        do_train=True,
        num_train_steps=1,
        train_batch_size=2,
    )
    (records,) = name_records(options)
    spec = resolve_model(None, options, *stated_by_manifests([records]))
    assert spec.vocab == load_vocab(str(created / "vocab.txt"))
    assert (spec.lower_case, spec.config.vocab_size) == (False, 40)
    (phase,) = check_records(options, spec, [records], ())
    assert (phase.train.max_seq_length, phase.train.max_predictions_per_seq) == (24, 4)
    if masking == "dynamic":
        assert phase.train.masking.masked_lm_prob == 0.25
        # Dynamic records hold no predictions: any number of them may be asked for.
        more = dataclasses.replace(options, max_predictions_per_seq=6)
        (phase,) = check_records(more, spec, name_records(more), ())
        assert phase.train.max_predictions_per_seq == 6
        # A share that needs more than the manifest suggests gets it: 0.3 * 24 tokens.
        more = dataclasses.replace(options, masked_lm_prob=0.3, eval_masked_lm_prob=0.15)
        (phase,) = check_records(more, spec, name_records(more), ())
        assert phase.train.max_predictions_per_seq == 8
        shares = [x.masking.masked_lm_prob for x in (phase.train, phase.evaluation)]
        assert shares == [0.3, 0.15]
    else:
        assert phase.train.masking is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seq_length": 16}, "max_seq_length: --max_seq_length says 16, but .*says 24"),
        ({"max_predictions_per_seq": 3}, "--max_predictions_per_seq says 3, but .*says 4"),
        ({"do_lower_case": True}, "do_lower_case: --do_lower_case says True, but .*says False"),
        ({"vocab_file": "other.txt"}, r"--vocab_file=.*other.txt says 41 tokens.*says 40 tokens"),
        ({"objective": "sop"}, "objective: --objective says sop, but .*says nsp"),
        ({"masking": "wordpiece"}, "--masking needs .* already masked"),
    ],
)
def test_a_flag_that_contradicts_the_manifest_is_refused(created, tmp_path, change, message):
    """Oracle: the message names the flag and the manifest; nothing is written."""
    other = tmp_path / "other.txt"
    other.write_text((created / "vocab.txt").read_text() + "w35\n")
    if "vocab_file" in change:
        change = {"vocab_file": str(other)}
    flags = dict(input_file=str(created / "wordpiece.tfrecord"), preset="tiny", do_train=True)
    output = tmp_path / "run"
    with pytest.raises(ValueError, match=message) as error:
        run(Options(**flags, output_dir=str(output), **change))
    if "masking" not in change:
        assert "wordpiece.manifest.json" in str(error.value)
    assert not output.exists()


NO_VOCAB = {"preset": "tiny", "bert_config_file": None, "vocab_file": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_file": "absent-*.tfrecord"}, "no file matches absent-"),
        ({"max_seq_length": 20}, "tokens, expected 20 tokens: pass the --max_s"),
        ({"max_predictions_per_seq": 2}, "expected 2 predictions: pass the --max_s"),
        ({"max_seq_length": 33}, "max_seq_length 33 is more than the max_position_embeddings"),
        ({"do_train": False, "do_eval": False}, "nothing to do"),
        ({"preset": "tiny"}, "--preset and --bert_config_file exclude each other: omit one"),
        (NO_VOCAB, "--preset needs the size of the vocabulary: give --vocab_file"),
        ({"strategy": "gpu"}, "TensorFlow finds no GPU here"),
        ({"use_tpu": True}, "no TPU on this machine"),
        (
            {"use_tpu": True, "strategy": "cpu"},
            "--use_tpu has no effect without --strategy=auto or --strategy=tpu",
        ),
        (
            {"tpu_name": "a", "strategy": "gpu"},
            "--tpu_name has no effect without --strategy=auto or --strategy=tpu",
        ),
        ({"task_index": 0}, "--task_index has no effect without --worker_hosts: omit it"),
        ({"tpu_zone": "a"}, "--tpu_zone has no effect without --tpu_name"),
        ({"init_checkpoint": "absent"}, "absent: no checkpoint found"),
        ({"do_train": False}, "holds no checkpoint to evaluate: train first"),
    ],
)
def test_impossible_flags_are_named(flags, change, message):
    """Oracle: the message names the flag or file; no output folder is created."""
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        run(Options(**flags | change))
    assert not pathlib.Path(flags["output_dir"]).exists()


def test_a_batch_that_memory_cannot_hold_is_named(flags, monkeypatch):
    """Oracle: by hand: 8 float32 for each of 16 elements of 32,000 x 16 tokens, in one layer."""
    for memory in (262_143_999, 262_144_000):
        monkeypatch.setattr("bert_tf.base.process.machine_memory", lambda memory=memory: memory)
        monkeypatch.setattr(Driver, "train", lambda *_: {})
        refused = pytest.raises(ValueError, match="a step with --train_batch_size=32000 takes at")
        with refused if memory < 262_144_000 else contextlib.nullcontext():
            run(Options(**flags | {"train_batch_size": 32_000, "do_eval": False}))


def test_a_fine_tuning_folder_is_refused_before_it_has_a_checkpoint(flags, config):
    """Oracle: flags.json names a task."""
    Run(flags["output_dir"]).write(ModelSpec(config), {"task": "sst2"})
    with pytest.raises(ValueError, match="run holds a fine-tuning run: choose another"):
        run(Options(**flags))


@pytest.mark.slow
def test_a_bad_record_is_named_by_file_and_number(flags, data, write_records_of, tmp_path):
    """Oracle: the record with the bad id, the last of 24."""
    path = tmp_path / "bad.tfrecord"
    flags |= {"input_file": str(path), "do_eval": False}
    write_records_of(path, 24, largest_id=40)
    message = "bad.tfrecord, record 24: .* has 40, outside 0 to 39"
    with pytest.raises(ValueError, match=message):
        run(Options(**flags))
    write_records_of(path, 24)
    flags |= {"vocab_file": str(data / "vocab.txt"), "eval_input_file": None}
    serialized = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    write_records(str(path), [*serialized[:2], b"\xff\xff\xff", *serialized[2:]])
    with pytest.raises(ValueError, match="bad.tfrecord, record 3: not a tf.train.Example"):
        run(Options(**flags))
