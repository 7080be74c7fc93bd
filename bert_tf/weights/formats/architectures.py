"""How Google and Hugging Face name and configure BERT, ALBERT and MobileBERT: a row for each."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.weights.names import num_layers


class Architecture(NamedTuple):
    """What differs from BERT's names and from our configurations."""

    prefix: str  # how the names of transformers' classes begin
    defaults: Mapping[str, Any]  # in transformers, of keys that config.json lacks
    huggingface: Mapping[str, str] = {}  # how names of weights begin, in place of BERT's beginnings
    google: Mapping[str, str] = {}
    lacks: Mapping[str, Callable[[BertConfig], bool]] = {}  # what transformers cannot compute


_GOOGLE_LAYER = "bert/encoder/transformer/group_{}/inner_group_0"
_LAYER = "albert.encoder.albert_layer_groups.{}.albert_layers.0"
ARCHITECTURES = {
    "bert": Architecture("Bert", {"vocab_size": 30522}),
    "albert": Architecture(
        "Albert",
        defaults={
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
        },
        huggingface={
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
        },
        google={
            "bert/encoder/layer_{}/attention/output/LayerNorm": f"{_GOOGLE_LAYER}/LayerNorm",
            "bert/encoder/layer_{}/attention": f"{_GOOGLE_LAYER}/attention_1",
            "bert/encoder/layer_{}/intermediate": f"{_GOOGLE_LAYER}/ffn_1/intermediate",
            "bert/encoder/layer_{}/output/LayerNorm": f"{_GOOGLE_LAYER}/LayerNorm_1",
            "bert/encoder/layer_{}/output": f"{_GOOGLE_LAYER}/ffn_1/intermediate/output",
        },
        lacks={
            "embeddings as wide as its layers": lambda config: not config.has_projection,
            "is_decoder": lambda config: config.is_decoder,
        },
    ),
    "mobilebert": Architecture(
        "MobileBert",
        defaults={
            "vocab_size": 30522,
            "hidden_size": 512,
            "num_hidden_layers": 24,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "hidden_act": "relu",
            "hidden_dropout_prob": 0.0,
            "embedding_size": 128,
            "intra_bottleneck_size": 128,
            "num_feedforward_networks": 4,
            "key_query_shared_bottleneck": True,
        },
        huggingface={"bert.": "mobilebert."},
        lacks={
            "no key_query_shared_bottleneck": lambda c: not c.key_query_shared_bottleneck,
            "is_decoder": lambda config: config.is_decoder,
        },
    ),
}


def renamed(name: str, names: Mapping[str, str]) -> str:
    """Replaces the beginning of a name; the first that fits counts."""
    start = next((start for start in names if name.startswith(start)), "")
    return names.get(start, "") + name.removeprefix(start)


def config_values(config: BertConfig) -> dict[str, Any]:
    """Returns keys and values; for ALBERT, those whose defaults differ from BERT's, too."""
    values = config.to_dict()
    if config.model_type == "albert":
        values |= {
            "embedding_size": config.embedding_size or config.hidden_size,
            "num_hidden_groups": num_layers(config),
            "classifier_dropout_prob": config.head_dropout_prob,
        }
    return values


def sentencepiece_file(folder: str) -> str | None:
    """Returns the SentencePiece model in a folder; None if there is none."""
    return next(iter(sorted(tf.io.gfile.glob(os.path.join(folder, "*.model")))), None)
