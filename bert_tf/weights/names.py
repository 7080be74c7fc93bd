"""The paths and shapes of our models' weights.

A *part* is a group of weights that a checkpoint holds completely or not at all.
"""

from bert_tf.config import BertConfig

# part -> path -> shape, in the order of the models. {} is the index of a layer.
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


def part_of(path: str) -> str:
    """Returns the part that a weight belongs to."""
    for part in ("projection", "pooler"):
        if f"/{part}" in path:
            return part
    top, name = path.split("/")[:2]
    return "encoder" if top == "encoder" else name


def has_projection(config: BertConfig) -> bool:
    """Returns whether a dense layer widens the embeddings."""
    return config.embedding_size not in (None, config.hidden_size)


def num_layers(config: BertConfig) -> int:
    """Returns how many layers have weights of their own."""
    return config.num_hidden_groups or config.num_hidden_layers


def sizes(config: BertConfig, classes: int = 0, layer: int = 0) -> dict[str, int]:
    """Returns the values of the names in shapes.

    Args:
        classes: outputs of the head.
        layer: the index of the layer; layers may have different numbers of heads.
    """
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
    }
