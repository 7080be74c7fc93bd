"""What a model is: the architecture of its encoder, its vocabulary, its head; published sizes."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from bert_tf.config.bert_config import BertConfig, check_fields

if TYPE_CHECKING:
    from tfrecords.vocabulary import Vocabulary

HEADS = ("classifier", "multiple_choice", "tagger", "span")
# The kind of a model without a head, whose outputs are vectors of texts.
EMBEDDING = "embedding"


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model that weights belong to; vocabulary and casing may be unknown."""

    config: BertConfig
    vocab: "Vocabulary | None" = None
    lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class Head:
    """What the head of a fine-tuned model predicts.

    Attributes:
        kind: one of `HEADS`, or `EMBEDDING`.
        labels: the names of the outputs, in their order; () if unknown.
        multi_label: whether a "classifier" assigns any number of its classes at once.
        mean, deviation: the mean and the standard deviation of the numbers that a "classifier"
            without labels learned. It predicts the output of its dense layer times the deviation,
            plus the mean. An `EMBEDDING` that learned numbers predicts the cosine times the
            deviation, plus the mean.
        pooling, ..., activation: how an `EMBEDDING` makes vectors; see `BertEmbedder`.
        json_labels: whether the labels of the training data were numbers or booleans, whose JSON
            the names are.
        listed_labels: whether they were in lists, one for each example.
    """

    kind: str
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    mean: float = 0.0
    deviation: float = 1.0
    pooling: str = "mean"
    normalize: bool = False
    outputs: int | None = None
    activation: str = "linear"
    # Not in the representation, which is a part of checksums.
    json_labels: bool = dataclasses.field(default=False, repr=False)
    listed_labels: bool = dataclasses.field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in (kinds := (*HEADS, EMBEDDING)):
            raise ValueError(f"kind is {self.kind!r}, not one of {', '.join(kinds)}")
        if self.deviation <= 0:
            raise ValueError(f"deviation is {self.deviation}, not positive")
        # Results could show only one of two outputs with the same label.
        if len({label for label in self.labels if label.strip()}) < len(self.labels):
            shown = ", ".join(map(repr, self.labels))
            raise ValueError(f"a label is empty or occurs twice: rename it ({shown:.300})")

    @property
    def reads_pooler(self) -> bool:
        """Whether the head reads the pooled output, not the sequence output."""
        return self.kind in ("classifier", "multiple_choice")

    def value_of(self, label: str) -> Any:
        """Returns a label as the training data had it."""
        return json.loads(label) if self.json_labels else label

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Creates a head from what `to_dict` returned; the names of other keys are ignored."""
        names = [field.name for field in dataclasses.fields(cls)]
        known = {"kind": None} | {name: values[name] for name in names if name in values}
        labels = known.get("labels", [])
        if not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
            raise ValueError(f"labels is {labels!r}, not a list of strings")
        return cls(**known | {"labels": tuple(labels)})

    def to_dict(self) -> dict[str, Any]:
        """Returns the kind, the labels and all other values that are not their defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name == "labels" or getattr(self, field.name) != field.default
        }


@dataclasses.dataclass(frozen=True)
class MobileBertConfig(BertConfig):
    """Sizes and rates of a MobileBERT.

    `intra_bottleneck_size` is the width inside its layers; see `layers.mobilebert`.
    `num_feedforward_networks` is the number of feed-forward networks in a layer;
    `key_query_shared_bottleneck` says that queries and keys share a dense layer.
    """

    key: ClassVar[str] = "intra_bottleneck_size"
    model_type: ClassVar[str] = "mobilebert"
    has_projection: ClassVar[bool] = False
    # The embeddings read the next token, even if that is padding.
    reads_padding: ClassVar[bool] = True
    _divided: ClassVar[str] = "intra_bottleneck_size"

    intra_bottleneck_size: int = dataclasses.field(kw_only=True)
    num_feedforward_networks: int | None = None
    key_query_shared_bottleneck: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("num_feedforward_networks", "embedding_size"):
            if not getattr(self, key):
                raise ValueError(f"intra_bottleneck_size needs {key}")
        for key in ("num_hidden_groups", "pruned_heads"):
            if value := getattr(self, key):
                raise ValueError(f"this is a MobileBERT, which cannot have {key} {value!r}")

    def _least_parameters(self) -> int:
        return super()._least_parameters() * (self.num_feedforward_networks or 1)

    @property
    def own_sizes(self) -> dict[str, int]:
        inner = self.intra_bottleneck_size
        return {
            "3 embedding": 3 * self.embedding_size,
            "hidden less embedding": self.own_masked_lm_width,
            "bottleneck": inner,
            "2 bottleneck": 2 * inner,
            "query key": inner if self.key_query_shared_bottleneck else self.hidden_size,
        }

    @property
    def own_masked_lm_width(self) -> int:
        return self.hidden_size - self.embedding_size


@dataclasses.dataclass(frozen=True)
class BiLSTMConfig(BertConfig):
    """Sizes of the BiLSTM in `models.lstms`, an encoder without transformer layers.

    `bilstm` is "single" or "siamese". The default sizes are those of Tang et al.

    Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) section 4.3.
    """

    key: ClassVar[str] = "bilstm"
    model_type: ClassVar[str] = "bilstm"
    has_layers: ClassVar[bool] = False
    longest_input: ClassVar[None] = None

    hidden_size: int = 400
    num_hidden_layers: int = 1
    num_attention_heads: int = 1
    intermediate_size: int = 150
    hidden_act: str = "relu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    embedding_size: int | None = 300
    bilstm: str = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bilstm not in (kinds := BILSTM_PRESETS.values()):
            raise ValueError(f"bilstm {self.bilstm!r} is not one of {', '.join(kinds)}")


class Size(NamedTuple):
    """Depth and width; heads are hidden_size / 64 if None, feed-forward layers 4 times as wide."""

    num_hidden_layers: int
    hidden_size: int
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    num_attention_heads: int | None = None


class _Sizes(dict):
    """Sizes by their names; a table when printed."""

    def __repr__(self) -> str:
        rows = [("name", "layers", "hidden_size", "heads", "parameters")]
        for name in self:
            config = preset_config(name)
            sizes = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
            rows.append((name, *map(str, sizes), f"{config.num_parameters:,}"))
        return "\n".join("{:<16}{:>6}{:>13}{:>7}{:>13}".format(*row) for row in rows)


# 24 miniatures (arXiv:1908.08962), BERT-large (arXiv:1810.04805), and ALBERT (arXiv:1909.11942
# table 1), whose base and large otherwise have the sizes of BERT's. The heads of its xlarge, which
# the table lacks, are those of the published albert_config.json.
PRESETS = _Sizes(
    {
        "tiny": Size(2, 128),
        "mini": Size(4, 256),
        "small": Size(4, 512),
        "medium": Size(8, 512),
        "base": Size(12, 768),
        "large": Size(24, 1024),
        "albert-base": Size(12, 768, 128, 1),
        "albert-large": Size(24, 1024, 128, 1),
        "albert-xlarge": Size(24, 2048, 128, 1, num_attention_heads=16),
        "albert-xxlarge": Size(12, 4096, 128, 1),
    }
    | {
        f"L-{layers}_H-{hidden}": Size(layers, hidden)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    }
)
"""Maps the values of --preset to sizes."""

BILSTM_PRESETS = {"bilstm": "single", "bilstm-pairs": "siamese"}
"""Maps the other values of --preset to the kinds of a BiLSTM."""

_BASE_WIDTH, _BASE_INITIALIZER_RANGE = 768, 0.02
_WIDTH_WITHOUT_DROPOUT = 256


class Start(NamedTuple):
    """Flags of run_pretraining to start with."""

    preset: str
    train_batch_size: int
    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int


# Preset, batch size, learning rate and the most steps. Sources: tiny: docs/results.md; small: the
# learning rate of ELECTRA-small (arXiv:2003.10555 table 6); base: BERT (arXiv:1810.04805 A.2).
_CPU = "tiny", 32, 1e-3, 20_000
_LITTLE_TEXT = "small", 256, 5e-4, 100_000
_MUCH_TEXT = "base", 256, 1e-4, 1_000_000
_MUCH_TOKENS = 100_000_000
# As many passes as BERT made over its text (arXiv:1810.04805 A.2).
_PASSES = 40
_FEWEST_STEPS = 1000


def suggest_start(num_examples: int, max_seq_length: int, device_type: str) -> Start:
    """Suggests how to pre-train on the examples of one pass over a text."""
    enough = num_examples * max_seq_length >= _MUCH_TOKENS
    chosen = _CPU if device_type == "CPU" else _MUCH_TEXT if enough else _LITTLE_TEXT
    preset, batch_size, learning_rate, most_steps = chosen
    steps = max(_FEWEST_STEPS, round(_PASSES * num_examples / batch_size, -3))
    steps = int(min(steps, most_steps))
    return Start(preset, batch_size, learning_rate, steps, min(steps // 20, 10_000))


def preset_config(name: str, vocab_size: int = 30522) -> BertConfig:
    """Returns the configuration of a published size, with training values for its width.

    Sizes are those of `PRESETS`, such as "tiny", "albert-base" or the miniature "L-6_H-256".
    "bilstm" and "bilstm-pairs" are not BERT but a BiLSTM to compare with; see `BiLSTMConfig`. The
    default vocabulary size is that of bert-base-uncased.

    Example:
        encoder = bert_tf.BertEncoder(bert_tf.preset_config("tiny", vocab_size=8000))

    Raises:
        ValueError: there is no such preset.
    """
    if name in BILSTM_PRESETS:
        return BiLSTMConfig(vocab_size, bilstm=BILSTM_PRESETS[name])
    if name not in PRESETS:
        names = ", ".join([*PRESETS, *BILSTM_PRESETS])
        raise ValueError(f"no preset {name!r}: choose one of {names}")
    return sized_config(PRESETS[name], vocab_size)


def describe_presets() -> str:
    """Returns the named presets for --help: layers, width, and parameters of preset_config."""
    configs = {name: preset_config(name) for name in PRESETS if not name.startswith("L-")}
    return ", ".join(
        f"{name} ({c.num_hidden_layers} x {c.hidden_size}, {c.num_parameters / 1e6:.3g}M)"
        for name, c in configs.items()
    )


def sized_config(size: Size, vocab_size: int) -> BertConfig:
    """Returns the configuration of any size, with training values for its width.

    One narrower than base starts from wider weights than the published 0.02. A dense layer
    multiplies the standard deviation of its normalized input by initializer_range * sqrt(width),
    and the logits of attention start with a standard deviation of initializer_range**2 * width:
    0.31 in base, but 0.05 at a width of 128, where attention starts almost uniform and stays so for
    thousands of steps. The product stays at that of base.

    Widths up to 256 train without dropout, which only slows down models that are too small to
    overfit: docs/results.md has the runs of tiny.
    """
    wider = max(1.0, _BASE_WIDTH / size.hidden_size)
    dropout = 0.0 if size.hidden_size <= _WIDTH_WITHOUT_DROPOUT else 0.1
    return BertConfig(
        vocab_size=vocab_size,
        intermediate_size=4 * size.hidden_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=round(_BASE_INITIALIZER_RANGE * math.sqrt(wider), 4),
        **size._asdict()
        | {"num_attention_heads": size.num_attention_heads or size.hidden_size // 64},
    )
