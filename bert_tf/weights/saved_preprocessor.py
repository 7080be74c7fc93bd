"""Reads the vocabulary and the casing of a preprocessor's SavedModel, without running it."""

import os
from typing import NamedTuple

from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

from bert_tf.text.tokenizer_files import TOKENIZER
from bert_tf.weights.formats.saved_model import read_asset, read_graph, recognizes, root_children
from tfrecords.vocabulary import Vocabulary

# The operations that lower-case text in the preprocessors of the Model Garden and in ours.
_LOWER_CASING = {"CaseFoldUTF8", "StringLower"}


class SavedPreprocessor(NamedTuple):
    """What describes a preprocessor.

    Attributes:
        vocab, lower_case: the tokenizer's.
        seq_length: the length of its outputs.
    """

    vocab: Vocabulary
    lower_case: bool
    seq_length: int


def read_preprocessor(path: str) -> SavedPreprocessor | None:
    """Reads the SavedModel of a preprocessor; returns None if the path is anything else.

    Args:
        path: a folder that `export.preprocessor` or the Model Garden wrote, or one from TF Hub.
    """
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
    functions = graph.graph_def.library.function
    operations = {node.op for function in functions for node in function.node_def}
    lower_case = not _LOWER_CASING.isdisjoint(operations)
    return SavedPreprocessor(vocab, lower_case, _seq_length(path, graph))


def _seq_length(path: str, graph: MetaGraphDef) -> int:
    for output in graph.signature_def["serving_default"].outputs.values():
        sizes = [dimension.size for dimension in output.tensor_shape.dim]
        if len(sizes) == 2 and sizes[1] > 0:
            return sizes[1]
    raise ValueError(f"{path} does not state the length of its outputs: save it with its signature")
