"""MobileBERT in Hugging Face's files."""

from typing import Any

from bert_tf.config import BertConfig
from bert_tf.weights.table import Row

# transformers' `MobileBertConfig`, where it differs from `BertConfig`.
DEFAULTS = {
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
}
# Those of its keys that other models lack.
KEYS = frozenset(
    """classifier_activation intra_bottleneck_size key_query_shared_bottleneck
    num_feedforward_networks""".split()
)
_OURS, _THEIRS = "encoder/layer_{}", "bert.encoder.layer.{}"
_QK = ("query", "key")


def check(config: BertConfig, source: str) -> None:
    """Raises a ValueError if transformers' MobileBERT does not compute what a model computes."""
    for key, only in (("is_decoder", False), ("key_query_shared_bottleneck", True)):
        if getattr(config, key) != only:
            raise ValueError(
                f"{source}: {key} is {not only}, which Hugging Face's MobileBERT cannot compute: "
                "keep it in a run folder"
            )


def config_values(config: BertConfig) -> dict[str, Any]:
    """Returns keys and values with those whose defaults differ between BERT and MobileBERT."""
    return config.to_dict() | {"key_query_shared_bottleneck": config.key_query_shared_bottleneck}


def encoder_rows(config: BertConfig) -> list[Row]:
    """Returns the table of the encoder, with "bert" in place of "mobilebert"."""
    embeddings = "bert.embeddings"
    rows = [
        Row(f"encoder/embeddings/{name}", f"{embeddings}.{name}.weight")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ]
    rows += _dense("encoder/embeddings/trigram", f"{embeddings}.embedding_transformation")
    rows += _norm("encoder/embeddings/layer_norm", f"{embeddings}.LayerNorm")
    attention, theirs = f"{_OURS}/attention", f"{_THEIRS}.attention"
    rows += [
        Row(f"{attention}/qk_kernel", tuple(f"{theirs}.self.{x}.weight" for x in _QK), True),
        Row(f"{attention}/qk_bias", tuple(f"{theirs}.self.{x}.bias" for x in _QK)),
        *_dense(f"{attention}/value", f"{theirs}.self.value"),
        *_dense(f"{attention}/output", f"{theirs}.output.dense"),
        *_norm(f"{_OURS}/attention_norm", f"{theirs}.output.LayerNorm"),
    ]
    for ours, shared, name in (
        (f"{_OURS}/input", f"{_OURS}/input_norm", "bottleneck.input"),
        (f"{attention}/shared", f"{attention}/shared_norm", "bottleneck.attention"),
        (f"{_OURS}/output", f"{_OURS}/output_norm", "output.bottleneck"),
    ):
        rows += _dense(ours, f"{_THEIRS}.{name}.dense")
        rows += _norm(shared, f"{_THEIRS}.{name}.LayerNorm")
    last = config.num_feedforward_networks - 1
    for index in range(last + 1):
        theirs = _THEIRS if index == last else f"{_THEIRS}.ffn.{index}"
        rows += _dense(f"{_OURS}/ffn_{index}/intermediate", f"{theirs}.intermediate.dense")
        rows += _dense(f"{_OURS}/ffn_{index}/output", f"{theirs}.output.dense")
        rows += _norm(f"{_OURS}/ffn_{index}/norm", f"{theirs}.output.LayerNorm")
    return rows


def _dense(ours: str, theirs: str) -> list[Row]:
    return [
        Row(f"{ours}_kernel", f"{theirs}.weight", transposed=True),
        Row(f"{ours}_bias", f"{theirs}.bias"),
    ]


def _norm(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/gamma", f"{theirs}.weight"), Row(f"{ours}/beta", f"{theirs}.bias")]
