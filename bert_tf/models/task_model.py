"""The encoder with a head for tasks on whole sequences."""

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.heads import DenseHead


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTaskModel(keras.Model):
    """A `BertEncoder` with a classification or a regression head on `pooled_output`.

    Args:
        config: sizes and rates; see `BertConfig`.
        num_classes: number of classes C, or 1 for regression.

    Call: the encoder's inputs -> logits [B, C], or values [B] for regression.

    Source: google-research/bert run_classifier.py `create_model`.
    """

    def __init__(self, config: BertConfig, num_classes: int, name: str = "task_model", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.num_classes = num_classes
        self.encoder = BertEncoder(config, dtype=self.dtype_policy)
        self.head = DenseHead(
            num_classes,
            dropout=config.hidden_dropout_prob,
            initializer_range=config.initializer_range,
            name="head",
            dtype=self.dtype_policy,
        )
        self.build()

    def build(self, input_shape=None) -> None:
        self.head.build((None, self.config.hidden_size))
        self.built = True

    def call(self, inputs, training=None):
        seeds = self.encoder.dropout_seeds(inputs, training)
        pooled = self.encoder(inputs, seeds=seeds, training=training)["pooled_output"]
        logits = ops.cast(self.head(pooled, seeds=seeds, training=training), "float32")
        return logits[:, 0] if self.num_classes == 1 else logits

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {
            "config": self.config.to_dict(),
            "num_classes": self.num_classes,
            "name": self.name,
            "dtype": policy,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"config": BertConfig.from_dict(config["config"])})
