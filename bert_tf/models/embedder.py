"""The encoder with one vector per text."""

import keras
from keras import ops

from bert_tf.choices import EMBEDDING_POOLINGS
from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.heads import DenseHead
from bert_tf.models.inputs import BertModel


class BertEmbedder(BertModel):
    """A `BertEncoder` that turns each text into one vector, for search and clustering.

    Args:
        config: sizes and rates; see `BertConfig`.
        pooling: how to compute the vector: "mean" or "max" of the last layer's outputs for all
            tokens, [CLS] and [SEP] included, or "cls", its output for [CLS].
        normalize: whether to divide each vector by its length.
        outputs: width of a dense layer between pooling and normalization; None for no such layer.
        activation: of the dense layer, a `hidden_act` of `BertConfig`.

    Call: the encoder's inputs [B, S] -> float32 [B, V]; V is the attribute `width`.

    Source: Sentence-BERT (arXiv:1908.10084) section 3; the modules of sentence-transformers.
    """

    arguments = ("pooling", "normalize", "outputs", "activation")
    default_name = "embedder"

    def __init__(
        self,
        config: BertConfig,
        pooling: str = "mean",
        normalize: bool = False,
        outputs: int | None = None,
        activation: str = "linear",
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        if pooling not in EMBEDDING_POOLINGS:
            raise ValueError(f"pooling {pooling!r} is not one of {', '.join(EMBEDDING_POOLINGS)}")
        self.pooling, self.normalize, self.outputs = pooling, normalize, outputs
        self.activation, self.width = activation, outputs or config.hidden_size
        self.encoder = BertEncoder(config, dtype=self.dtype_policy)
        # Nothing reads the pooler.
        self.encoder.pooler.trainable = False
        if outputs:
            self.head = DenseHead(config, outputs, name="head", dtype=self.dtype_policy)
            # Its weights have the paths of those of other heads.
            with keras.name_scope("task_model"):
                self.head.build((None, config.hidden_size))
        self.built = True

    def call(self, inputs, training=None):
        sequence = self.encoder(inputs, training=training)["sequence_output"]
        vectors = self._pooled(ops.cast(sequence, "float32"), inputs["input_mask"])
        if self.outputs:
            vectors = ops.cast(self.head(vectors, training=training), "float32")
            vectors = fused.activation(self.activation)(vectors)
        return ops.normalize(vectors, epsilon=1e-12) if self.normalize else vectors

    def _pooled(self, sequence, mask):
        if self.pooling == "cls":
            return sequence[:, 0]
        mask = ops.cast(mask, "float32")[:, :, None]
        if self.pooling == "max":
            return ops.max(ops.where(mask > 0, sequence, -1e9), axis=1)
        return ops.sum(sequence * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1e-9)
