"""What a model is: the architecture of its encoder, its vocabulary, and its head."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bert_tf.config.bert import BertConfig, check_fields
from tfrecords.vocabulary import Vocabulary

HEADS = ("classifier", "multiple_choice", "tagger", "span")
# The kind of a model without a head, whose outputs are vectors of texts.
EMBEDDING = "embedding"
_BILSTMS = ("single", "siamese")


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model that weights belong to; vocabulary and casing may be unknown."""

    config: BertConfig
    vocab: Vocabulary | None = None
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
            plus the mean. For an `EMBEDDING` that learned numbers, the mean is the number of the
            cosine 0, and the deviation is how much larger that of the cosine 1 is.
        pooling, ..., activation: how an `EMBEDDING` makes vectors; see `BertEmbedder`.
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

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in (kinds := (*HEADS, EMBEDDING)):
            raise ValueError(f"kind is {self.kind!r}, not one of {', '.join(kinds)}")
        if self.deviation <= 0:
            raise ValueError(f"deviation is {self.deviation}, not positive")
        # Results could show only one of two outputs with the same label.
        if len({label for label in self.labels if label.strip()}) < len(self.labels):
            shown = ", ".join(map(repr, self.labels))
            raise ValueError(f"a label is empty or that of two outputs: rename it ({shown:.300})")

    @property
    def reads_pooler(self) -> bool:
        """Whether the head reads the pooled output, not the sequence output."""
        return self.kind in ("classifier", "multiple_choice")

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

    `bilstm` is "single" or "siamese".
    """

    key: ClassVar[str] = "bilstm"
    model_type: ClassVar[str] = "bilstm"
    has_layers: ClassVar[bool] = False
    longest_input: ClassVar[None] = None

    bilstm: str = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bilstm not in _BILSTMS:
            raise ValueError(f"bilstm {self.bilstm!r} is not one of {', '.join(_BILSTMS)}")
