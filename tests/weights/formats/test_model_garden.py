import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from checkpoints import assert_refused, pretrainer

from bert_tf.checkpoint import open_checkpoint
from bert_tf.config import BertConfig
from bert_tf.weights.formats import model_garden
from bert_tf.weights.table import entries

CONFIG = BertConfig(12, 8, 2, 2, 16, hidden_act="gelu_new", max_position_embeddings=10)


@pytest.fixture
def training(garden, tmp_path):
    """A copy of the training checkpoint, to put files beside it."""
    return shutil.copytree(garden / "training", tmp_path / "training")


def test_outputs(garden):
    """Oracle: the Model Garden's outputs; the next-sentence head's pooler is its own."""
    checkpoint = open_checkpoint(str(garden / "training"))
    assert checkpoint.spec.config == CONFIG
    theirs = np.load(garden / "training.npz")
    ours = pretrainer(checkpoint)(
        {name: theirs[name] for name in theirs if theirs[name].dtype == np.int32}
    )
    for index, layer in enumerate(ours["encoder_outputs"]):
        np.testing.assert_allclose(layer, theirs[f"layer_{index}"], atol=1e-5)
    np.testing.assert_allclose(ours["mlm_logits"], theirs["mlm_logits"], atol=1e-5)
    np.testing.assert_allclose(ours["next_sentence_logits"], theirs["next_sentence"], atol=1e-5)


def test_every_variable_is_accounted_for(garden):
    """Oracle: the variables in the file."""
    path = str(garden / "training/ckpt-1")
    checkpoint = open_checkpoint(path)
    config = checkpoint.spec.config
    table = entries(model_garden.rows(config), config)
    count = sum(len(entry.theirs) for entry in table)
    in_file = [name for name, _ in tf.train.list_variables(path) if not name.startswith("_CHECK")]
    assert len(checkpoint.unused) + count == len(in_file)
    assert "save_counter" in checkpoint.unused
    assert "pooler_transform/kernel" in checkpoint.unused


@pytest.mark.parametrize("name", ["", "ckpt-1", "ckpt-1.index"])
def test_ways_to_name_it(garden, name):
    """Oracle: the path without the ending."""
    assert open_checkpoint(str(garden / "training" / name)).path.endswith("/training/ckpt-1")


def test_files_beside_it(garden, training):
    """Oracle: the vocabulary of the export; "gelu" is the tanh form in the Model Garden."""
    config = dataclasses.replace(CONFIG, hidden_act="gelu", hidden_dropout_prob=0.2)
    config.to_json_file(str(training / "bert_config.json"))
    shutil.copy(garden / "encoder/assets/vocab.txt", training)
    checkpoint = open_checkpoint(str(training))
    assert checkpoint.spec.config == dataclasses.replace(CONFIG, hidden_dropout_prob=0.2)
    assert len(checkpoint.spec.vocab) == 12
    assert checkpoint.stated_casing is None


def test_another_configuration(garden):
    """Oracle: the message names all that differs."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=1, hidden_size=4)
    path = garden / "training"
    message = r"word_embeddings/embeddings \[12, 8\] instead of \[12, 4\]"
    for also in (message, "it also holds: transformer/layer_1/intermediate/bias, "):
        assert_refused(path, also, config=config)


QUERY = "transformer/layer_0/self_attention/query/kernel"
NEEDED = {
    "word_embeddings/embeddings": (12, 8),
    "position_embedding/embeddings": (10, 8),
    "type_embeddings/embeddings": (2, 8),
    "transformer/layer_0/intermediate/kernel": (8, 16),
    QUERY: (8, 2, 4),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"another/kernel": (1,)}, "it lacks: embeddings/layer_norm/gamma, .*holds: ano"),
        ({QUERY: (8, 8)}, "do not give a configuration .*bert_config_file"),
    ],
)
def test_bad_variables(tmp_path, changes, message):
    """Oracle: the message says what is missing, or that the heads are unknown."""
    shapes = (NEEDED | changes).items()
    variables = [tf.Variable(np.zeros(shape), name=name) for name, shape in shapes]
    path = tf.train.Checkpoint(model=variables).write(str(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match=message):
        model_garden.open_(path, None)


@pytest.mark.parametrize("size", [-20000, 1000])
def test_a_truncated_file(training, size):
    """Oracle: the message names it; a file that is too small for its shapes is not read at all."""
    file = training / "ckpt-1.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:size])
    assert_refused(training, "ckpt-1 is damaged or incomplete: download or copy it")
    if size > 0:
        with pytest.raises(OSError, match="ckpt-1 is damaged"):
            open_checkpoint(str(training))
