"""Converts encoders, classifiers, taggers and embedders to ONNX."""

import logging
import math
import os
import tempfile
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from bert_tf.base.process import needed
from bert_tf.config import Head
from bert_tf.inference.single_file import ONNX_INPUTS
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.task_model import BertEmbedder, BertTaskModel
from export.portable import Source

with needed("onnx onnxruntime", "ONNX models need"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import quantization

# The first opset with GELU, and a version of the format that reads it.
_OPSET, _FORMAT = 20, 9
_ACTIVATIONS = {
    "gelu": ("Gelu", {"approximate": "none"}),
    "gelu_new": ("Gelu", {"approximate": "tanh"}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "linear": ("Identity", {}),
}


def make_file(source: Source, texts: Mapping[str, str], quantize: str) -> bytes:
    """Returns the ONNX model of a source, with texts in its metadata.

    "int8" is ONNX Runtime's dynamic quantization, which also computes in 8 bits and quantizes the
    inputs of matrix products as it runs.
    """
    model = make_onnx(source.model, source.task and source.task.head)
    if quantize == "int8":
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "int8.onnx")
            # It advises to simplify the graph first, which changes nothing here.
            logging.disable(logging.WARNING)
            try:
                quantization.quantize_dynamic(model, path, per_channel=True)
            finally:
                logging.disable(logging.NOTSET)
            model = onnx.load(path)
    helper.set_model_props(model, dict(texts))
    return model.SerializeToString()


class _Graph:
    """The nodes and the weights of a graph."""

    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def add(self, kind: str, *inputs: str, name: str = "", **attributes) -> str:
        """Adds an operation and returns the name of its output."""
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def weight(self, name: str, values) -> str:
        """Adds a tensor under its name, once."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def floats(self, *values: float) -> str:
        array = np.array(values, np.float32)
        return self.weight(f"floats {values}", array if len(values) > 1 else array[0])

    def ints(self, *values: int) -> str:
        return self.weight(f"ints {values}", np.array(values, np.int64))

    def variable(self, variable: keras.Variable) -> str:
        return self.weight(variable.path, variable.numpy())

    def affine(self, x: str, name: str, kernel, bias) -> str:
        """Multiplies by a matrix and adds a bias."""
        product = self.add("MatMul", x, self.weight(f"{name}_kernel", kernel))
        return self.add("Add", product, self.weight(f"{name}_bias", bias))

    def dense(self, x: str, layer: keras.layers.Layer, name: str) -> str:
        """Applies one of the dense layers of a `bert_tf.layers.layer.Layer`."""
        kernel, bias = getattr(layer, f"{name}_kernel"), getattr(layer, f"{name}_bias")
        return self.affine(x, kernel.path.removesuffix("_kernel"), kernel.numpy(), bias.numpy())

    def normalized(self, x: str, norm: keras.layers.LayerNormalization) -> str:
        gamma, beta = self.variable(norm.gamma), self.variable(norm.beta)
        return self.add("LayerNormalization", x, gamma, beta, epsilon=norm.epsilon)


def make_onnx(
    model: BertEncoder | BertTaskModel | BertEmbedder, head: Head | None = None
) -> onnx.ModelProto:
    """Returns the ONNX model of an encoder, an embedder, a classifier or a tagger.

    Its inputs are `ONNX_INPUTS`, int64 [batch, sequence]. An encoder returns `last_hidden_state`
    [batch, sequence, H] and `pooler_output` [batch, H], an embedder `embedding` [batch, V]. A
    classifier returns `logits` and `probabilities` [batch, C], or a `value` [batch] if its head has
    no labels, and a tagger these logits and probabilities for each token, [batch, sequence, C].
    Raises a ValueError if the encoder is of another architecture than BERT and ALBERT.
    """
    graph = _Graph()
    encoder = getattr(model, "encoder", model)
    classifies = getattr(model, "kind", "") == "classifier"
    sequence = _encode(graph, encoder, first_only=classifies)
    if encoder is model:
        pooled = _pool(graph, encoder, sequence)
        graph.add("Identity", sequence, name="last_hidden_state")
        graph.add("Identity", pooled, name="pooler_output")
        width = encoder.config.hidden_size
        outputs = {"last_hidden_state": ("batch", "sequence", width)}
        outputs["pooler_output"] = ("batch", width)
    elif isinstance(model, BertEmbedder):
        outputs = _embed(graph, sequence, model)
    else:
        read = _pool(graph, encoder, sequence) if classifies else sequence
        outputs = _classify(graph, graph.dense(read, model.head, "dense"), model, head)
    inputs = dict.fromkeys(ONNX_INPUTS, ("batch", "sequence"))
    proto = helper.make_graph(
        graph.nodes,
        model.name,
        _infos(inputs, TensorProto.INT64),
        _infos(outputs, TensorProto.FLOAT),
        list(graph.weights.values()),
    )
    return helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_FORMAT,
        producer_name="bert_tf",
    )


def _classify(graph: _Graph, logits: str, model: BertTaskModel, head: Head) -> dict[str, tuple]:
    """Adds the outputs of a classifier; returns their shapes."""
    if not head.labels:
        value = graph.add("Mul", logits, graph.floats(model.deviation))
        value = graph.add("Add", value, graph.floats(model.mean))
        graph.add("Squeeze", value, graph.ints(1), name="value")
        return {"value": ("batch",)}
    graph.add("Identity", logits, name="logits")
    if head.multi_label:
        graph.add("Sigmoid", logits, name="probabilities")
    else:
        graph.add("Softmax", logits, name="probabilities", axis=-1)
    axes = ("batch",) if model.kind == "classifier" else ("batch", "sequence")
    return dict.fromkeys(("logits", "probabilities"), (*axes, model.num_outputs))


def _pool(graph: _Graph, encoder: BertEncoder, sequence: str) -> str:
    """Adds the pooler of the first token."""
    first = graph.add("Gather", sequence, graph.weight("first", np.int64(0)), axis=1)
    if not encoder.config.classifier_activation:
        return first
    kind, attributes = _ACTIVATIONS[encoder.config.pooler_act]
    return graph.add(kind, graph.dense(first, encoder.pooler, "dense"), **attributes)


def _embed(graph: _Graph, sequence: str, model: BertEmbedder) -> dict[str, tuple]:
    """Adds the output of an embedder; returns its shape."""
    seen, axis = graph.add("Cast", ONNX_INPUTS[1], to=TensorProto.BOOL), graph.ints(1)
    seen = graph.add("Unsqueeze", seen, graph.ints(2))
    if model.pooling == "cls":
        x = graph.add("Gather", sequence, graph.weight("first", np.int64(0)), axis=1)
    elif model.pooling == "max":
        x = graph.add("Where", seen, sequence, graph.floats(-1e9))
        x = graph.add("ReduceMax", x, axis, keepdims=0)
    else:
        x = graph.add("Where", seen, sequence, graph.floats(0.0))
        x = graph.add("ReduceSum", x, axis, keepdims=0)
        count = graph.add("Cast", seen, to=TensorProto.FLOAT)
        count = graph.add("ReduceSum", count, axis, keepdims=0)
        x = graph.add("Div", x, graph.add("Max", count, graph.floats(1e-9)))
    if model.outputs:
        kind, attributes = _ACTIVATIONS[model.activation]
        x = graph.add(kind, graph.dense(x, model.head, "dense"), **attributes)
    if model.normalize:
        size = graph.add("ReduceL2", x, axis, keepdims=1)
        x = graph.add("Div", x, graph.add("Max", size, graph.floats(1e-12)))
    graph.add("Identity", x, name="embedding")
    return {"embedding": ("batch", model.width)}


def _infos(shapes: dict[str, Sequence[int | str]], type_: int) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, type_, shape) for name, shape in shapes.items()]


def _encode(graph: _Graph, encoder: BertEncoder, *, first_only: bool) -> str:
    """Adds an encoder; with `first_only`, its last layer computes only what the pooler reads."""
    config = encoder.config
    if config.model_type in ("mobilebert", "bilstm") or config.is_decoder:
        kind = "left-to-right" if config.is_decoder else config.model_type
        raise ValueError(f"{kind} encoders cannot be exported to ONNX: use export.encoder")
    ids, mask, types = ONNX_INPUTS
    embeddings = encoder.embeddings
    words = graph.variable(embeddings.word_embeddings)
    positions = graph.variable(embeddings.position_embeddings)
    length = graph.add("Shape", ids, start=1, end=2)
    x = graph.add("Gather", words, ids)
    if config.type_vocab_size:
        segments = graph.variable(embeddings.type_embeddings)
        x = graph.add("Add", x, graph.add("Gather", segments, types))
    first_rows = graph.add("Slice", positions, _checked_start(graph), length, graph.ints(0))
    x = graph.normalized(graph.add("Add", x, first_rows), embeddings.layer_norm)
    if config.has_projection:
        x = graph.dense(x, embeddings, "projection")
    seen = graph.add("Cast", graph.add("Cast", mask, to=TensorProto.BOOL), to=TensorProto.FLOAT)
    seen = graph.add("Unsqueeze", seen, graph.ints(1, 2))
    bias = graph.add("Mul", graph.add("Sub", graph.floats(1.0), seen), graph.floats(-1e9))
    for index in range(config.num_hidden_layers):
        read = x
        if first_only and index == config.num_hidden_layers - 1:
            read = graph.add("Slice", x, graph.ints(0), graph.ints(1), graph.ints(1))
        x = _add_layer(graph, x, read, bias, encoder.block(index))
    return x


def _checked_start(graph: _Graph) -> str:
    """Adds operations that give [0], but fail if the shapes of the inputs differ."""
    # ONNX has no assertions, and arithmetic would broadcast. So if they differ, the operations read
    # the second element of a list that has one.
    ids, mask, types = (graph.add("Shape", name) for name in ONNX_INPUTS)
    found, wanted = (graph.add("Concat", x, y, axis=0) for x, y in ((mask, types), (ids, ids)))
    differ = graph.add("Not", graph.add("Equal", found, wanted))
    index = graph.add("ReduceMax", graph.add("Cast", differ, to=TensorProto.INT64))
    return graph.add("Gather", graph.ints(0), index, name="inputs_must_have_one_shape")


def _add_layer(graph: _Graph, x: str, read: str, bias: str, block: keras.layers.Layer) -> str:
    """Adds a layer that computes `read`, which is x or a part of its tokens."""
    attended = _attend(graph, x, read, bias, block.attention)
    attended = graph.normalized(graph.add("Add", read, attended), block.attention_norm)
    kind, attributes = _ACTIVATIONS[block.config.hidden_act]
    hidden = graph.add(kind, graph.dense(attended, block, "intermediate"), **attributes)
    output = graph.dense(hidden, block, "output")
    return graph.normalized(graph.add("Add", attended, output), block.output_norm)


def _attend(graph: _Graph, x: str, read: str, bias: str, attention: keras.layers.Layer) -> str:
    """Adds the attention of `read` to x, in a form that ONNX Runtime computes at once."""
    size = attention.config.head_size
    path = attention.qkv_kernel.path.removesuffix("_kernel")
    kernels = np.split(attention.qkv_kernel.numpy(), 3, axis=1)
    biases = np.split(attention.qkv_bias.numpy(), 3)
    heads = []
    for letter, kernel, offset in zip("qkv", kernels, biases, strict=True):
        rows = graph.affine(read if letter == "q" else x, f"{path}/{letter}", kernel, offset)
        rows = graph.add("Reshape", rows, graph.ints(0, 0, attention.num_heads, size))
        order = (0, 2, 3, 1) if letter == "k" else (0, 2, 1, 3)
        heads.append(graph.add("Transpose", rows, perm=order))
    query, key, value = heads
    scores = graph.add("Div", graph.add("MatMul", query, key), graph.floats(math.sqrt(size)))
    probabilities = graph.add("Softmax", graph.add("Add", scores, bias), axis=-1)
    context = graph.add("Transpose", graph.add("MatMul", probabilities, value), perm=(0, 2, 1, 3))
    width = attention.num_heads * size
    return graph.dense(graph.add("Reshape", context, graph.ints(0, 0, width)), attention, "output")
