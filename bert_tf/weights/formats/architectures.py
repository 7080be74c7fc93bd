"""How Google and Hugging Face name and configure BERT, ALBERT and MobileBERT: a row for each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_tf.config import BertConfig
from bert_tf.weights.names import num_layers


class Architecture(NamedTuple):
    """What differs from BERT's names and from our configurations."""

    prefix: str  # how the names of transformers' classes begin
    defaults: Mapping[str, Any]  # in transformers, of keys that config.json lacks
    huggingface: Mapping[str, str] = {}  # how names of weights begin, in place of BERT's beginnings
    heads: Mapping[str, Mapping[str, str]] = {}  # the same, below and in the head of a kind
    google: Mapping[str, str] = {}
    lacks: Mapping[str, Callable[[BertConfig], bool]] = {}  # what transformers cannot compute
    keys: Mapping[str, str] = {}  # ours -> those of config.json that have other names
    fixed: Mapping[str, Any] = {}  # our values of what config.json does not state
    unread: tuple[str, ...] = ()  # patterns of weights that no task reads
    tokenizer: Mapping[str, Any] = {}  # what transformers' tokenizer must know of the model


_GOOGLE_LAYER = "bert/encoder/transformer/group_{}/inner_group_0"
_LAYER = "albert.encoder.albert_layer_groups.{}.albert_layers.0"
_DISTIL_LAYER = "distilbert.transformer.layer.{}"
ARCHITECTURES = {
    "bert": Architecture("Bert", {"vocab_size": 30522}, fixed={"pooler_act": "tanh"}),
    # It computes what BERT computes, and is written as one.
    "ernie": Architecture("Ernie", {"vocab_size": 30522}, fixed={"pooler_act": "tanh"}),
    "distilbert": Architecture(
        "DistilBert",
        defaults={"vocab_size": 30522, "seq_classif_dropout": 0.2},
        huggingface={
            "bert.encoder.layer.{}.attention.self.*": f"{_DISTIL_LAYER}.attention.?_lin",
            "bert.encoder.layer.{}.attention.output.dense": f"{_DISTIL_LAYER}.attention.out_lin",
            "bert.encoder.layer.{}.attention.output.LayerNorm": f"{_DISTIL_LAYER}.sa_layer_norm",
            "bert.encoder.layer.{}.intermediate.dense": f"{_DISTIL_LAYER}.ffn.lin1",
            "bert.encoder.layer.{}.output.dense": f"{_DISTIL_LAYER}.ffn.lin2",
            "bert.encoder.layer.{}.output.LayerNorm": f"{_DISTIL_LAYER}.output_layer_norm",
            "bert.embeddings": "distilbert.embeddings",
            "bert.pooler.dense": "pre_classifier",
            "cls.predictions.transform.dense": "vocab_transform",
            "cls.predictions.transform.LayerNorm": "vocab_layer_norm",
            "cls.predictions.decoder": "vocab_projector",
            "cls.predictions.bias": "vocab_projector.bias",
        },
        lacks={
            "embedding_size": lambda config: config.has_projection,
            "shared layers": lambda config: bool(config.num_hidden_groups),
            "is_decoder": lambda config: config.is_decoder,
        },
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout_prob": "seq_classif_dropout",
        },
        fixed={"type_vocab_size": 0, "pooler_act": "relu", "layer_norm_eps": 1e-12},
        tokenizer={"model_input_names": ["input_ids", "attention_mask"]},
    ),
    "electra": Architecture(
        "Electra",
        defaults={
            "vocab_size": 30522,
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        huggingface={
            "bert.encoder.embedding_hidden_mapping_in": "electra.embeddings_project",
            "bert.pooler.dense": "classifier.dense",
            "cls.predictions.transform": "generator_predictions",
            "cls.predictions.decoder": "generator_lm_head",
            "cls.predictions.bias": "generator_lm_head.bias",
            "bert.": "electra.",
        },
        heads={
            "classifier": {"classifier.": "classifier.out_proj."},
            "multiple_choice": {"bert.pooler.dense": "sequence_summary.summary"},
        },
        lacks={
            "shared layers": lambda config: bool(config.num_hidden_groups),
            "is_decoder": lambda config: config.is_decoder,
        },
        fixed={"pooler_act": "gelu"},
        unread=("discriminator_predictions.*",),
    ),
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
        fixed={"pooler_act": "tanh"},
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
        fixed={"pooler_act": "tanh"},
    ),
}


def renamed(name: str, names: Mapping[str, str]) -> str:
    """Replaces the beginning of a name; the first that fits counts."""
    start = next((start for start in names if name.startswith(start)), "")
    return names.get(start, "") + name.removeprefix(start)


def config_values(config: BertConfig) -> dict[str, Any]:
    """Returns keys and values; those whose defaults differ from BERT's, too."""
    values, architecture = config.to_dict(), ARCHITECTURES[config.model_type]
    known = {
        "embedding_size": config.embedding_size or config.hidden_size,
        "num_hidden_groups": num_layers(config),
        "classifier_dropout_prob": config.head_dropout_prob,
    }
    theirs = {ours: architecture.keys.get(ours, ours) for ours in {**values, **known}}
    values |= {x: known[x] for x in known if theirs[x] in architecture.defaults}
    return {theirs[x]: y for x, y in values.items() if x not in architecture.fixed}
