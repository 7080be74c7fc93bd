"""`bert_tf.load`, against the models that were saved."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_folder import ModelSpec, RunFolder
from bert_tf.training.checkpoints import Checkpointer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "A", "b", "##b"))
CONFIG = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=24)


def save(folder: str, model, spec: ModelSpec) -> None:
    RunFolder(folder).write(spec)
    Checkpointer(folder, model, {"step": tf.Variable(3, dtype=tf.int64)}).save()


@pytest.mark.parametrize("kind", ["pretraining", "fine-tuning"])
def test_load_gives_model_tokenizer_and_configuration(tmp_path, kind):
    """Oracles: the weights that were saved, the tokens of a cased vocabulary by hand."""
    saved = BertPretrainer(CONFIG) if kind == "pretraining" else BertTaskModel(CONFIG, 2)
    # The weights of a fine-tuning run are the best, not the newest.
    folder = tmp_path / "best" if kind == "fine-tuning" else tmp_path
    save(str(folder), saved, ModelSpec(CONFIG, VOCAB, False))
    model, tokenizer, config = bert_tf.load(str(tmp_path))
    assert config == CONFIG
    assert tokenizer.tokenize_flat(["A bb", "a"]).to_list() == [[5, 6, 7], [1]]
    if kind == "pretraining":
        assert isinstance(model, BertPretrainer)
        expected = saved
    else:
        assert isinstance(model, BertEncoder)
        expected = saved.encoder
    for found, weight in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), weight.numpy())


def test_a_run_of_unknown_vocabulary_has_no_tokenizer(tmp_path):
    save(str(tmp_path), BertPretrainer(CONFIG), ModelSpec(CONFIG))
    assert bert_tf.load(str(tmp_path)).tokenizer is None


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}: no checkpoint"):
        bert_tf.load(str(tmp_path))
