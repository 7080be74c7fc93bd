"""What a model is: the architecture of its encoder, its vocabulary, and its head."""

import dataclasses

from bert_tf.config.bert import BertConfig
from bert_tf.config.bilstm import BiLSTMConfig
from bert_tf.config.mobilebert import MobileBertConfig
from tfrecords.vocabulary import Vocabulary

__all__ = ["HEADS", "BertConfig", "BiLSTMConfig", "Head", "MobileBertConfig", "ModelSpec"]

HEADS = ("classifier", "multiple_choice", "tagger", "span")


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model that weights belong to.

    Attributes:
        config: the encoder's configuration.
        vocab: its vocabulary; None if unknown.
        lower_case: whether its text is lower-cased; None if unknown.
    """

    config: BertConfig
    vocab: Vocabulary | None = None
    lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class Head:
    """What the head of a fine-tuned model predicts.

    Attributes:
        kind: one of `HEADS`.
        labels: the names of the outputs, in their order; () if unknown.
        multi_label: whether a "classifier" assigns any number of its classes at once.
        mean, deviation: the mean and the standard deviation of the numbers that a "classifier"
            without labels learned. It predicts the output of its dense layer times the deviation,
            plus the mean.

    Raises:
        ValueError: a label is empty, or two outputs have the same label, so results could show only
            one of them.
    """

    kind: str
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    mean: float = 0.0
    deviation: float = 1.0

    def __post_init__(self) -> None:
        for index, label in enumerate(self.labels):
            if not label.strip():
                raise ValueError(f"the label of output {index} is empty: name it")
        if len(set(self.labels)) < len(self.labels):
            label = max(self.labels, key=self.labels.count)
            indices = [str(i) for i, other in enumerate(self.labels) if other == label]
            raise ValueError(
                f"the outputs {' and '.join(indices)} have the same label, {label!r}: rename all "
                "but one"
            )

    @property
    def reads_pooler(self) -> bool:
        """Whether the head reads the pooled output, not the sequence output."""
        return self.kind in ("classifier", "multiple_choice")
