"""The number of operations against the graphs that compute them."""

import dataclasses
import math

import pytest
import tensorflow as tf
from encoders import MOBILE, STILL

from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.weights.names import training_flops

BATCH, LENGTH, PREDICTIONS = 2, 36, 5


def product_flops(graph: tf.Graph) -> int:
    """Adds up 2 m k n of all matrix products in a graph but those that only sum rows."""
    total = 0
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2"):
            flag = "transpose_a" if operation.type == "MatMul" else "adj_x"
            if operation.outputs[0].shape[-2] == 1:
                continue
            inner = operation.inputs[0].shape[-2 if operation.get_attr(flag) else -1]
            total += 2 * inner * math.prod(operation.outputs[0].shape)
    return total


def traced_flops(config: BertConfig, training: bool) -> float:
    """Returns the FLOPs per sequence in the graph of the model or of its gradients."""
    model = BertPretrainer(config)

    @tf.function
    def run(inputs):
        with tf.GradientTape() as tape:
            outputs = model(inputs)
            loss = tf.reduce_sum(outputs["mlm_logits"] ** 2)
            loss += tf.reduce_sum(outputs["next_sentence_logits"] ** 2)
        if not training:
            return loss
        return tape.gradient(loss, [weight.value for weight in model.trainable_weights])

    tokens = tf.TensorSpec([BATCH, LENGTH], tf.int32)
    inputs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tokens)
    inputs["masked_lm_positions"] = tf.TensorSpec([BATCH, PREDICTIONS], tf.int32)
    return product_flops(run.get_concrete_function(inputs).graph) / BATCH


@pytest.mark.parametrize(
    ("config", "training"),
    [
        (STILL, False),
        (dataclasses.replace(STILL, pruned_heads={1: [0, 3]}), True),
        # Sharing layers saves no arithmetic.
        (dataclasses.replace(STILL, embedding_size=16, num_hidden_groups=1), True),
        (MOBILE, True),
        (dataclasses.replace(MOBILE, key_query_shared_bottleneck=True), False),
        (dataclasses.replace(MOBILE, classifier_activation=False), False),
    ],
)
def test_the_products_of_the_traced_graph(config, training):
    """Oracle: the shapes of the matrix products in TensorFlow's graph, forward and backward."""
    parts = 1 if training else 3
    assert traced_flops(config, training) == training_flops(config, LENGTH, PREDICTIONS) / parts
