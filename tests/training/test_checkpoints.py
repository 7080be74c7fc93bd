"""Checkpoints: everything is restored by name or nothing is; damaged ones are named and skipped."""

import dataclasses
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import one_device

from bert_tf.base.finite import NonFinite
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training.checkpoints import (
    Checkpointer,
    chosen_checkpoint,
    latest_checkpoint,
    saved_tensors,
)
from bert_tf.weights.checkpoint import load_weights


@pytest.fixture(scope="module")
def strategy():
    return one_device()


@pytest.fixture
def trainer(strategy, make_trainer):
    return make_trainer(strategy)


def test_weights_are_loaded_by_name_or_not_at_all(
    tmp_path, strategy, config, make_trainer, make_checkpointer
):
    """Oracle: the saved model's weights; a wrong shape and a missing name are named."""
    trainer = make_trainer(strategy)
    path = make_checkpointer(tmp_path, trainer).save()
    keras.utils.set_random_seed(5)
    encoder = BertPretrainer(config).encoder
    load_weights(path, saved_tensors(path), encoder.weights)
    for ours, theirs in zip(encoder.weights, trainer.model.encoder.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())

    other = BertPretrainer(dataclasses.replace(config, intermediate_size=40))
    before = [weight.numpy() for weight in other.weights]
    with pytest.raises(ValueError, match=r"layer_0/intermediate_kernel has shape \(32, 64\) there"):
        load_weights(path, saved_tensors(path), other.weights)
    two_layers = dataclasses.replace(config, num_hidden_layers=2)
    with pytest.raises(ValueError, match="has no encoder/layer_1/"):
        load_weights(path, saved_tensors(path), BertPretrainer(two_layers).weights)
    deeper = make_checkpointer(tmp_path / "deeper", make_trainer(strategy, two_layers)).save()
    with pytest.raises(ValueError, match="additional encoder/layer_1/.*: it belongs to another"):
        load_weights(deeper, saved_tensors(deeper), other.encoder.weights)
    for weight, value in zip(other.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_weights_that_are_not_finite_are_not_saved(tmp_path, trainer, make_checkpointer):
    """Oracle: the file of the same step, saved before a weight became infinite."""
    checkpointer = make_checkpointer(tmp_path, trainer)
    checkpointer.save()
    saved = {path: path.read_bytes() for path in tmp_path.glob("ckpt-*")}
    trainer.model.weights[-1].assign(trainer.model.weights[-1] + np.inf)
    with pytest.raises(NonFinite, match=r"/.* is NaN or infinite in step 0, which is not saved"):
        checkpointer.save()
    assert {path: path.read_bytes() for path in tmp_path.glob("ckpt-*")} == saved


def test_which_checkpoint_a_path_stands_for(tmp_path):
    """Oracle: the best weights come before the newest; a name may be that of a file."""
    (tmp_path / "ckpt-5.index").touch()
    newest = str(tmp_path / "ckpt-5")
    # Not UTF-8: TensorFlow, too, ignores a list that it cannot read.
    (tmp_path / "checkpoint").write_bytes(b'model_checkpoint_path: "ckpt-\xe9"')
    assert chosen_checkpoint(str(tmp_path)) == newest
    for end in ("", ".index", ".data-00000-of-00001"):
        assert chosen_checkpoint(newest + end) == newest
    (tmp_path / "best").mkdir()
    assert chosen_checkpoint(str(tmp_path)) == newest
    (tmp_path / "best" / "ckpt-3.index").touch()
    assert chosen_checkpoint(str(tmp_path)) == str(tmp_path / "best" / "ckpt-3")
    assert chosen_checkpoint(newest) == newest


def _damage(folder, step: int, damage: str) -> None:
    kind, how = damage.split()
    file = folder / f"ckpt-{step}.{'index' if kind == 'index' else 'data-00000-of-00001'}"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0xFF
    file.write_bytes({"cut": content[:middle], "empty": b""}.get(how, content))
    if how == "lost":
        file.unlink()


@pytest.mark.parametrize(
    "damage", ["data cut", "data lost", "index cut", "index empty", "data flipped"]
)
def test_the_checkpoint_before_a_damaged_one_is_used(
    tmp_path, strategy, make_trainer, make_checkpointer, capsys, damage
):
    """Oracle: the checkpoint that was damaged, and the weights of the previous one."""
    trainer = make_trainer(strategy)
    checkpointer = make_checkpointer(tmp_path, trainer)
    good = checkpointer.save()
    expected = [weight.numpy() for weight in trainer.model.weights]
    trainer.model.set_weights([w + 1 for w in trainer.model.get_weights()])
    trainer.step.assign(7)
    checkpointer.save()
    _damage(tmp_path, 7, damage)
    again = make_trainer(strategy)
    again.model.set_weights([w + 2 for w in again.model.get_weights()])
    checkpointer = make_checkpointer(tmp_path, again)
    assert checkpointer.restore() == good
    assert f"{tmp_path}/ckpt-7 is damaged or incomplete. Using the prev" in capsys.readouterr().out
    assert again.step.numpy() == 0
    for weight, value in zip(again.model.weights, expected, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    # The next checkpoint counts as the newest everywhere.
    again.step.assign(3)
    assert checkpointer.save() == latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-3")


def test_a_checkpoint_that_a_kill_left_unlisted_is_the_newest(tmp_path, trainer, make_checkpointer):
    """Oracles: the checkpoint, complete though unlisted; a user's files with names like those."""
    path = make_checkpointer(tmp_path, trainer).save()
    (tmp_path / "checkpoint").unlink()
    assert latest_checkpoint(str(tmp_path)) == path
    checkpointer = make_checkpointer(tmp_path, trainer)
    checkpointer.restore()
    assert not (tmp_path / "checkpoint").exists()
    # A kill amid a save leaves data without an index.
    (tmp_path / "ckpt-5.data-00000-of-00001").touch()
    (tmp_path / "ckpt-5_temp").mkdir()
    (tmp_path / "ckpt-6_temp").mkdir()
    (tmp_path / "ckpt-6_temp/part-00000-of-00001.index").touch()
    mine = ["ckpt-5.data.txt", "ckpt-5.notes", "ckpt-0.md", "ckpt-7_temp/a", "ckpt-best_temp/a"]
    for name in mine:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    checkpointer.tidy()
    assert tf.train.latest_checkpoint(str(tmp_path)) == path
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    ours = {"checkpoint", "ckpt-0.index", "ckpt-0.data-00000-of-00001"}
    assert found == ours | {*mine} and not (tmp_path / "ckpt-6_temp").exists()


def test_what_is_found_in_place_of_a_checkpoint_is_named(tmp_path, trainer, make_checkpointer):
    """Oracle: the files that are there."""
    path = make_checkpointer(tmp_path / "run", trainer).save()
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    for name in "abcdefg":
        (tmp_path / "other" / name).touch()
    for name, found in (
        ("empty", "the folder is empty"),
        ("other", "the folder holds a, b, c, d, e and 2 more"),
        ("run/ckpt-7", f"{tmp_path}/run holds ckpt-0"),
        ("other/a", "it is a file"),
        ("nowhere", "it does not exist"),
    ):
        with pytest.raises(FileNotFoundError, match=rf"{name}: no checkpoint found \({found}\)"):
            latest_checkpoint(str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match="Hub, such as hf:absent/all-MiniLM-L6-v2; "):
        latest_checkpoint("absent/all-MiniLM-L6-v2")
    foreign = tf.train.Checkpoint(bert=tf.Variable(1.0)).write(str(tmp_path / "bert_model.ckpt"))
    with pytest.raises(ValueError, match=r"holds no weights of bert_tf \(it holds .* 1 more var"):
        saved_tensors(foreign)
    assert latest_checkpoint(path) == path


def test_a_run_without_a_readable_checkpoint_does_not_start_over(
    tmp_path, trainer, make_checkpointer
):
    """Oracle: the only checkpoint, which is damaged."""
    path = make_checkpointer(tmp_path, trainer).save()
    _damage(tmp_path, 0, "data cut")
    with pytest.raises(
        OSError, match=f"{path} is damaged or incomplete, and no earlier checkpoint"
    ):
        make_checkpointer(tmp_path, trainer).restore()
    _damage(tmp_path, 0, "data lost")
    with pytest.raises(OSError, match=f"{path} is damaged or incomplete"):
        load_weights(path, saved_tensors(path), trainer.model.weights)


def test_another_optimizer_is_named(tmp_path, trainer, make_checkpointer):
    path = make_checkpointer(tmp_path, trainer).save()
    state = trainer.state | {"update_count": tf.Variable(0)}
    with pytest.raises(ValueError, match=f"{path} was written with another objective, optimizer"):
        Checkpointer(str(tmp_path), trainer.model, state).restore()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path, trainer, make_checkpointer):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=f"cannot write a checkpoint to {tmp_path}"):
        make_checkpointer(tmp_path, trainer).save()
