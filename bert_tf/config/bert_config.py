"""BERT, ALBERT and left-to-right encoders, as stored in `bert_config.json`."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, ClassVar, Self

from bert_tf.base.calling import checked
from bert_tf.base.process import check_memory

ACTIVATIONS = ("gelu", "gelu_new", "relu", "linear", "tanh")

# Keys of published files that do not affect what the encoder computes.
_HARMLESS = frozenset(
    """_name_or_path architectures attention_type bos_token_id cls_token_id
    directionality do_lower_case dtype eos_token_id finetuning_task gradient_checkpointing
    id2label label2id language language_model_type max_seq_length model_type num_labels
    output_attentions output_hidden_states output_past pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    problem_type sep_token_id tie_word_embeddings tokenizer_class torch_dtype torchscript
    transformers_version true_hidden_size use_cache""".split()
)
# Keys that would affect what the encoder computes, with the only supported value.
_FIXED = {
    "position_embedding_type": "absolute",
    "add_cross_attention": False,
    "use_bfloat16": False,
    # From ALBERT.
    "inner_group_num": 1,
    "down_scale_factor": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    # From MobileBERT.
    "use_bottleneck": True,
    "use_bottleneck_attention": False,
    "trigram_input": True,
    "normalization_type": "no_norm",
}
# The fields of BERT's own files.
_ALWAYS_WRITTEN = frozenset(
    """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act
    hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size
    initializer_range layer_norm_eps""".split()
)

_OF_HEADS = frozenset(
    """masked_lm_act masked_lm_layer_norm_eps classifier_dropout_prob
    classifier_activation""".split()
)

# As many as DeepNet has (arXiv:2203.00555).
_MOST_LAYERS = 1000


def check_fields(values: Any) -> None:
    """Raises a ValueError if a field of a dataclass holds a value of another type.

    Integers are sizes: they are positive, or else as their metadata say. Numbers are finite.
    """
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if value is None and field.default is None:
            continue
        kind = field.type
        if isinstance(kind, UnionType):  # "int | None"
            kind = kind.__args__[0]
        at_least = field.metadata.get("at_least", 1)
        if kind is int and not (type(value) is int and value >= at_least):
            what = "a positive integer" if at_least else "an integer of at least 0"
            raise ValueError(f"{field.name} must be {what}, not {value!r}")
        if kind is float and not (type(value) in (int, float) and math.isfinite(value)):
            raise ValueError(f"{field.name} must be a finite number, not {value!r}")
        if kind in (bool, str) and type(value) is not kind:
            what = "true or false" if kind is bool else "a string"
            raise ValueError(f"{field.name} must be {what}, not {value!r}")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes and rates of a BERT encoder, with the names of `bert_config.json`.

    `hidden_act` is the activation of the feed-forward layers and of the masked-LM transform.
    "gelu" is the exact form (erf) and "gelu_new" the tanh approximation, as in Hugging Face's
    files. google-research/bert called both forms "gelu" at different times; a checkpoint must keep
    the form it was trained with, which the key "gelu_approximate" states in Google's format.

    BERT's own files lack the last nine fields, which are written only if they are set:

    - `embedding_size` is the width of the embeddings; a dense layer maps it to hidden_size.
    - `num_hidden_groups` is the number of layers that have weights of their own. Each of them is
      applied several times in a row. If None, every layer has its own weights.
    - `is_decoder` makes attention causal: a position attends to itself and to earlier ones. The
      pooler then reads the last token, the only one that has seen the whole text.
    - `masked_lm_act` and `masked_lm_layer_norm_eps` are those of the masked-LM head, if they differ
      from `hidden_act` and `layer_norm_eps`, as in KerasHub.
    - `classifier_dropout_prob` is the dropout rate of the input of a fine-tuned head, if it differs
      from `hidden_dropout_prob`, as in ALBERT.
    - `pruned_heads` maps layers to the attention heads that were removed from them, as in Hugging
      Face's files; both count from 0. Those that stay have the width hidden_size /
      num_attention_heads.
    - Without `classifier_activation`, the pooled output is the first token, as in MobileBERT.
    - `pooler_act` is the activation of the pooler: "relu" in DistilBERT, "gelu" in ELECTRA, which
      have one only below the head of a classifier.

    With a `type_vocab_size` of 0, as in DistilBERT, there are no segment embeddings.

    Other architectures are subclasses. `from_dict` chooses the one whose `key` has a value.

    Attributes:
        has_layers: whether the encoder is a stack of transformer layers, a `BertEncoder`.
        reads_padding: whether padding changes the outputs of tokens.
        own_sizes: sizes of weights that only this architecture has; see `weights.names`.
        own_masked_lm_width: how many columns the masked-LM head adds to the word embeddings.

    Example:
        config = bert_tf.BertConfig(vocab_size=8000, hidden_size=256, num_attention_heads=4)
        config = dataclasses.replace(bert_tf.load("run").config, hidden_dropout_prob=0.0)

    Source: google-research/bert modeling.py `BertConfig`; google-research/albert modeling.py
    `AlbertConfig`; Hugging Face's `BertConfig` for `is_decoder`.
    """

    key: ClassVar[str] = "vocab_size"
    has_layers: ClassVar[bool] = True
    reads_padding: ClassVar[bool] = False
    own_sizes: ClassVar[Mapping[str, int]] = {}
    own_masked_lm_width: ClassVar[int] = 0
    # The key of the width that the attention heads share.
    _divided: ClassVar[str] = "hidden_size"

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = dataclasses.field(default=2, metadata={"at_least": 0})
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    is_decoder: bool = False
    masked_lm_act: str | None = None
    masked_lm_layer_norm_eps: float | None = None
    classifier_dropout_prob: float | None = None
    pruned_heads: Mapping[int, Sequence[int]] | None = dataclasses.field(default=None, hash=False)
    classifier_activation: bool = True
    pooler_act: str = "tanh"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.num_hidden_layers > _MOST_LAYERS:
            raise ValueError(f"num_hidden_layers={self.num_hidden_layers} is above {_MOST_LAYERS}")
        if (parameters := self._least_parameters()) > 10**9:
            sizes = {name: value for name, value in vars(self).items() if type(value) is int}
            largest = max(sizes, key=sizes.get)
            check_memory(f"a model with {largest}={sizes[largest]}", 4 * parameters)
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, float | int) and value < 0:
                raise ValueError(f"{name} must be a finite number >= 0, not {value!r}")
            if name.endswith("_prob") and value is not None and value >= 1:
                raise ValueError(f"{name} must be below 1, not {value!r}")
        if (width := getattr(self, self._divided)) % self.num_attention_heads:
            raise ValueError(
                f"{self._divided} {width} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if (groups := self.num_hidden_groups or 1) > self.num_hidden_layers:
            layers = self.num_hidden_layers
            raise ValueError(f"num_hidden_groups {groups} is more than num_hidden_layers {layers}")
        for key in ("hidden_act", "masked_lm_act", "pooler_act"):
            value = getattr(self, key)
            if value not in ACTIVATIONS and not (value is None and key == "masked_lm_act"):
                raise ValueError(f"{key} {value!r} is not one of {', '.join(ACTIVATIONS)}")
        object.__setattr__(self, "pruned_heads", self._checked_heads() or None)

    def _least_parameters(self) -> int:
        """Returns a lower bound for the number of weights; counts only the large matrices."""
        tables = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        width = getattr(self, self._divided)
        layer = 2 * width * (self.hidden_size + self.intermediate_size)
        layers = self.num_hidden_groups or self.num_hidden_layers
        return tables * (self.embedding_size or self.hidden_size) + layers * layer

    def _checked_heads(self) -> dict[int, tuple[int, ...]]:
        """Returns `pruned_heads` in order; the keys may be strings, as in JSON."""
        found = self.pruned_heads or {}
        layers, count = range(self.num_hidden_layers), self.num_attention_heads
        try:
            heads = {int(layer): tuple(sorted({*heads})) for layer, heads in found.items() if heads}
            fits = all(
                layer in layers and {*removed} < {*range(count)} for layer, removed in heads.items()
            )
        except (AttributeError, TypeError, ValueError):
            fits = False
        if not fits:
            raise ValueError(
                f"pruned_heads is {found!r}: it must map layers (0 to {len(layers) - 1}) to lists "
                f"of heads (0 to {count - 1}), and leave each layer a head"
            )
        if heads and self.num_hidden_groups:
            raise ValueError("pruned_heads needs unshared layers: omit num_hidden_groups")
        return dict(sorted(heads.items()))

    @property
    def model_type(self) -> str:
        """The name of the architecture in transformers."""
        if not self.type_vocab_size:
            return "distilbert"
        if self.pooler_act == "gelu":
            return "electra"
        return "albert" if self.embedding_size or self.num_hidden_groups else "bert"

    @property
    def special_keys(self) -> list[str]:
        """The keys with values by which the layers differ from those of a plain BERT."""
        usual = _ALWAYS_WRITTEN | _OF_HEADS
        if not self.has_projection:
            usual |= {"embedding_size"}
        return [key for key in self.to_dict() if key not in usual]

    @property
    def longest_input(self) -> int | None:
        """The most tokens that the encoder can read; None if any number."""
        return self.max_position_embeddings

    @property
    def has_projection(self) -> bool:
        """Whether a dense layer widens the embeddings, as in ALBERT."""
        return self.embedding_size not in (None, self.hidden_size)

    @property
    def head_size(self) -> int:
        """The width of an attention head."""
        return getattr(self, self._divided) // self.num_attention_heads

    @property
    def layer_parameters(self) -> tuple[int, int, int]:
        """The parameters of a layer's attention, feed-forward network and each normalization.

        MobileBERT, BiLSTMs and layers without some of their heads differ.
        """
        if self.model_type in ("mobilebert", "bilstm") or self.pruned_heads:
            raise ValueError("this needs the layers of a BERT or ALBERT with all its heads")
        hidden, inner = self.hidden_size, self.intermediate_size
        return 4 * (hidden + 1) * hidden, 2 * hidden * inner + hidden + inner, 2 * hidden

    @property
    def num_parameters(self) -> int:
        """The parameters of an encoder with such layers and of its pooler."""
        attention, feed_forward, norm = self.layer_parameters
        hidden, width = self.hidden_size, self.embedding_size or self.hidden_size
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size + 2  # its norm
        dense = (width + 1) * hidden if self.has_projection else 0
        dense += (hidden + 1) * hidden if self.classifier_activation else 0
        layers = self.num_hidden_groups or self.num_hidden_layers
        return rows * width + dense + layers * (attention + feed_forward + 2 * norm)

    def kept_heads(self, layer: int) -> list[int]:
        """Returns the attention heads of a layer, without those that were removed."""
        removed = (self.pruned_heads or {}).get(layer, ())
        return [head for head in range(self.num_attention_heads) if head not in removed]

    @property
    def masked_lm_form(self) -> tuple[str, float]:
        """The activation and the layer-norm epsilon of the masked-LM head."""
        epsilon = self.masked_lm_layer_norm_eps
        return (
            self.masked_lm_act or self.hidden_act,
            self.layer_norm_eps if epsilon is None else epsilon,
        )

    @property
    def head_dropout_prob(self) -> float:
        """The dropout rate of the input of a fine-tuned head."""
        rate = self.classifier_dropout_prob
        return self.hidden_dropout_prob if rate is None else rate

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, ignore_unknown: bool = False) -> Self:
        """Creates a configuration from the keys of `bert_config.json`.

        Missing keys keep their defaults. Additional keys of published files are accepted if they
        do not affect what is computed; `ignore_unknown` accepts all others, too.
        "gelu_approximate" says which form of GELU "gelu" is, and "classifier_dropout" is Hugging
        Face's name of `classifier_dropout_prob`.
        """
        values = _with_gelu_form(values)
        if (rate := values.pop("classifier_dropout", None)) is not None:
            values.setdefault("classifier_dropout_prob", rate)
        kinds = (kind for kind in cls.__subclasses__() if values.get(kind.key) is not None)
        kind = next(kinds, cls)
        own = {field.name for field in dataclasses.fields(kind)}
        for key, value in values.items():
            if key in _FIXED and value != _FIXED[key]:
                raise ValueError(f"{key} {value!r} is not supported, only {_FIXED[key]!r}")
            known = ignore_unknown or key in own or key in _HARMLESS or key in _FIXED
            if not known:
                raise ValueError(f"unknown key {key!r}: the keys are {', '.join(sorted(own))}")
        if "vocab_size" not in values:
            raise ValueError("vocab_size is missing: set it to the size of the vocabulary")
        return kind(**{key: value for key, value in values.items() if key in own})

    def to_dict(self) -> dict[str, Any]:
        """Returns the keys and values of `bert_config.json`.

        Omits keys that BERT's own files lack if they have their default values, so that every
        published tool can read the file of a plain BERT.
        """
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name in _ALWAYS_WRITTEN or getattr(self, field.name) != field.default
        }
        if self.pruned_heads:
            values["pruned_heads"] = {
                str(key): [*heads] for key, heads in self.pruned_heads.items()
            }
        return values

    @classmethod
    @checked
    def from_json_file(cls, path: str | os.PathLike) -> Self:
        """Reads a `bert_config.json`; errors name the file."""
        # Flags know the presets, and --help imports no TensorFlow.
        import tensorflow as tf

        from bert_tf.base.files import errors_at, parse_json, read_file

        if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
            raise FileNotFoundError(f"{path}: no such file: give the path of a bert_config.json")
        with errors_at(path):
            return cls.from_dict(parse_json(read_file(path)))

    def to_json_file(self, path: str) -> None:
        """Writes a `bert_config.json` atomically."""
        from bert_tf.base.output_files import write_json

        write_json(path, self.to_dict())


def _with_gelu_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keys and values with "gelu_approximate" turned into a value of hidden_act."""
    values = dict(values)
    approximate = values.pop("gelu_approximate", None)
    if approximate is None:
        return values
    wanted, act = "gelu_new" if approximate else "gelu", values.get("hidden_act", "gelu")
    if type(approximate) is not bool or act not in ("gelu", wanted):
        raise ValueError(f"gelu_approximate {approximate!r} does not fit hidden_act {act!r}")
    return values | {"hidden_act": wanted}
