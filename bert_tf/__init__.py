"""BERT for TensorFlow: from raw text to pre-trained, fine-tuned and exported models."""

import importlib
import os

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
    "pack_segments": "bert_tf.text.preprocessor",
    "BertPreprocessor": "bert_tf.text.preprocessor",
    "BertEncoder": "bert_tf.models.encoder",
    "attention_probabilities": "bert_tf.models.attention_probabilities",
    "BertPretrainer": "bert_tf.models.pretrainer",
    "BertTaskModel": "bert_tf.models.task_model",
}
_PACKAGES = ("plots",)
__all__ = ["__version__", *_MODULES, *_PACKAGES]

# `python -m bert_tf.NAME` runs cli/NAME.py.
__path__.append(f"{__path__[0]}/cli")
registration.register()
process.keep_docstrings()


def __getattr__(name: str):
    # Imported on first use, so that `import bert_tf` and every command's --help stay instant.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(_MODULES.get(name, f"bert_tf.{name}"))
    except (ImportError, ValueError) as error:
        backend = os.environ.get("KERAS_BACKEND")
        if not backend or getattr(error, "name", backend) != backend:
            raise
        raise ImportError(
            f"KERAS_BACKEND is {backend}, which Keras cannot import ({error}): install it, or set "
            "KERAS_BACKEND=tensorflow"
        ) from None
    return module if name in _PACKAGES else getattr(module, name)
