"""Training checkpoints of the TensorFlow Model Garden, and its names of the weights."""

import dataclasses
import math
import os
import re
from collections.abc import Collection, Mapping

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf.base.files import whole
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.runs.run import CONFIG, Run
from bert_tf.training.checkpoints import Tensor, latest_checkpoint, tensors_by_key
from bert_tf.weights.checkpoint import Checkpoint, matches, with_vocab
from bert_tf.weights.names import weights
from bert_tf.weights.translation import Row, import_tensors

NAME = "Model Garden"

# The next-sentence head has a pooler of its own, which it trains in place of the encoder's.
_HEAD_POOLER, _POOLER = "next_sentence/pooler_dense/", "pooler_transform/"
_WORDS = "word_embeddings/embeddings"
_QUERY = "transformer/layer_0/self_attention/query/kernel"
ENCODER = {_WORDS, _QUERY}
IGNORED = (
    *("optimizer/*", "*/.OPTIMIZER_SLOT/*", "global_step", "save_counter", "*/save_counter"),
    *("do_lower_case", "*seed_generator_state"),
)

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# The first published encoders had these names.
_EARLIER_NAMES = (
    (r"embedding_postprocessor/type_embeddings$", "type_embeddings/embeddings"),
    (r"embedding_postprocessor/position_embeddings$", "position_embedding/embeddings"),
    (r"embedding_postprocessor/layer_norm/", "embeddings/layer_norm/"),
    (r"encoder/(layer_\d+)/", r"transformer/\1/"),
    (r"/self_attention_output/", "/self_attention/attention_output/"),
    (r"cls/predictions/output_bias$", "cls/predictions/output_bias/bias"),
)
# Our own exports keep our names.
_OWN = ("encoder/", "pretrainer/", "task_model/")
# What a table's name begins with; the names of enclosing models may come first.
_BEGINNINGS = re.compile(
    r"(?:^|.*?/)((?:word_embeddings|position_embedding|type_embeddings|embeddings/layer_norm"
    r"|embedding_projection|transformer/layer_\d+|pooler_transform|cls/predictions"
    r"|next_sentence)/.*)"
)


def recognizes(path: str) -> bool:
    """Returns whether a path is a checkpoint of this format, or a folder that holds one."""
    try:
        keys = tensors_by_key(_prefix(path))
    except OSError:
        return False
    return any("/_query_dense/kernel/" in key for key in keys)


def open_(path: str, config: BertConfig | None, ignored: Collection[str] = ()) -> Checkpoint:
    """Opens a training checkpoint: the prefix of its files, any of them, or their folder.

    Without a configuration, it follows from the shapes of the weights.
    """
    prefix = _prefix(path)
    folder = Run(os.path.dirname(prefix))
    theirs = variables(prefix)
    has_config = tf.io.gfile.exists(folder.file(CONFIG))
    config = folder.config if has_config else config or config_of(prefix, theirs)
    # The Model Garden computes the tanh form by this name.
    act = "gelu_new" if config.hidden_act == "gelu" else config.hidden_act
    config = dataclasses.replace(config, hidden_act=act)
    checkpoint = Checkpoint(
        path=prefix,
        format=NAME,
        spec=ModelSpec(config, lower_case=folder.lower_case),
        tensors=theirs,
        config_file=folder.file(CONFIG) if has_config else None,
        vocab_file=folder.vocab_file,
    )
    return with_vocab(import_variables(checkpoint, ignored), lambda: folder.vocab)


def import_variables(checkpoint: Checkpoint, ignored: Collection[str]) -> Checkpoint:
    """Returns a checkpoint with our tensors for those of `variables`."""
    pooler = _POOLER
    if f"{_HEAD_POOLER}kernel" in checkpoint.tensors:
        pooler, ignored = _HEAD_POOLER, (*ignored, f"{_POOLER}*")
    table = rows(checkpoint.spec.config, pooler)
    return import_tensors(checkpoint, table, (*IGNORED, *ignored))


def rows(config: BertConfig, pooler: str = _POOLER) -> list[Row]:
    """Returns the table of the format, given what the names of the pooler begin with."""
    named = [(weight, weight.model_garden) for weight in weights(config) if weight.model_garden]
    return [Row(weight, name.replace(_POOLER, pooler), by_heads=True) for weight, name in named]


def config_of(path: str, theirs: Mapping[str, Tensor]) -> BertConfig:
    """Returns the configuration for the shapes of the weights; the activation is the tanh GELU."""
    layers = [re.match(r"transformer/layer_(\d+)/", name) for name in theirs]
    try:
        vocab_size, width = theirs[_WORDS].shape
        hidden, heads, _ = theirs[_QUERY].shape
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=1 + max(int(layer[1]) for layer in layers if layer),
            num_attention_heads=heads,
            intermediate_size=theirs["transformer/layer_0/intermediate/kernel"].shape[1],
            hidden_act="gelu_new",
            max_position_embeddings=theirs["position_embedding/embeddings"].shape[0],
            type_vocab_size=theirs["type_embeddings/embeddings"].shape[0],
            embedding_size=None if width == hidden else width,
        )
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(
            f"{path}: the weights do not give a configuration ({error}): give --bert_config_file"
        ) from None


def variables(prefix: str) -> dict[str, Tensor]:
    """Returns the tensors of an object-based checkpoint by the names of their variables.

    Names in the table are stripped of the names of enclosing models. What is not a weight keeps its
    key. Values are read as float32. The result is empty for other kinds of checkpoints.
    """
    tensors = tensors_by_key(prefix)
    graph = tensors.pop(_OBJECT_GRAPH, None)
    if not graph:
        return {}
    # The shapes decide how large a model is made, so the values must exist.
    files = tf.io.gfile.glob(f"{prefix}.data-*")
    declared = sum(math.prod(tensor.shape) for tensor in tensors.values())
    with whole(prefix, DecodeError, TypeError, ValueError):
        if declared > sum(tf.io.gfile.stat(file).length for file in files):
            raise ValueError("values are missing")
        nodes = TrackableObjectGraph.FromString(graph.read().item()).nodes
    names = {each.checkpoint_key: each.full_name for node in nodes for each in node.attributes}
    found: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        name = _name(key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), names.get(key, ""))
        # Names need not be unique; keys are.
        name = key if name in found else name
        found[name] = tensor
    return found


def _name(key: str, full_name: str) -> str:
    if matches(key, IGNORED) or not full_name:
        return key
    if full_name.startswith(_OWN):
        return full_name
    for pattern, name in _EARLIER_NAMES:
        full_name = re.sub(pattern, name, full_name)
    known = _BEGINNINGS.fullmatch(full_name)
    return known[1] if known else full_name


def _prefix(path: str) -> str:
    """Returns the prefix of the files of a checkpoint; raises a FileNotFoundError if none."""
    found = tf.io.gfile.glob(os.path.join(path, "*.index")) if tf.io.gfile.isdir(path) else []
    return latest_checkpoint(found[0] if len(found) == 1 else path)
