"""The paths and shapes of our models' weights.

A *part* is a group of weights that a checkpoint holds completely or not at all.
"""

from bert_tf.config import BertConfig

# part -> path -> shape, in the order of the models. {} is the index of a layer. MobileBERT has
# parts of its own; see `parts`.
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": {
        "encoder/embeddings/word_embeddings": ("vocab", "embedding"),
        "encoder/embeddings/position_embeddings": ("positions", "embedding"),
        "encoder/embeddings/token_type_embeddings": ("types", "embedding"),
        "encoder/embeddings/layer_norm/gamma": ("embedding",),
        "encoder/embeddings/layer_norm/beta": ("embedding",),
        "encoder/layer_{}/attention/qkv_kernel": ("hidden", "3 attended"),
        "encoder/layer_{}/attention/qkv_bias": ("3 attended",),
        "encoder/layer_{}/attention/output_kernel": ("attended", "hidden"),
        "encoder/layer_{}/attention/output_bias": ("hidden",),
        "encoder/layer_{}/attention_norm/gamma": ("hidden",),
        "encoder/layer_{}/attention_norm/beta": ("hidden",),
        "encoder/layer_{}/intermediate_kernel": ("hidden", "inner"),
        "encoder/layer_{}/intermediate_bias": ("inner",),
        "encoder/layer_{}/output_kernel": ("inner", "hidden"),
        "encoder/layer_{}/output_bias": ("hidden",),
        "encoder/layer_{}/output_norm/gamma": ("hidden",),
        "encoder/layer_{}/output_norm/beta": ("hidden",),
    },
    # Only if the embeddings are narrower than the layers.
    "projection": {
        "encoder/embeddings/projection_kernel": ("embedding", "hidden"),
        "encoder/embeddings/projection_bias": ("hidden",),
    },
    "pooler": {
        "encoder/pooler/dense_kernel": ("hidden", "hidden"),
        "encoder/pooler/dense_bias": ("hidden",),
    },
    "masked_lm": {
        "pretrainer/masked_lm/transform_kernel": ("hidden", "embedding"),
        "pretrainer/masked_lm/transform_bias": ("embedding",),
        "pretrainer/masked_lm/layer_norm/gamma": ("embedding",),
        "pretrainer/masked_lm/layer_norm/beta": ("embedding",),
        "pretrainer/masked_lm/output_bias": ("vocab",),
    },
    "next_sentence": {
        "pretrainer/next_sentence/dense_kernel": ("hidden", "2"),
        "pretrainer/next_sentence/dense_bias": ("2",),
    },
    "head": {
        "task_model/head/dense_kernel": ("hidden", "classes"),
        "task_model/head/dense_bias": ("classes",),
    },
}

# What the names of a model's state begin with that is no weight; see `compression.quantized_model`.
STATE = "quantization"
# The same for a teacher that trains; see `compression.mixed_vocabulary`.
TEACHER = "distillation/teacher"

_LAYER = "encoder/layer_{}"
_MOBILE_ENCODER: dict[str, tuple[str, ...]] = {
    "encoder/embeddings/word_embeddings": ("vocab", "embedding"),
    "encoder/embeddings/position_embeddings": ("positions", "hidden"),
    "encoder/embeddings/token_type_embeddings": ("types", "hidden"),
    "encoder/embeddings/trigram_kernel": ("3 embedding", "hidden"),
    "encoder/embeddings/trigram_bias": ("hidden",),
    "encoder/embeddings/layer_norm/gamma": ("hidden",),
    "encoder/embeddings/layer_norm/beta": ("hidden",),
    f"{_LAYER}/attention/qk_kernel": ("query key", "2 bottleneck"),
    f"{_LAYER}/attention/qk_bias": ("2 bottleneck",),
    f"{_LAYER}/attention/value_kernel": ("hidden", "bottleneck"),
    f"{_LAYER}/attention/value_bias": ("bottleneck",),
    f"{_LAYER}/attention/output_kernel": ("bottleneck", "bottleneck"),
    f"{_LAYER}/attention/output_bias": ("bottleneck",),
    f"{_LAYER}/attention_norm/gamma": ("bottleneck",),
    f"{_LAYER}/attention_norm/beta": ("bottleneck",),
    f"{_LAYER}/input_kernel": ("hidden", "bottleneck"),
    f"{_LAYER}/input_bias": ("bottleneck",),
    f"{_LAYER}/input_norm/gamma": ("bottleneck",),
    f"{_LAYER}/input_norm/beta": ("bottleneck",),
    f"{_LAYER}/output_kernel": ("bottleneck", "hidden"),
    f"{_LAYER}/output_bias": ("hidden",),
    f"{_LAYER}/output_norm/gamma": ("hidden",),
    f"{_LAYER}/output_norm/beta": ("hidden",),
}
# Only if queries and keys share a dense layer.
_SHARED = {
    f"{_LAYER}/attention/shared_kernel": ("hidden", "bottleneck"),
    f"{_LAYER}/attention/shared_bias": ("bottleneck",),
    f"{_LAYER}/attention/shared_norm/gamma": ("bottleneck",),
    f"{_LAYER}/attention/shared_norm/beta": ("bottleneck",),
}
# Of each feed-forward network.
_FEED_FORWARD = {
    "intermediate_kernel": ("bottleneck", "inner"),
    "intermediate_bias": ("inner",),
    "output_kernel": ("inner", "bottleneck"),
    "output_bias": ("bottleneck",),
    "norm/gamma": ("bottleneck",),
    "norm/beta": ("bottleneck",),
}
_MOBILE_MASKED_LM: dict[str, tuple[str, ...]] = {
    "pretrainer/masked_lm/transform_kernel": ("hidden", "hidden"),
    "pretrainer/masked_lm/transform_bias": ("hidden",),
    "pretrainer/masked_lm/layer_norm/gamma": ("hidden",),
    "pretrainer/masked_lm/layer_norm/beta": ("hidden",),
    "pretrainer/masked_lm/output_bias": ("vocab",),
    "pretrainer/masked_lm/own_embeddings": ("vocab", "hidden less embedding"),
}


def parts(config: BertConfig) -> dict[str, dict[str, tuple[str, ...]]]:
    """Returns the parts that a model may have, as in `PARTS`."""
    found = dict(PARTS)
    if not has_projection(config):
        del found["projection"]
    if not config.classifier_activation:
        del found["pooler"]
    if config.is_mobile:
        networks = {
            f"{_LAYER}/ffn_{index}/{name}": shape
            for index in range(config.num_feedforward_networks)
            for name, shape in _FEED_FORWARD.items()
        }
        shared = _SHARED if config.key_query_shared_bottleneck else {}
        found["encoder"] = _MOBILE_ENCODER | shared | networks
        found["masked_lm"] = _MOBILE_MASKED_LM
    return found


def part_of(path: str) -> str:
    """Returns the part that a weight belongs to."""
    for part in ("projection", "pooler"):
        if f"/{part}" in path:
            return part
    top, name = path.split("/")[:2]
    return "encoder" if top == "encoder" else name


def has_projection(config: BertConfig) -> bool:
    """Returns whether a dense layer widens the embeddings, as in ALBERT."""
    return not config.is_mobile and config.embedding_size not in (None, config.hidden_size)


def num_matrices(path: str) -> int:
    """Returns how many matrices a weight holds side by side: those of query, key and value."""
    return {"qkv_kernel": 3, "qk_kernel": 2}.get(path.rpartition("/")[2], 1)


def num_layers(config: BertConfig) -> int:
    """Returns how many layers have weights of their own."""
    return config.num_hidden_groups or config.num_hidden_layers


def sizes(config: BertConfig, classes: int = 0, layer: int = 0) -> dict[str, int]:
    """Returns the values of the names in shapes.

    Args:
        classes: outputs of the head.
        layer: the index of the layer; layers may have different numbers of heads.
    """
    hidden, heads = config.hidden_size, config.num_kept_heads(layer)
    embedding, bottleneck = config.embedding_size or hidden, config.intra_bottleneck_size or 0
    return {
        "vocab": config.vocab_size,
        "positions": config.max_position_embeddings,
        "types": config.type_vocab_size,
        "embedding": embedding,
        "3 embedding": 3 * embedding,
        "hidden less embedding": hidden - embedding,
        "bottleneck": bottleneck,
        "2 bottleneck": 2 * bottleneck,
        "query key": bottleneck if config.key_query_shared_bottleneck else hidden,
        "hidden": hidden,
        "attended": heads * config.head_size,
        "3 attended": 3 * heads * config.head_size,
        "inner": config.intermediate_size,
        "heads": heads,
        "head size": config.head_size,
        "classes": classes,
        "2": 2,
    }
