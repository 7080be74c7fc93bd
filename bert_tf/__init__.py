"""BERT for TensorFlow: from raw text to pre-trained, fine-tuned and exported models.

Commands as functions:
  build_vocabulary        builds, extends or measures a WordPiece vocabulary (vocab.txt)
  create_examples         creates masked-LM and sentence-pair examples for pretrain
  pretrain                pre-trains an encoder on examples
  finetune                fine-tunes a pre-trained encoder on a task, also on data in memory
  export_encoder          exports a pre-trained encoder as a SavedModel
  export_classifier       exports a fine-tuned model as a SavedModel from text to predictions
  export_embedder         exports a SavedModel that maps text to vectors

Runs and checkpoints, also of other programs:
  open_run                opens a run: its metrics, predictions, figures and exports
  TrainedRun              what pretrain, finetune and open_run return
  load                    loads model, tokenizer and configuration
  load_preprocessor       loads the Keras layer that turns text into inputs
  load_predictor          loads a fine-tuned model to predict texts, pairs and data frames
  load_mask_filler        loads a pre-trained model to predict the words behind [MASK]
  load_embedder           loads the Keras layer that turns text into vectors
  load_adapters           loads what LoRA trained beside frozen weights
  notebook_page           shows what a model does with a text, in a notebook

Text:
  load_vocab, Vocabulary  the tokens that text is split into
  WordPieceTokenizer      splits text into tokens exactly as google-research/bert does
  BertPreprocessor        turns text into the inputs of an encoder
  pack_segments           packs tokens as [CLS] a [SEP] b [SEP]

Keras models:
  BertConfig              the architecture of an encoder
  PRESETS, preset_config  the published sizes
  BertEncoder             the encoder
  BertPretrainer          the encoder with the heads of pre-training
  BertTaskModel           the encoder with a head for a task
  attention_probabilities what each token attends to, in every layer and head

`plots` draws figures of what a model learns and computes. `REVIEWS` is the path of a table to try
things with: 200 sentences about films, in the columns text and label.
"""

import importlib
import os
from types import ModuleType

import wrapt

from bert_tf.base import __version__
from bert_tf.base.process import quiet_imports

_MODULES = {
    "load": "bert_tf.inference.loading",
    "load_preprocessor": "bert_tf.inference.loading",
    "load_adapters": "bert_tf.finetuning.lora",
    "load_embedder": "bert_tf.inference.text_embedder",
    "notebook_page": "bert_tf.inference.explorer",
    "load_predictor": "bert_tf.inference.predictor",
    "load_mask_filler": "bert_tf.inference.masks",
    "BertConfig": "bert_tf.config",
    "PRESETS": "bert_tf.config",
    "preset_config": "bert_tf.config",
    "Vocabulary": "tfrecords.vocabulary",
    "load_vocab": "tfrecords.vocabulary",
    "WordPieceTokenizer": "bert_tf.text.tokenizer",
    "pack_segments": "bert_tf.text.bert_preprocessor",
    "BertPreprocessor": "bert_tf.text.bert_preprocessor",
    "BertEncoder": "bert_tf.models.bert_encoder",
    "attention_probabilities": "bert_tf.models.bert_encoder",
    "BertPretrainer": "bert_tf.models.pretrainer",
    "BertTaskModel": "bert_tf.models.task_model",
    "open_run": "bert_tf.api.trained_run",
    "TrainedRun": "bert_tf.api.trained_run",
}
# The commands behind functions, imported when they are first used.
_FUNCTIONS = {
    "build_vocabulary": "bert_tf.build_vocab",
    "create_examples": "bert_tf.create_pretraining_data",
    "pretrain": "bert_tf.run_pretraining",
    "finetune": "bert_tf.run_finetuning",
    "export_encoder": "export.encoder",
    "export_classifier": "export.classifier",
    "export_embedder": "export.embedder",
}
# Keras finds a class of another package only if its module was imported, which takes seconds here.
# So an import of Keras registers where each class is.
_KERAS_CLASSES = {
    "bert_tf.inference.text_embedder": ("TextEmbedder",),
    "bert_tf.layers.bert": (
        *("BertEmbeddings", "DenseHead", "EncoderBlock", "MaskedLMHead", "SelfAttention"),
    ),
    "bert_tf.layers.dropout": ("Dropout",),
    "bert_tf.layers.layer": ("LayerNormalization",),
    "bert_tf.layers.mobilebert": (
        *("BottleneckAttention", "BottleneckBlock", "FeedForward"),
        *("NoNorm", "TrigramEmbeddings"),
    ),
    "bert_tf.models.bert_encoder": ("BertEncoder", "Pooler"),
    "bert_tf.models.lstms": ("BiLSTMEncoder", "FeatureTagger"),
    "bert_tf.models.pretrainer": ("BertPretrainer",),
    "bert_tf.models.task_model": ("BertEmbedder", "BertTaskModel"),
    "bert_tf.text.bert_preprocessor": ("BertPreprocessor",),
}
_PACKAGES = ("plots",)
REVIEWS = os.path.join(os.path.dirname(__file__), "samples", "reviews.csv")
__all__ = ["REVIEWS", "__version__", *_FUNCTIONS, *_MODULES, *_PACKAGES]


class _Deferred:
    """Stands in for a class until Keras creates an object of it."""

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name

    def from_config(self, config: dict):
        return getattr(importlib.import_module(self._module), self._name).from_config(config)


def _register(keras: ModuleType) -> None:
    objects = keras.saving.get_custom_objects()
    for module, names in _KERAS_CLASSES.items():
        for name in names:
            # The class itself replaces this when its module is imported.
            objects.setdefault(f"bert_tf>{name}", _Deferred(module, name))


# `python -m bert_tf.NAME` runs cli/NAME.py.
__path__.append(f"{__path__[0]}/cli")
wrapt.register_post_import_hook(_register, "keras")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str):
    # Imported on first use, so that `import bert_tf` and every command's --help stay instant.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name in _FUNCTIONS:
            module = importlib.import_module("bert_tf.api.functions")
            return module.function_of(name, _FUNCTIONS[name])
        with quiet_imports():
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
