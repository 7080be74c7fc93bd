"""Encoders and preprocessors as SavedModels: of TensorFlow Hub, the Model Garden, and our own.

Only the variables and the description of the objects are read. No function is loaded or called.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_tf.base.files import read_file, shortened, whole
from bert_tf.base.storage import download_errors
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.text.tokenizer_files import TOKENIZER, VOCAB, TokenizerFiles
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, with_vocab
from bert_tf.weights.formats import model_garden
from bert_tf.weights.translation import import_tensors, own_rows
from tfrecords.vocabulary import SPIECE, Vocabulary, load_vocab

NAME = "SavedModel"

_FILE = "saved_model.pb"
# Our own exports keep our names, and beside the functions the configuration.
_OWN_CONFIG, _OWN_WORDS = "assets.extra/bert_config.json", "encoder/embeddings/word_embeddings"
# The operations that only one activation has.
_ACTIVATIONS = {"Erf": "gelu", "Erfc": "gelu", "Relu": "relu"}
# The operations that lower-case text in the preprocessors of the Model Garden and in ours.
_LOWER_CASING = {"CaseFoldUTF8", "StringLower"}


def download(url: str) -> str:
    """Downloads a SavedModel of TensorFlow Hub, or opens the copy that is kept."""
    import tensorflow_hub

    with download_errors(f"tfhub:{url}"):
        return tensorflow_hub.resolve(url)


def recognizes(path: str) -> bool:
    """Returns whether a path is the folder of a SavedModel."""
    return tf.io.gfile.exists(os.path.join(path, _FILE))


def is_text_model(path: str) -> bool:
    """Returns whether a path is the folder of our SavedModel from text to predictions."""
    if not recognizes(path):
        return False
    graph = read_graph(path)
    inputs = graph.signature_def["serving_default"].inputs.values()
    return "serving" in root_children(graph) and {x.dtype for x in inputs} == {
        tf.string.as_datatype_enum
    }


def open_(path: str, config: BertConfig | None, ignored: Collection[str] = ()) -> Checkpoint:
    """Opens an encoder; the shapes of the Model Garden's weights state their configuration."""
    graph = read_graph(path)
    prefix = os.path.join(path, "variables", "variables")
    theirs = model_garden.variables(prefix) if tf.io.gfile.exists(f"{prefix}.index") else {}
    if kind := _other_kind(graph, theirs):
        raise ValueError(f"{path} is {kind}: give the SavedModel of a BERT encoder")
    config_file = os.path.join(path, _OWN_CONFIG)
    config_file = config_file if tf.io.gfile.exists(config_file) else None
    if config_file:
        config = BertConfig.from_json_file(config_file)
    own = _OWN_WORDS in theirs
    if own and not config:
        raise ValueError(
            f"{path} does not state its configuration: convert it with convert_checkpoint "
            "--bert_config_file"
        )
    if not own:
        operations = _operations(graph)
        # Without any of them, it is the form of the Model Garden.
        act = next((act for name, act in _ACTIVATIONS.items() if name in operations), "gelu_new")
        config = config or model_garden.config_of(path, theirs)
        config = dataclasses.replace(config, hidden_act=act)
    casing = theirs.get("do_lower_case")
    lower_case = bool(casing.read()) if casing and casing.shape == () else None
    checkpoint = Checkpoint(
        path=path,
        format=NAME,
        spec=ModelSpec(config, lower_case=lower_case),
        tensors=theirs,
        config_file=config_file,
        vocab_file=_vocab_file(path, graph),
    )
    if own:
        patterns = (*model_garden.IGNORED, *ignored)
        opened = import_tensors(checkpoint, own_rows(config), patterns)
    else:
        opened = model_garden.import_variables(checkpoint, ignored)
    return with_vocab(opened, lambda: read_asset(checkpoint.vocab_file))


def read_graph(path: str) -> MetaGraphDef:
    """Reads the description of a SavedModel's objects and functions."""
    file = os.path.join(path, _FILE)
    with whole(file, DecodeError, IndexError):
        return SavedModel.FromString(read_file(file)).meta_graphs[0]


def _other_kind(graph: MetaGraphDef, theirs: Mapping[str, Tensor]) -> str | None:
    """Says what a SavedModel is; returns None for an encoder."""
    if not graph.object_graph_def.nodes:
        return "a module of TensorFlow 1"
    children = root_children(graph)
    if children.keys() & {"tokenize", "bert_pack_inputs"}:
        return "a preprocessor"
    if "sp_model_file" in children:
        return "a model with a SentencePiece vocabulary, such as ALBERT"
    if any(name.startswith("task_model/") for name in theirs):
        return "a fine-tuned model"
    if f"{_OWN_WORDS}_scale" in theirs:
        return "an encoder in 8 bits, which is only for serving"
    if _OWN_WORDS in theirs or model_garden.ENCODER <= theirs.keys():
        return None
    if not theirs:
        return "a SavedModel without variables"
    return f"a SavedModel of another model (it holds {shortened(sorted(theirs))})"


def root_children(graph: MetaGraphDef) -> dict[str, int]:
    """Returns the indices of the root's attributes by their names."""
    return {child.local_name: child.node_id for child in graph.object_graph_def.nodes[0].children}


def _operations(graph: MetaGraphDef) -> set[str]:
    functions = graph.graph_def.library.function
    return {node.op for function in functions for node in function.node_def}


def _vocab_file(path: str, graph: MetaGraphDef) -> str | None:
    """Returns the path of the vocabulary; None if there is none."""
    node_id = root_children(graph).get("vocab_file")
    if node_id is None:
        return None
    with whole(os.path.join(path, _FILE), IndexError):
        asset = graph.object_graph_def.nodes[node_id].asset
        name = graph.asset_file_def[asset.asset_file_def_index].filename
    if os.path.basename(name) != name:
        raise ValueError(f"{path}: its vocabulary {name} is not a file in its assets")
    return os.path.join(path, "assets", name)


def read_asset(vocab_file: str | None) -> Vocabulary | None:
    """Reads the vocabulary in the assets of a SavedModel; returns None if there is none."""
    if not vocab_file:
        return None
    folder, name = os.path.split(vocab_file)
    return TokenizerFiles(folder).vocab if name in (VOCAB, SPIECE) else load_vocab(vocab_file)


def read_preprocessor(path: str) -> tuple[Vocabulary, bool, int] | None:
    """Returns vocabulary, lower-casing and length of any preprocessor; None for anything else."""
    if not recognizes(path):
        return None
    graph = read_graph(path)
    if not graph.object_graph_def.nodes or "bert_pack_inputs" not in root_children(graph):
        return None
    names = [os.path.basename(asset.filename) for asset in graph.asset_file_def]
    vocabs = [name for name in names if name != TOKENIZER]
    if len(vocabs) != 1:
        raise ValueError(f"{path} holds {len(vocabs)} assets, not one vocabulary")
    vocab = read_asset(os.path.join(path, "assets", vocabs[0]))
    lower_case = not _LOWER_CASING.isdisjoint(_operations(graph))
    for output in graph.signature_def["serving_default"].outputs.values():
        sizes = [dimension.size for dimension in output.tensor_shape.dim]
        if len(sizes) == 2 and sizes[1] > 0:
            return vocab, lower_case, sizes[1]
    raise ValueError(f"{path} does not state the length of its outputs: save it with its signature")
