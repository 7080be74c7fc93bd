"""What a model is: the architecture of its encoder, its vocabulary, and its head."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from bert_tf.config.bert import BertConfig, check_fields
from bert_tf.config.others import BiLSTMConfig, MobileBertConfig
from tfrecords.vocabulary import Vocabulary

__all__ = [
    "EMBEDDING",
    "HEADS",
    "BertConfig",
    "BiLSTMConfig",
    "Head",
    "MobileBertConfig",
    "ModelSpec",
]

HEADS = ("classifier", "multiple_choice", "tagger", "span")
# The kind of a model without a head, whose outputs are vectors of texts.
EMBEDDING = "embedding"


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
