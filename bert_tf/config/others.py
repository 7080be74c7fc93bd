"""The configurations of other encoders: MobileBERT, and a bidirectional LSTM."""

import dataclasses
from typing import ClassVar

from bert_tf.config.bert import BertConfig

_BILSTMS = ("single", "siamese")


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
        if self.bilstm not in _BILSTMS:
            raise ValueError(f"bilstm {self.bilstm!r} is not one of {', '.join(_BILSTMS)}")
