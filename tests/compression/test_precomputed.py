"""What is computed before training, and read when a run starts again."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
from support import SESSION, save_checkpoint, save_run

from bert_tf.checkpoint import open_checkpoint
from bert_tf.compress import run
from bert_tf.compression import student
from bert_tf.compression.augmentation import Glove, MaskedLM
from bert_tf.compression.compress import GeneralStudent
from bert_tf.compression.recipes import GENERAL_RECIPES
from bert_tf.compression.run_files import check_same_teacher, computed_once
from bert_tf.config import Head
from bert_tf.finetuning.fine_tuner import FineTuner
from bert_tf.finetuning.task import DataFiles
from bert_tf.learning import Training
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.weights.checkpoint import fingerprint

stop = mock.Mock(side_effect=KeyboardInterrupt)


@pytest.fixture
def masked_lm(teacher, config, tmp_path) -> str:
    """A run folder with a random masked LM that has the vocabulary of the teacher."""
    model = BertPretrainer(dataclasses.replace(config, num_hidden_layers=1))
    return save_run(tmp_path / "masked_lm", model, open_checkpoint(teacher).spec.vocab)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_run_that_starts_again_computes_nothing_twice(
    make_options, masked_lm, tmp_path, monkeypatch, capsys
):
    """Oracle: the uninterrupted run."""
    options = make_options("pd", num_train_epochs=0.5, augment=1, masked_lm=masked_lm)
    expected = run(options)
    options = dataclasses.replace(options, output_dir=str(tmp_path / "stopped"))
    with monkeypatch.context() as patch:
        patch.setattr(FineTuner, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            run(options)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "set_weights", stop)
        patch.setattr(MaskedLM, "candidates", None)
        patch.setattr(student, "teacher_predictions", None)
        with pytest.raises(KeyboardInterrupt):
            run(options)
    capsys.readouterr()
    # Neither is the result of other flags.
    with monkeypatch.context() as patch:
        patch.setattr(student, "teacher_predictions", stop)
        with pytest.raises(KeyboardInterrupt):
            run(dataclasses.replace(options, precision="bfloat16"))
        patch.setattr(MaskedLM, "candidates", stop)
        with pytest.raises(KeyboardInterrupt):
            run(dataclasses.replace(options, random_seed=1))
    capsys.readouterr()
    assert run(options) == expected
    output = capsys.readouterr().out
    folder = tmp_path / "stopped" / "precomputed"
    assert f"Read {folder}/copies." in output and f"Read {folder}/predictions." in output
    assert sorted(path.name for path in folder.iterdir()) == ["copies", "predictions", "teacher"]


def test_arrays_are_computed_again_for_other_inputs(tmp_path, capsys):
    """Oracle: the number of calls; the arrays, among them empty ones."""
    made = []

    def compute():
        made.append({"a": np.arange(len(made) + 3), "b": np.zeros([0, 2], np.uint8)})
        return made[-1]

    folder, file = str(tmp_path / "run"), tmp_path / "run/precomputed/things"
    for inputs, count in ((("x", 1), 1), (("x", 1), 1), (("x", 2), 2), (("x", 2), 2)):
        found = computed_once(folder, "things", inputs, compute)
        assert len(made) == count and found.keys() == {"a", "b"}
        np.testing.assert_equal(found, made[-1])
        assert found["b"].dtype == np.uint8
    whole = file.read_bytes()
    for damaged in (whole[:-9], b"text", whole[:99] + b"x" + whole[100:]):
        file.write_bytes(damaged)
        capsys.readouterr()
        np.testing.assert_equal(computed_once(folder, "things", ("x", 2), compute), made[-1])
        assert f"{file} is damaged or belongs to other flags" in capsys.readouterr().out
    assert len(made) == 5


def test_a_run_keeps_its_teacher(teacher, config, make_learner, tmp_path):
    """Oracles: the message for a teacher with another weight, once there is a checkpoint; that for
    a file of the user.
    """
    source, folder = open_checkpoint(teacher), str(tmp_path / "run")
    name, tensor = next(iter(source.tensors.items()))
    changed = dataclasses.replace(tensor, read=lambda: tensor.read() + 1)
    other = dataclasses.replace(source, tensors={**source.tensors, name: changed})
    check_same_teacher(folder, other)
    check_same_teacher(folder, source)
    save_checkpoint(folder, BertPretrainer(config))
    check_same_teacher(folder, source)
    learner = make_learner("pkd6", teacher=other, output_dir=folder)
    general = GeneralStudent(GENERAL_RECIPES["tinybert"].loss, other, folder)
    message = f"{folder} was made from .*{teacher}.* has changed"
    # Before the teacher predicts anything.
    with pytest.raises(ValueError, match=message):
        learner.task.read_splits(["train"], DataFiles(), 0)
    with pytest.raises(ValueError, match=message):
        general.build_model(SESSION, source.spec)
    (mine := tmp_path / "mine/precomputed/teacher").parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(FileExistsError, match="teacher exists: it holds no checksum, so choose"):
        check_same_teacher(str(tmp_path / "mine"), source)
    assert mine.read_text() == "mine"


def test_fingerprints_tell_models_apart(teacher, tmp_path):
    """Oracle: models that differ in one thing each."""
    source, replace = open_checkpoint(teacher), dataclasses.replace
    spec, (name, tensor) = source.spec, next(iter(source.tensors.items()))
    other = replace(tensor, read=lambda: tensor.read() + 1)
    heads = replace(spec.config, num_attention_heads=4)
    others = [
        replace(source, tensors={**source.tensors, name: other}),
        replace(source, head=Head("classifier", ("positive", "negative"))),
        replace(source, spec=replace(spec, lower_case=False)),
        replace(source, spec=replace(spec, config=heads)),
    ]
    found = [fingerprint(model) for model in (source, *others)]
    assert len({*found}) == 5 and fingerprint(open_checkpoint(teacher)) == found[0]
    (tmp_path / "a").write_text("x 1 2\ny 3 4\n")
    (tmp_path / "b").write_text("x 1 2\nz 3 4\n")
    (tmp_path / "c").write_text("x 1 2\ny 4 3\n")
    assert len({Glove(str(tmp_path / file)).fingerprint() for file in "abc"}) == 3
