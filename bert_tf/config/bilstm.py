"""The configuration of an encoder that is a bidirectional LSTM."""

import dataclasses
from typing import ClassVar

from bert_tf.config.bert import BertConfig

_KINDS = ("single", "siamese")


@dataclasses.dataclass(frozen=True)
class BiLSTMConfig(BertConfig):
    """Sizes of the BiLSTM in `models.bilstm`, an encoder without transformer layers.

    `bilstm` is "single" or "siamese".
    """

    key: ClassVar[str] = "bilstm"
    model_type: ClassVar[str] = "bilstm"
    has_layers: ClassVar[bool] = False
    longest_input: ClassVar[None] = None

    bilstm: str = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bilstm not in _KINDS:
            raise ValueError(f"bilstm {self.bilstm!r} is not one of {', '.join(_KINDS)}")
