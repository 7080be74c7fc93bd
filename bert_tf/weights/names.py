"""The weights of our models: paths, shapes, arithmetic, and names in the files of other programs.

A *part* is a group of weights that a checkpoint holds completely or not at all.
"""

import math
from typing import NamedTuple

from bert_tf.config import BertConfig, MobileBertConfig

PARTS = ("encoder", "projection", "pooler", "masked_lm", "next_sentence", "head")
HEAD_KERNEL, HEAD_BIAS = "task_model/head/dense_kernel", "task_model/head/dense_bias"
# The matrices that one of our weights holds side by side, by the start of its path's last part.
SIDE_BY_SIDE = {"qkv": ("query", "key", "value"), "qk": ("query", "key")}


class Weight(NamedTuple):
    """A weight, and what other programs call it; None if they do not have it.

    There, * stands for query, key and value, which they keep apart. The names of architectures
    other than BERT begin differently; see `formats.architectures`.
    """

    path: str  # in our models; {} is the index of a layer
    shape: tuple[str, ...]  # the names of its axes; see `sizes`
    google: str | None
    huggingface: str | None
    kerashub: str | None
    model_garden: str | None


# The kinds of layers: how the names of their weights end in each column of `Weight`.
_TABLE = (("", "", ".weight", "/vars/0", "/embeddings"),)
_DENSE = (
    ("_kernel", "/kernel", ".weight", "/vars/0", "/kernel"),
    ("_bias", "/bias", ".bias", "/vars/1", "/bias"),
)
_NORM = (
    ("/gamma", "/gamma", ".weight", "/vars/0", "/gamma"),
    ("/beta", "/beta", ".bias", "/vars/1", "/beta"),
)


def _weights(beginnings: tuple[str | None, ...], *layers: tuple) -> tuple[Weight, ...]:
    """Returns the weights of layers, given how their names begin in each column of `Weight`."""
    # Each layer: its kind, our name, the shape of its first weight, Google's name, which with dots
    # is Hugging Face's, KerasHub's, the Model Garden's.
    found = []
    for kind, ours, shape, google, *others in layers:
        names = [ours, google, google.replace("/", "."), *others, None, None]
        for index, endings in enumerate(kind):
            path, *theirs = (
                None if None in whole else "".join(whole)
                for whole in zip(beginnings, names[:5], endings, strict=True)
            )
            found.append(Weight(path, shape[-1:] if index else shape, *theirs))
    return tuple(found)


_ENCODER = (
    *_weights(
        ("encoder/embeddings/", "bert/embeddings/", "bert.embeddings.", "layers/", ""),
        (_TABLE, "word_embeddings", ("vocab", "embedding"),
         "word_embeddings", "reversible_embedding", "word_embeddings"),
        (_TABLE, "position_embeddings", ("positions", "embedding"),
         "position_embeddings", "position_embedding", "position_embedding"),
        (_TABLE, "token_type_embeddings", ("types", "embedding"),
         "token_type_embeddings", "embedding", "type_embeddings"),
        (_NORM, "layer_norm", ("embedding",),
         "LayerNorm", "layer_normalization", "embeddings/layer_norm"),
    ),
    *_weights(
        ("encoder/layer_{}/", "bert/encoder/layer_{}/", "bert.encoder.layer.{}.",
         "layers/transformer_encoder_{}/", "transformer/layer_{}/"),
        (_DENSE, "attention/qkv", ("hidden", "3 attended"),
         "attention/self/*", "_self_attention_layer/*_dense", "self_attention/*"),
        (_DENSE, "attention/output", ("attended", "hidden"), "attention/output/dense",
         "_self_attention_layer/output_dense", "self_attention/attention_output"),
        (_NORM, "attention_norm", ("hidden",), "attention/output/LayerNorm",
         "_self_attention_layer_norm", "self_attention_layer_norm"),
        (_DENSE, "intermediate", ("hidden", "inner"),
         "intermediate/dense", "_feedforward_intermediate_dense", "intermediate"),
        (_DENSE, "output", ("inner", "hidden"),
         "output/dense", "_feedforward_output_dense", "output"),
        (_NORM, "output_norm", ("hidden",),
         "output/LayerNorm", "_feedforward_layer_norm", "output_layer_norm"),
    ),
)  # fmt: skip
# Only if the embeddings are narrower than the layers.
_PROJECTION = _weights(
    ("encoder/embeddings/", "bert/encoder/", "bert.encoder.", None, ""),
    (_DENSE, "projection", ("embedding", "hidden"),
     "embedding_hidden_mapping_in", None, "embedding_projection"),
)  # fmt: skip
_POOLER = _weights(
    ("encoder/pooler/", "bert/pooler/", "bert.pooler.", "layers/", ""),
    (_DENSE, "dense", ("hidden", "hidden"), "dense", "dense", "pooler_transform"),
)


def _masked_lm(width: str) -> tuple[Weight, ...]:
    return (
        *_weights(
            ("pretrainer/masked_lm/", "cls/predictions/", "cls.predictions.",
             "task/layers/masked_lm_head/", "cls/predictions/"),
            (_DENSE, "transform", ("hidden", width),
             "transform/dense", "_intermediate_dense", "transform/dense"),
            (_NORM, "layer_norm", (width,),
             "transform/LayerNorm", "_intermediate_layer_norm", "transform/LayerNorm"),
        ),
        Weight("pretrainer/masked_lm/output_bias", ("vocab",),
               "cls/predictions/output_bias", "cls.predictions.bias",
               "task/layers/masked_lm_head/vars/0", "cls/predictions/output_bias/bias"),
    )  # fmt: skip


_MASKED_LM = _masked_lm("embedding")
_HEADS = (
    Weight("pretrainer/next_sentence/dense_kernel", ("hidden", "2"),
           "cls/seq_relationship/output_weights", "cls.seq_relationship.weight",
           None, "next_sentence/logits/kernel"),
    Weight("pretrainer/next_sentence/dense_bias", ("2",),
           "cls/seq_relationship/output_bias", "cls.seq_relationship.bias",
           None, "next_sentence/logits/bias"),
    Weight(HEAD_KERNEL, ("hidden", "classes"),
           "output_weights", "classifier.weight", "task/layers/dense/vars/0", None),
    Weight(HEAD_BIAS, ("classes",),
           "output_bias", "classifier.bias", "task/layers/dense/vars/1", None),
)  # fmt: skip

# Only Hugging Face's files hold MobileBERT.
_MOBILE_LAYER = ("encoder/layer_{}/", None, "bert.encoder.layer.{}.", None, None)
_MOBILE_ENCODER = (
    *_weights(
        ("encoder/embeddings/", None, "bert.embeddings.", None, None),
        (_TABLE, "word_embeddings", ("vocab", "embedding"), "word_embeddings"),
        (_TABLE, "position_embeddings", ("positions", "hidden"), "position_embeddings"),
        (_TABLE, "token_type_embeddings", ("types", "hidden"), "token_type_embeddings"),
        (_DENSE, "trigram", ("3 embedding", "hidden"), "embedding_transformation"),
        (_NORM, "layer_norm", ("hidden",), "LayerNorm"),
    ),
    *_weights(
        _MOBILE_LAYER,
        (_DENSE, "attention/qk", ("query key", "2 bottleneck"), "attention/self/*"),
        (_DENSE, "attention/value", ("hidden", "bottleneck"), "attention/self/value"),
        (_DENSE, "attention/output", ("bottleneck", "bottleneck"), "attention/output/dense"),
        (_NORM, "attention_norm", ("bottleneck",), "attention/output/LayerNorm"),
        (_DENSE, "input", ("hidden", "bottleneck"), "bottleneck/input/dense"),
        (_NORM, "input_norm", ("bottleneck",), "bottleneck/input/LayerNorm"),
        (_DENSE, "output", ("bottleneck", "hidden"), "output/bottleneck/dense"),
        (_NORM, "output_norm", ("hidden",), "output/bottleneck/LayerNorm"),
    ),
)
# Only if queries and keys share a dense layer.
_MOBILE_SHARED = _weights(
    _MOBILE_LAYER,
    (_DENSE, "attention/shared", ("hidden", "bottleneck"), "bottleneck/attention/dense"),
    (_NORM, "attention/shared_norm", ("bottleneck",), "bottleneck/attention/LayerNorm"),
)
_MOBILE_MASKED_LM = (
    *_masked_lm("hidden"),
    Weight("pretrainer/masked_lm/own_embeddings", ("vocab", "hidden less embedding"),
           None, "cls.predictions.dense.weight", None, None),
)  # fmt: skip


def _mobile_encoder(config: MobileBertConfig) -> tuple[Weight, ...]:
    found = _MOBILE_ENCODER
    if config.key_query_shared_bottleneck:
        found += _MOBILE_SHARED
    last = config.num_feedforward_networks - 1
    for index in range(last + 1):
        ours, theirs = f"ffn_{index}/", "" if index == last else f"ffn/{index}/"
        found += _weights(
            _MOBILE_LAYER,
            (_DENSE, f"{ours}intermediate", ("bottleneck", "inner"), f"{theirs}intermediate/dense"),
            (_DENSE, f"{ours}output", ("inner", "bottleneck"), f"{theirs}output/dense"),
            (_NORM, f"{ours}norm", ("bottleneck",), f"{theirs}output/LayerNorm"),
        )
    return found


def weights(config: BertConfig) -> tuple[Weight, ...]:
    """Returns the weights that a model may have, in the order of the models."""
    encoder, masked_lm = _ENCODER, _MASKED_LM
    if config.model_type == "mobilebert":
        encoder, masked_lm = _mobile_encoder(config), _MOBILE_MASKED_LM
    if not config.type_vocab_size:
        encoder = tuple(weight for weight in encoder if "types" not in weight.shape)
    projection = _PROJECTION if config.has_projection else ()
    pooler = _POOLER if config.classifier_activation else ()
    return (*encoder, *projection, *pooler, *masked_lm, *_HEADS)


def part_of(path: str) -> str:
    """Returns the part that a weight belongs to."""
    for part in ("projection", "pooler"):
        if f"/{part}" in path:
            return part
    top, name = path.split("/")[:2]
    return "encoder" if top == "encoder" else name


def num_matrices(path: str) -> int:
    """Returns how many matrices a weight holds side by side: those of query, key and value."""
    return len(SIDE_BY_SIDE.get(path.rpartition("/")[2].removesuffix("_kernel"), [path]))


def num_layers(config: BertConfig) -> int:
    """Returns how many layers have weights of their own."""
    return config.num_hidden_groups or config.num_hidden_layers


def sizes(config: BertConfig, classes: int = 0, layer: int = 0) -> dict[str, int]:
    """Returns the sizes that the names in shapes stand for, in a layer and a head of `classes`."""
    hidden, heads = config.hidden_size, len(config.kept_heads(layer))
    return {
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
        "embedding": config.embedding_size or hidden,
        "hidden": hidden,
        "attended": heads * config.head_size,
        "3 attended": 3 * heads * config.head_size,
        "inner": config.intermediate_size,
        "heads": heads,
        "head size": config.head_size,
        "classes": classes,
        "2": 2,
        **config.own_sizes,
    }


def training_flops(config: BertConfig, max_seq_length: int, max_predictions_per_seq: int) -> int:
    """Returns the floating-point operations of the matrix products for training on one sequence.

    A product of [m, k] and [k, n] counts as 2 m k n. The backward pass has two such products for
    each one of the forward pass. Padding counts, rematerialization does not.

    Source: the model FLOPs of PaLM (arXiv:2204.02311) appendix B, with the sizes of BERT's heads.
    """
    # How many rows a kernel multiplies; those of the other parts multiply all tokens.
    rows = {"masked_lm": max_predictions_per_seq, "pooler": 1, "next_sentence": 1, "head": 0}
    width = (config.embedding_size or config.hidden_size) + config.own_masked_lm_width
    products = max_predictions_per_seq * width * config.vocab_size
    kernels = [weight for weight in weights(config) if weight.path.endswith("_kernel")]
    for layer in range(config.num_hidden_layers):
        axes = sizes(config, layer=layer)
        for kernel in kernels:
            if "{}" in kernel.path or layer == 0:
                each = math.prod(axes[name] for name in kernel.shape)
                products += rows.get(part_of(kernel.path), max_seq_length) * each
        products += 2 * max_seq_length**2 * axes["attended"]  # scores and context
    return 3 * 2 * products
