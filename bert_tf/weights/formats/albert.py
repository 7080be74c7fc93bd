"""ALBERT in the files of google-research/albert and of Hugging Face.

ALBERT is a BERT with narrower embeddings and with layers that share weights; see `BertConfig`. Its
files store the weights under other names than BERT's, but in the same shapes.
"""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.weights.names import num_layers
from tfrecords.files import read_json

GOOGLE_CONFIG = "albert_config.json"

# Beginnings of BERT's names -> those of ALBERT's.
_GOOGLE_LAYER = "bert/encoder/transformer/group_{}/inner_group_0"
GOOGLE_NAMES = {
    "bert/encoder/layer_{}/attention/self": f"{_GOOGLE_LAYER}/attention_1/self",
    "bert/encoder/layer_{}/attention/output/dense": f"{_GOOGLE_LAYER}/attention_1/output/dense",
    "bert/encoder/layer_{}/attention/output/LayerNorm": f"{_GOOGLE_LAYER}/LayerNorm",
    "bert/encoder/layer_{}/intermediate/dense": f"{_GOOGLE_LAYER}/ffn_1/intermediate/dense",
    "bert/encoder/layer_{}/output/dense": f"{_GOOGLE_LAYER}/ffn_1/intermediate/output/dense",
    "bert/encoder/layer_{}/output/LayerNorm": f"{_GOOGLE_LAYER}/LayerNorm_1",
}
_LAYER = "albert.encoder.albert_layer_groups.{}.albert_layers.0"
HUGGINGFACE_NAMES = {
    "bert.encoder.layer.{}.attention.self": f"{_LAYER}.attention",
    "bert.encoder.layer.{}.attention.output.dense": f"{_LAYER}.attention.dense",
    "bert.encoder.layer.{}.attention.output.LayerNorm": f"{_LAYER}.attention.LayerNorm",
    "bert.encoder.layer.{}.intermediate.dense": f"{_LAYER}.ffn",
    "bert.encoder.layer.{}.output.dense": f"{_LAYER}.ffn_output",
    "bert.encoder.layer.{}.output.LayerNorm": f"{_LAYER}.full_layer_layer_norm",
    "bert.encoder.embedding": "albert.encoder.embedding",
    "bert.embeddings": "albert.embeddings",
    "bert.pooler.dense": "albert.pooler",
    "cls.predictions.transform": "predictions",
    "cls.predictions": "predictions",
    "cls.seq_relationship": "sop_classifier.classifier",
}
# transformers' `AlbertConfig`, where it differs from `BertConfig`.
HUGGINGFACE_DEFAULTS = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.1,
}


def renamed(name: str, names: Mapping[str, str]) -> str:
    """Replaces the beginning of a name; the first that fits counts."""
    start = next((start for start in names if name.startswith(start)), "")
    return names.get(start, "") + name.removeprefix(start)


def read_google_config(path: str) -> BertConfig:
    """Reads albert_config.json.

    Adds what google-research/albert computes for every model: "gelu" is the tanh form, and the
    input of a fine-tuned head has a dropout of 0.1.
    """
    values = {"classifier_dropout_prob": 0.1, **read_json(path)}
    if values.get("hidden_act") == "gelu":
        values["hidden_act"] = "gelu_new"
    try:
        return BertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def config_values(config: BertConfig) -> dict[str, Any]:
    """Returns keys and values with those whose defaults differ between BERT and ALBERT."""
    return config.to_dict() | {
        "embedding_size": config.embedding_size or config.hidden_size,
        "num_hidden_groups": num_layers(config),
        "classifier_dropout_prob": config.head_dropout_prob,
    }


def sentencepiece_file(folder: str) -> str | None:
    """Returns the SentencePiece model in a folder; None if there is none."""
    return next(iter(sorted(tf.io.gfile.glob(os.path.join(folder, "*.model")))), None)
