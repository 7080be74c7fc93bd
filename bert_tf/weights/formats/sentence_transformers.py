"""What a sentence-transformers folder adds to Hugging Face's files: how to compute vectors.

modules.json                 the modules in their order, each with its folder
1_Pooling/config.json        how the vectors of tokens become one
sentence_bert_config.json    the length at which texts are truncated, or tokenizer_config.json
"""

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.choices import SINGLE_LENGTH
from bert_tf.config import EMBEDDING
from bert_tf.text.tokenizer_files import TOKENIZER
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.files import read_file, read_json
from tfrecords.writer import atomic_write

MODULES, _LENGTH, _OTHERS = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
_POOLING = "1_Pooling/config.json"
FILES = (MODULES, _LENGTH, _OTHERS, "*_Pooling/config.json")
# What 1_Pooling/config.json calls each kind of `choices.EMBEDDING_POOLINGS`.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}


class EmbeddingSettings(NamedTuple):
    """How a text becomes a vector.

    Attributes:
        pooling, normalize: arguments of `BertEmbedder`.
        max_seq_length: the most tokens read; None for as many as the encoder takes.
        do_lower_case: whether text is lower-cased, whatever the vocabulary.
        others: the content of config_sentence_transformers.json, such as prompts.
    """

    pooling: str = "mean"
    normalize: bool = False
    max_seq_length: int | None = None
    do_lower_case: bool = False
    others: Mapping[str, Any] = MappingProxyType({})


def settings_of(checkpoint: Checkpoint, pooling: str | None = None) -> EmbeddingSettings | None:
    """Returns how a checkpoint computes vectors: a run that states it, or as `read_settings`."""
    head, run = checkpoint.head, checkpoint.run
    if not head or head.kind != EMBEDDING:
        settings = read_settings(checkpoint.config_file, pooling)
        if settings and settings.do_lower_case and not checkpoint.spec.lower_case:
            raise ValueError(
                f"sentence-transformers lower-cases text for {checkpoint.path} before a cased "
                "tokenizer reads it, which is not supported"
            )
        return settings
    length = run.flags.get("max_seq_length") if run else None
    return EmbeddingSettings(pooling or head.pooling, head.normalize, length)


def read_settings(config_file: str | None, pooling: str | None = None) -> EmbeddingSettings | None:
    """Reads the settings beside the configuration of a checkpoint, if there are any.

    Args:
        pooling: replaces that of the folder, and what follows it.

    Raises:
        ValueError: a file is damaged, or the folder has a module that is not supported.
    """
    if not config_file:
        return None
    folder = os.path.dirname(config_file)
    path = os.path.join(folder, MODULES)
    if not tf.io.gfile.exists(path):
        return None
    normalize, replaced = False, pooling is not None
    for kind, name in _read_modules(path):
        if kind == "Normalize":
            normalize = True
        elif kind == "Pooling" and not replaced:
            pooling = _read_pooling(os.path.join(folder, name, "config.json"))
        elif kind not in ("Transformer", "Pooling") and not replaced:
            raise ValueError(f"{path}: {kind} is not supported, only Pooling and Normalize")
    if pooling is None:
        raise ValueError(f"{path} has no Pooling, which computes the vector of a text")
    others = read_json(os.path.join(folder, _OTHERS))
    if others.get("default_prompt_name"):
        raise ValueError(f"{os.path.join(folder, _OTHERS)}: a default prompt is not supported")
    values = read_json(os.path.join(folder, _LENGTH))
    # Newer versions leave the length to the tokenizer.
    length = values.get("max_seq_length") or read_json(os.path.join(folder, TOKENIZER)).get(
        "model_max_length"
    )
    if not (length is None or (isinstance(length, int) and length >= SINGLE_LENGTH["at_least"])):
        raise ValueError(f"{folder}: {length!r} is not a length of texts, in {_LENGTH}")
    return EmbeddingSettings(
        pooling, normalize, length, bool(values.get("do_lower_case")), MappingProxyType(others)
    )


def _read_modules(path: str) -> list[tuple[str, str]]:
    """Returns the class of each module, and its folder."""
    try:
        modules = json.loads(read_file(path))
        return [(module["type"].rpartition(".")[2], module["path"]) for module in modules]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): download or copy it again") from None


def _read_pooling(path: str) -> str:
    values = read_json(path)
    if not values:
        raise ValueError(f"{path} is missing or empty: download or copy it again")
    modes = [name for name, value in values.items() if name.startswith("pooling_mode_") and value]
    kinds = [values["pooling_mode"]] if "pooling_mode" in values else [*map(_FLAGS.get, modes)]
    if len(kinds) != 1 or kinds[0] not in _FLAGS.values():
        raise ValueError(f"{path}: {modes or kinds} is not supported, only cls, mean or max")
    return kinds[0]


def write_settings(settings: EmbeddingSettings, width: int, folder: str) -> None:
    """Writes the files that sentence-transformers needs in addition to Hugging Face's."""
    kinds = ["Transformer", "Pooling"] + (["Normalize"] if settings.normalize else [])
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    pooling = {name: kind == settings.pooling for name, kind in _FLAGS.items()}
    names = ("max_seq_length", "do_lower_case")
    files = {
        MODULES: modules,
        _POOLING: {"word_embedding_dimension": width, **pooling},
        _LENGTH: {name: getattr(settings, name) for name in names},
    }
    if settings.others:
        files[_OTHERS] = dict(settings.others)
    for name, values in files.items():
        path = os.path.join(folder, name)
        tf.io.gfile.makedirs(os.path.dirname(path))
        atomic_write(path, json.dumps(values, indent=2) + "\n")
