"""Checkpoints of google-research/bert, against those that TensorFlow 1's own Saver writes."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoint import open_checkpoint
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.run_folder import RunFolder
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b"))
CONFIG = BertConfig(len(VOCAB), 8, 2, 2, 12, max_position_embeddings=10)


def variables(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns the variables of google-research/bert's run_pretraining.py, in order of creation.

    Written down from its modeling.py and run_pretraining.py, not from the table under test.
    """
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    shapes = {
        "bert/embeddings/word_embeddings": (vocab, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        "bert/embeddings/LayerNorm/beta": (hidden,),
        "bert/embeddings/LayerNorm/gamma": (hidden,),
    }

    def dense(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}/kernel"] = (inputs, outputs)
        shapes[f"{name}/bias"] = (outputs,)

    def layer_norm(name: str) -> None:
        shapes[f"{name}/beta"] = shapes[f"{name}/gamma"] = (hidden,)

    for layer in range(config.num_hidden_layers):
        scope = f"bert/encoder/layer_{layer}"
        for name in ("query", "key", "value"):
            dense(f"{scope}/attention/self/{name}", hidden, hidden)
        dense(f"{scope}/attention/output/dense", hidden, hidden)
        layer_norm(f"{scope}/attention/output/LayerNorm")
        dense(f"{scope}/intermediate/dense", hidden, inner)
        dense(f"{scope}/output/dense", inner, hidden)
        layer_norm(f"{scope}/output/LayerNorm")
    dense("bert/pooler/dense", hidden, hidden)
    dense("cls/predictions/transform/dense", hidden, hidden)
    layer_norm("cls/predictions/transform/LayerNorm")
    shapes["cls/predictions/output_bias"] = (vocab,)
    shapes["cls/seq_relationship/output_weights"] = (2, hidden)
    shapes["cls/seq_relationship/output_bias"] = (2,)
    return shapes


def save(prefix: str, shapes: dict[str, tuple[int, ...]], adam: bool = False) -> dict:
    """Saves variables with random values as a TensorFlow 1 program does; returns the values."""
    random = np.random.default_rng(0)
    values = {name: random.normal(size=shape).astype("f") for name, shape in shapes.items()}
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        created = [v1.get_variable(name, initializer=value) for name, value in values.items()]
        if adam:
            loss = sum(tf.reduce_sum(variable) for variable in created)
            step = v1.train.get_or_create_global_step()
            v1.train.AdamOptimizer().minimize(loss, step, created)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, prefix, write_meta_graph=adam)
    return values


@pytest.fixture
def folder(tmp_path):
    """A folder as Google publishes it, without the checkpoint."""
    path = tmp_path / "uncased_L-2_H-8_A-2"
    path.mkdir()
    RunFolder(str(path)).write(ModelSpec(CONFIG, VOCAB))
    return path


def test_a_checkpoint_of_tensorflow_1_is_read(folder):
    """Oracle: the values given to TensorFlow 1's Saver; QKV joined by hand."""
    prefix = str(folder / "bert_model.ckpt")
    values = save(prefix, variables(CONFIG), adam=True)
    for path in (str(folder), prefix, f"{prefix}.meta", f"{prefix}.data-00000-of-00001"):
        opened = open_checkpoint(path)
        assert (opened.path, opened.format, opened.head) == (prefix, "Google", None)
        assert opened.spec == ModelSpec(CONFIG, VOCAB, True)
    assert opened.vocab_file == str(folder / "vocab.txt")
    assert {"global_step", "bert/pooler/dense/kernel/Adam_1", "beta1_power"} < set(opened.unused)
    assert not set(opened.unused) & values.keys()
    ours = {path: tensor.read() for path, tensor in opened.tensors.items()}
    layer = "bert/encoder/layer_1/attention/self"
    joined = [values[f"{layer}/{name}/kernel"] for name in ("query", "key", "value")]
    np.testing.assert_array_equal(
        ours["encoder/layer_1/attention/qkv_kernel"], np.concatenate(joined, axis=1)
    )
    for path, name in (
        ("encoder/embeddings/word_embeddings", "bert/embeddings/word_embeddings"),
        ("encoder/layer_0/output_kernel", "bert/encoder/layer_0/output/dense/kernel"),
        ("pretrainer/masked_lm/output_bias", "cls/predictions/output_bias"),
    ):
        np.testing.assert_array_equal(ours[path], values[name])
    np.testing.assert_array_equal(
        ours["pretrainer/next_sentence/dense_kernel"],
        values["cls/seq_relationship/output_weights"].T,
    )
