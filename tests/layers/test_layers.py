"""What every layer and model must do, checked in the same way for all of them."""

import dataclasses
import inspect
import random

import keras
import numpy as np
import pytest
from support import calls_of

from bert_tf.compression.distillation import Distillation
from bert_tf.compression.mixed_vocabulary import DualPretrainer
from bert_tf.config import BertConfig, BiLSTMConfig
from bert_tf.finetuning.lora import LoraModel
from bert_tf.layers import fused
from bert_tf.layers.bert import BertEmbeddings, DenseHead, EncoderBlock, MaskedLMHead, SelfAttention
from bert_tf.layers.dropout import DropoutSeeds
from bert_tf.layers.initial_weights import seeded
from bert_tf.layers.mobilebert import BottleneckBlock, TrigramEmbeddings
from bert_tf.models import lstms
from bert_tf.models.bert_encoder import BertEncoder, Pooler
from bert_tf.models.lstms import FeatureTagger
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel

CONFIG = BertConfig(50, 16, 2, 2, 24, max_position_embeddings=20)
ALBERT = dataclasses.replace(CONFIG, embedding_size=6, num_hidden_groups=1)
DECODER = dataclasses.replace(CONFIG, is_decoder=True)
BOTTLENECK = {"embedding_size": 6, "intra_bottleneck_size": 8, "num_feedforward_networks": 2}
WIDE = dataclasses.replace(CONFIG, hidden_size=32)
MOBILE = BertConfig.from_dict(CONFIG.to_dict() | BOTTLENECK)
PRUNED = dataclasses.replace(CONFIG, pruned_heads={1: [0]})
GENERATOR = np.random.default_rng(0)
SEQUENCE = GENERATOR.normal(size=(2, 5, 16)).astype(np.float32)
POSITIONS = np.array([[1, 4, 0], [2, 2, 3]], np.int32)
IDS = GENERATOR.integers(0, 50, (2, 5)).astype(np.int32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
INPUTS = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": MASK}
PREDICTED = INPUTS | {"masked_lm_positions": POSITIONS}
TABLE = GENERATOR.normal(size=(50, 16)).astype(np.float32)

CASES = {
    "embeddings": (lambda **kw: BertEmbeddings(CONFIG, **kw), (IDS, MASK)),
    "factorized_embeddings": (lambda **kw: BertEmbeddings(ALBERT, **kw), (IDS, MASK)),
    "trigrams": (lambda **kw: TrigramEmbeddings(MOBILE, **kw), (IDS, MASK)),
    "attention": (lambda **kw: SelfAttention(CONFIG, **kw), (SEQUENCE, MASK[:, None, None] > 0)),
    "block": (lambda **kw: EncoderBlock(CONFIG, **kw), (SEQUENCE, MASK[:, None, None] > 0)),
    "bottleneck": (lambda **kw: BottleneckBlock(MOBILE, **kw), (SEQUENCE, MASK[:, None, None] > 0)),
    "pooler": (lambda **kw: Pooler(CONFIG, **kw), (SEQUENCE,)),
    "masked_lm": (lambda **kw: MaskedLMHead(CONFIG, **kw), (SEQUENCE, POSITIONS, TABLE)),
    "dense_head": (lambda **kw: DenseHead(CONFIG, 3, rate=0.1, **kw), (SEQUENCE[:, 0],)),
    "encoder": (lambda **kw: BertEncoder(CONFIG, **kw), (INPUTS,)),
    "albert": (lambda **kw: BertEncoder(ALBERT, **kw), (INPUTS,)),
    "decoder": (lambda **kw: BertEncoder(DECODER, **kw), (INPUTS,)),
    "pruned": (lambda **kw: BertEncoder(PRUNED, **kw), (INPUTS,)),
    "pretrainer": (lambda **kw: BertPretrainer(CONFIG, **kw), (PREDICTED,)),
    "task_model": (lambda **kw: BertTaskModel(CONFIG, 3, **kw), (INPUTS,)),
    "regression_model": (lambda **kw: BertTaskModel(CONFIG, 1, **kw), (INPUTS,)),
}

# Models that are tested elsewhere, but for their weights.
MODELS = {
    "bilstm": lambda: BertTaskModel(BiLSTMConfig(50, 8, intermediate_size=4, bilstm="single"), 3),
    "features": lambda: FeatureTagger(CONFIG, 3, "last"),
    "lora": lambda: LoraModel(BertTaskModel(CONFIG, 3), 2, 2.0, True),
    "distillation": lambda: Distillation(BertTaskModel(CONFIG, 3), BertTaskModel(WIDE, 3)),
    "dual": lambda: DualPretrainer(CONFIG, WIDE, "none"),
}


def flat(outputs) -> list[np.ndarray]:
    return [np.asarray(keras.ops.cast(x, "float32")) for x in keras.tree.flatten(outputs)]


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request):
    make, inputs = CASES[request.param]
    keras.utils.set_random_seed(0)
    layer = make()
    return make, layer, inputs, layer(*inputs)


def test_config_round_trip_gives_the_same_outputs(case):
    """Oracle: the layer itself, rebuilt from its config through Keras' registry."""
    _, layer, inputs, outputs = case
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    copy(*inputs)
    copy.set_weights(layer.get_weights())
    for ours, theirs in zip(flat(copy(*inputs)), flat(outputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_symbolic_call_of_any_length_agrees_with_the_eager_one(case):
    """Oracle: the eager call with static shapes."""
    _, layer, inputs, outputs = case

    def symbolic_input(x):
        any_length = tuple(size if size == 16 else None for size in x.shape)
        return keras.Input(batch_shape=x.shape if x is TABLE else any_length, dtype=str(x.dtype))

    symbolic = keras.tree.map_structure(symbolic_input, inputs)
    model = keras.Model(symbolic, layer(*symbolic))
    for ours, theirs in zip(flat(model(inputs)), flat(outputs), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_mixed_precision_keeps_variables_in_float32_and_stays_close(case):
    """Oracle: the float32 outputs, within the error of bfloat16's 8 bits over a few products."""
    make, layer, inputs, outputs = case
    mixed = make(dtype="mixed_bfloat16")
    mixed(*inputs)
    mixed.set_weights(layer.get_weights())
    assert {weight.dtype for weight in mixed.weights} == {"float32"}
    for ours, theirs in zip(flat(mixed(*inputs)), flat(outputs), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.1, rtol=0.1)


def test_only_weights_in_half_precision_narrow_the_softmax(monkeypatch):
    """Oracle: the type of the bias, which decides that of the softmax."""
    calls = calls_of(monkeypatch, fused, "fast_attention")
    for policy in ("mixed_bfloat16", "bfloat16"):
        SelfAttention(CONFIG, dtype=policy)(SEQUENCE, MASK[:, None, None] > 0)
    found = [keras.backend.standardize_dtype(call.args[3].dtype) for call in calls]
    assert found == ["float32", "bfloat16"]


def test_every_weight_has_a_gradient(case):
    """Oracle: every weight takes part in the computation."""
    import tensorflow as tf

    _, layer, inputs, _ = case
    with tf.GradientTape() as tape:
        takes_seeds = "seeds" in inspect.signature(layer.call).parameters
        seeds = {"seeds": DropoutSeeds(np.array([1, 2], np.int32))} if takes_seeds else {}
        outputs = keras.tree.flatten(layer(*inputs, **seeds, training=True))
        loss = tf.add_n([tf.reduce_sum(tf.sin(output)) for output in outputs])
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_weights])
    for weight, gradient in zip(layer.trainable_weights, gradients, strict=True):
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


@pytest.mark.parametrize("name", [*CASES, *MODELS])
def test_weights_are_those_of_a_seed_of_ours(name, monkeypatch):
    """Oracles: those that Keras' global seed gives; the state of Python's generator."""
    monkeypatch.setattr(lstms, "_UNITS", 8)

    def weights() -> list[np.ndarray]:
        make, inputs = CASES.get(name) or (MODELS[name], ())
        layer = make()
        if inputs:
            layer(*inputs)
        return [weight.numpy() for weight in layer.weights]

    random.seed(1)
    state = random.getstate()
    with seeded(42):
        ours = weights()
    assert random.getstate() == state
    random.seed(42)
    for mine, theirs in zip(ours, weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
