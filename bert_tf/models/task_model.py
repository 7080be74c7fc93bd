"""The encoder with a head for a fine-tuning task, or with one vector per text; ensembles."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.base.calling import checked
from bert_tf.base.choices import EMBEDDING_POOLINGS
from bert_tf.config import HEADS, BertConfig
from bert_tf.layers import fused
from bert_tf.layers.bert import DenseHead
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import BertModel, rows_of
from bert_tf.models.lstms import BiLSTMEncoder


def make_encoder(config: BertConfig, **arguments: Any) -> BertEncoder | BiLSTMEncoder:
    """Returns the encoder that a configuration describes; `arguments` are Keras' own."""
    return (BertEncoder if config.has_layers else BiLSTMEncoder)(config, **arguments)


class BertTaskModel(BertModel):
    """A `BertEncoder`, or a `BiLSTMEncoder`, with dropout and a dense layer for a task.

    | kind              | reads               | inputs    | output                          |
    |-------------------|---------------------|-----------|---------------------------------|
    | "classifier"      | `pooled_output`     | [B, S]    | logits [B, C]; [B] if C is 1    |
    | "multiple_choice" | `pooled_output`     | [B, K, S] | logits of the K choices, [B, K] |
    | "tagger"          | `sequence_output`   | [B, S]    | logits [B, S, C]                |
    | "span"            | `sequence_output`   | [B, S]    | start and end logits [B, S, 2]  |

    As in the original, the "span" head has no dropout. With `encoder.trainable = False`, only the
    head trains: the encoder has no dropout, and no gradient is computed for it.

    Args:
        config: sizes and rates; see `BertConfig`.
        num_outputs: width C of the dense layer: the number of classes or tags, 1 for regression and
            "multiple_choice", 2 for "span".
        kind: one of `config.HEADS`.
        mean, deviation: a "classifier" with one output multiplies it by the deviation and adds the
            mean; see `config.Head`.
        encoder: the encoder of another model, to share; by default a new one.

    Call: the encoder's inputs -> float32 output of the table.

    Example:
        model = bert_tf.BertTaskModel(bert_tf.preset_config("tiny"), num_outputs=3)
        logits = model(bert_tf.load_preprocessor("run")(["a text"]))  # [1, 3]

    Source: google-research/bert run_classifier.py and run_squad.py `create_model`; BERT
    (arXiv:1810.04805) figure 4 and section 4.4.
    """

    arguments = ("num_outputs", "kind", "mean", "deviation")
    default_name = "task_model"

    @checked
    def __init__(
        self,
        config: BertConfig | str,
        num_outputs: int,
        kind: str = "classifier",
        mean: float = 0.0,
        deviation: float = 1.0,
        encoder: BertEncoder | BiLSTMEncoder | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        config = self.config
        if kind not in HEADS:
            raise ValueError(f"kind {kind!r} is not one of {', '.join(HEADS)}")
        self.num_outputs, self.kind = num_outputs, kind
        self.mean, self.deviation = mean, deviation
        self._reads_tokens = kind in ("tagger", "span")
        if self._reads_tokens and getattr(config, "bilstm", None) == "siamese":
            raise ValueError("a siamese BiLSTM has no outputs for tokens: use --preset=bilstm")
        self.input_rank = 3 if kind == "multiple_choice" else 2
        self.encoder = encoder or make_encoder(config, dtype=self.dtype_policy)
        rate = 0.0 if kind == "span" else config.head_dropout_prob
        self.head = DenseHead(config, num_outputs, rate, name="head", dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None) -> None:
        self.head.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        outputs, seeds = self.encode(inputs, training)
        return self.logits(outputs, inputs, seeds, training)

    def encode(self, inputs, training=None):
        """Returns what the encoder computes for the head, and the seeds for `logits`."""
        rows = self.rows(inputs)
        seeds = self.encoder.dropout_seeds(rows, training)
        if self.config.has_layers and not self._reads_tokens:
            # The last layer then computes only what the pooler reads.
            rows = rows | {"output_places": ops.zeros((0,), "int32")}
        trains_encoder = training and self.encoder.trainable
        return self.encoder(rows, seeds=seeds, training=trains_encoder), seeds

    def rows(self, inputs):
        """Returns the encoder's inputs [B, S]: those of the model, with a row for every choice."""
        return rows_of(inputs) if self.kind == "multiple_choice" else inputs

    def logits(self, outputs, inputs, seeds=None, training=None):
        """Applies the head to what the encoder computed for the `rows` of `inputs`."""
        x = outputs["sequence_output" if self._reads_tokens else "pooled_output"]
        if not self.encoder.trainable:
            x = ops.stop_gradient(x)
        logits = ops.cast(self.head(x, seeds=seeds, training=training), "float32")
        if self.kind == "multiple_choice":
            return ops.reshape(logits, ops.shape(inputs["input_word_ids"])[:2])
        if self.num_outputs == 1 and not self._reads_tokens:
            return logits[:, 0] * self.deviation + self.mean
        return logits


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

    @checked
    def __init__(
        self,
        config: BertConfig | str,
        pooling: str = "mean",
        normalize: bool = False,
        outputs: int | None = None,
        activation: str = "linear",
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        config = self.config
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


class Ensemble(keras.Model):
    """Models of one task, which read the same inputs.

    `combine` maps a list of the members' outputs, and the inputs, to one such output.

    Source: BERT (arXiv:1810.04805) table 2, whose best results come from ensembles.
    """

    def __init__(self, members: Sequence[keras.Model], combine: Callable):
        super().__init__(name="ensemble")
        self.members, self._combine = list(members), combine
        self.built = True

    def call(self, inputs, training=None):
        return self._combine([model(inputs, training=training) for model in self.members], inputs)
