"""BERT for TensorFlow: from raw text to pre-trained, fine-tuned and exported models."""

import importlib

from bert_tf import registration
from tfrecords import __version__, process

_MODULES = {
    "load": "bert_tf.loading",
    "load_preprocessor": "bert_tf.loading",
    "BertConfig": "bert_tf.config",
    "PRESETS": "bert_tf.presets",
    "preset_config": "bert_tf.presets",
    "Vocabulary": "tfrecords.vocabulary",
    "load_vocab": "tfrecords.vocabulary",
    "WordPieceTokenizer": "bert_tf.text.tokenizer",
    "pack_segments": "bert_tf.text.packing",
    "BertPreprocessor": "bert_tf.text.preprocessor",
    "BertEncoder": "bert_tf.models.encoder",
    "attention_probabilities": "bert_tf.models.attention_probabilities",
    "BertPretrainer": "bert_tf.models.pretrainer",
    "BertTaskModel": "bert_tf.models.task_model",
}
_PACKAGES = ("plots",)
__all__ = ["__version__", *_MODULES, *_PACKAGES]

registration.register()
process.keep_docstrings()


def __getattr__(name: str):
    # Imported on first use, so that `import bert_tf` and every command's --help stay instant.
    if name in _PACKAGES:
        return importlib.import_module(f"bert_tf.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
