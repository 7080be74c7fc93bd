"""Lets Keras load models that hold the layers of this package, without importing TensorFlow.

Keras finds a class of another package only if its module was imported. Importing ours takes
seconds, so Keras is told where each class is, and the module is imported when a file needs it.
Keras itself may be imported later than this package, so the registration waits for its import.
"""

import importlib
from types import ModuleType

import wrapt

MODULES = {
    "BertEncoder": "bert_tf.models.encoder",
    "Pooler": "bert_tf.models.encoder",
    "BiLSTMEncoder": "bert_tf.models.bilstm",
    "MaskedLMHead": "bert_tf.models.heads",
    "DenseHead": "bert_tf.models.heads",
    "BertPretrainer": "bert_tf.models.pretrainer",
    "BertTaskModel": "bert_tf.models.task_model",
    "FeatureTagger": "bert_tf.models.feature_tagger",
    "BertPreprocessor": "bert_tf.text.preprocessor",
    "BertEmbeddings": "bert_tf.layers.embeddings",
    "EncoderBlock": "bert_tf.layers.encoder_block",
    "NoNorm": "bert_tf.layers.bottleneck",
    "TrigramEmbeddings": "bert_tf.layers.bottleneck",
    "BottleneckAttention": "bert_tf.layers.bottleneck",
    "BottleneckBlock": "bert_tf.layers.bottleneck",
    "FeedForward": "bert_tf.layers.bottleneck",
    "SelfAttention": "bert_tf.layers.attention",
    "LayerNormalization": "bert_tf.layers.normalization",
    "Dropout": "bert_tf.layers.dropout",
}


class _Deferred:
    """Stands in for a class until Keras creates an object of it."""

    def __init__(self, name: str):
        self._name = name

    def from_config(self, config: dict):
        module = importlib.import_module(MODULES[self._name])
        return getattr(module, self._name).from_config(config)


def register() -> None:
    """Registers every serializable class with Keras, as soon as Keras is imported."""
    wrapt.register_post_import_hook(_register, "keras")


def _register(keras: ModuleType) -> None:
    for name in MODULES:
        # The class itself replaces this when its module is imported.
        keras.saving.get_custom_objects().setdefault(f"bert_tf>{name}", _Deferred(name))
