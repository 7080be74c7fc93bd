"""What a sentence-transformers folder adds to Hugging Face's files: how to compute vectors.

modules.json                 the modules in their order, each with its folder
1_Pooling/config.json        how the vectors of tokens become one
2_Dense/                     a dense layer: config.json and model.safetensors
sentence_bert_config.json    the length at which texts are truncated, or tokenizer_config.json

In older folders, Hugging Face's files and sentence_bert_config.json are in a folder such as
0_Transformer.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.choices import SINGLE_LENGTH
from bert_tf.config import EMBEDDING, Head
from bert_tf.text.tokenizer_files import TOKENIZER
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.tensor_files import FILE, open_tensors
from bert_tf.weights.names import HEAD_BIAS, HEAD_KERNEL
from tfrecords.files import errors_at, read_file, read_json
from tfrecords.writer import atomic_write

MODULES, _CONFIG = "modules.json", "config.json"
_LENGTH, _OTHERS = "sentence_bert_config.json", "config_sentence_transformers.json"
FILES = (MODULES, _LENGTH, _OTHERS, f"*_Pooling/{_CONFIG}", f"*_Dense/{_CONFIG}", f"*_Dense/{FILE}")
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
# What 1_Pooling/config.json calls each kind of `choices.EMBEDDING_POOLINGS`.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
# What 2_Dense/config.json calls activations, and a dense layer that computes what ours does.
_ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
}
_PLAIN_DENSE = {"module_input_name": "sentence_embedding", "use_residual": False}


class EmbeddingSettings(NamedTuple):
    """How a text becomes a vector.

    Attributes:
        head: an `EMBEDDING`.
        max_seq_length: the most tokens read; None for as many as the encoder takes.
        do_lower_case: whether text is lower-cased, whatever the vocabulary.
        others: the content of config_sentence_transformers.json, such as prompts.
        dense: the weights of the head, by their paths; {} if it has none.
    """

    head: Head = Head(EMBEDDING)
    max_seq_length: int | None = None
    do_lower_case: bool = False
    others: Mapping[str, Any] = MappingProxyType({})
    dense: Mapping[str, Tensor] = MappingProxyType({})


def settings_of(checkpoint: Checkpoint, pooling: str | None = None) -> EmbeddingSettings | None:
    """Returns how a checkpoint computes vectors: a run that states it, or as `read_settings`."""
    head, run, tensors = checkpoint.head, checkpoint.run, checkpoint.tensors
    if not head or head.kind != EMBEDDING:
        settings = read_settings(checkpoint.config_file, pooling)
        if settings and settings.do_lower_case and not checkpoint.spec.lower_case:
            raise ValueError(
                f"sentence-transformers lower-cases text for {checkpoint.path} before a cased "
                "tokenizer reads it, which is not supported"
            )
        return settings
    length = run.flags.get("max_seq_length") if run else None
    head = dataclasses.replace(head, pooling=pooling or head.pooling)
    dense = {path: tensors[path] for path in (HEAD_KERNEL, HEAD_BIAS) if path in tensors}
    return EmbeddingSettings(head, length, dense=dense)


def with_dense(checkpoint: Checkpoint, settings: EmbeddingSettings) -> Checkpoint:
    """Returns a checkpoint with the weights of the head."""
    return dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **settings.dense})


def transformer_folder(folder: str) -> str:
    """Returns the folder of Hugging Face's files; `folder` itself unless its layout is older."""
    path = os.path.join(folder, MODULES)
    if tf.io.gfile.exists(os.path.join(folder, _CONFIG)) or not tf.io.gfile.exists(path):
        return folder
    name = dict(_read_modules(path)).get("Transformer")
    return os.path.join(folder, name) if name else folder


def read_settings(config_file: str | None, pooling: str | None = None) -> EmbeddingSettings | None:
    """Reads the settings beside the configuration of a checkpoint, if there are any.

    Args:
        pooling: replaces that of the folder; modules that are not supported are then ignored.

    Raises:
        ValueError: a file is damaged, or the folder has a module that is not supported.
    """
    if not config_file:
        return None
    inner = os.path.dirname(config_file)
    beside = tf.io.gfile.exists(os.path.join(inner, MODULES))
    folder = inner if beside else os.path.dirname(inner)
    others_path = os.path.join(folder, _OTHERS)
    if not tf.io.gfile.exists(os.path.join(folder, MODULES)) or transformer_folder(folder) != inner:
        return None
    others = read_json(others_path)
    prompt = others.get("default_prompt_name")
    if prompt and (others.get("prompts") or {}).get(prompt) != "":
        raise ValueError(f"{others_path}: a default prompt is not supported")
    with errors_at(others_path):
        head = Head(EMBEDDING, truncate_dim=others.get("truncate_dim"))
    head, dense = _read_head(folder, head, pooling)
    values = read_json(os.path.join(inner, _LENGTH))
    # Newer versions leave the length to the tokenizer.
    length = values.get("max_seq_length") or read_json(os.path.join(inner, TOKENIZER)).get(
        "model_max_length"
    )
    if not (length is None or (isinstance(length, int) and length >= SINGLE_LENGTH["at_least"])):
        raise ValueError(f"{inner}: {length!r} is not a length of texts, in {_LENGTH}")
    lower_case = bool(values.get("do_lower_case"))
    return EmbeddingSettings(head, length, lower_case, MappingProxyType(others), dense)


def _read_head(folder: str, head: Head, pooling: str | None) -> tuple[Head, Mapping[str, Tensor]]:
    """Returns a head with what the modules of a folder do, and its weights; see `read_settings`."""
    path = os.path.join(folder, MODULES)
    modules = _read_modules(path)
    kinds, paths = [kind for kind, _ in modules], dict(modules)
    supported = kinds == [kind for kind in _KINDS if kind in kinds]
    if not (supported or pooling):
        raise ValueError(
            f"{path}: {', '.join(kinds)} is not supported, only {', '.join(_KINDS)} in this order"
        )
    if not (pooling or "Pooling" in kinds):
        raise ValueError(f"{path} has no Pooling, which computes the vector of a text")
    pooling = pooling or _read_pooling(os.path.join(folder, paths["Pooling"], _CONFIG))
    head = dataclasses.replace(head, pooling=pooling, normalize="Normalize" in kinds)
    if not (supported and "Dense" in kinds):
        return head, {}
    activation, dense = _read_dense(os.path.join(folder, paths["Dense"]))
    outputs = dense[HEAD_KERNEL].shape[1]
    return dataclasses.replace(head, outputs=outputs, activation=activation), dense


def _read_modules(path: str) -> list[tuple[str, str]]:
    """Returns the class of each module, and its folder."""
    try:
        modules = json.loads(read_file(path))
        found = [(module["type"].rpartition(".")[2], module["path"]) for module in modules]
        if outside := [name for _, name in found if ".." in name or os.path.isabs(name)]:
            raise ValueError(outside[0])
        # The oldest versions had a class for BERT.
        return [("Transformer" if kind == "BERT" else kind, name) for kind, name in found]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): download or copy it again") from None


def _read_pooling(path: str) -> str:
    values = read_json(path)
    if not values:
        raise ValueError(f"{path} is missing or empty: download or copy it again")
    flags = [name for name, value in values.items() if name.startswith("pooling_mode_") and value]
    kinds = values.get("pooling_mode", [_FLAGS.get(name, name) for name in flags] or ["mean"])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if len(kinds) != 1 or kinds[0] not in _FLAGS.values():
        raise ValueError(f"{path}: {kinds} is not supported, only cls, mean or max")
    return kinds[0]


def _read_dense(folder: str) -> tuple[str, dict[str, Tensor]]:
    """Returns the activation and the weights of a dense layer."""
    path = os.path.join(folder, _CONFIG)
    values = read_json(path)
    name = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if name not in _ACTIVATIONS or {**values, **_PLAIN_DENSE} != {**_PLAIN_DENSE, **values}:
        raise ValueError(
            f"{path}: only one of {', '.join(_ACTIVATIONS)} after the vector of the text is "
            "supported, without a residual connection"
        )
    if not tf.io.gfile.exists(os.path.join(folder, FILE)):
        raise ValueError(
            f"{folder} has no {FILE}, the only form of weights that is read: if you trust the "
            "model, load and save it with sentence-transformers"
        )
    theirs, _ = open_tensors(folder)
    kernel, bias = theirs.get("linear.weight"), theirs.get("linear.bias")
    if not kernel or len(kernel.shape) != 2:
        raise ValueError(f"{folder} has no matrix linear.weight: download or copy it again")
    size, width = kernel.shape
    return _ACTIVATIONS[name], {
        HEAD_KERNEL: Tensor((width, size), lambda: kernel.read().T.astype(np.float32)),
        HEAD_BIAS: Tensor(
            bias.shape if bias else (size,),
            lambda: bias.read().astype(np.float32) if bias else np.zeros(size, np.float32),
        ),
    }


def write_settings(settings: EmbeddingSettings, width: int, folder: str) -> None:
    """Writes the files that sentence-transformers needs in addition to Hugging Face's."""
    head = settings.head
    left_out = {"Dense": not head.outputs, "Normalize": not head.normalize}
    kinds = [kind for kind in _KINDS if not left_out.get(kind)]
    paths = {kind: f"{index}_{kind}" if index else "" for index, kind in enumerate(kinds)}
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": paths[kind],
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    pooling = {name: kind == head.pooling for name, kind in _FLAGS.items()}
    names = ("max_seq_length", "do_lower_case")
    files = {
        MODULES: modules,
        f"{paths['Pooling']}/{_CONFIG}": {"word_embedding_dimension": width, **pooling},
        _LENGTH: {name: getattr(settings, name) for name in names},
    }
    others = dict(settings.others)
    if head.truncate_dim:
        others["truncate_dim"] = head.truncate_dim
    if others:
        files[_OTHERS] = others
    for name, values in files.items():
        path = os.path.join(folder, name)
        tf.io.gfile.makedirs(os.path.dirname(path))
        atomic_write(path, json.dumps(values, indent=2) + "\n")
    if head.outputs:
        _write_dense(settings, os.path.join(folder, paths["Dense"]))


def _write_dense(settings: EmbeddingSettings, folder: str) -> None:
    from safetensors.numpy import save

    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    kernel, bias = (settings.dense[path].read() for path in (HEAD_KERNEL, HEAD_BIAS))
    values = {
        "in_features": kernel.shape[0],
        "out_features": kernel.shape[1],
        "bias": True,
        "activation_function": names[settings.head.activation],
    }
    tensors = {"linear.weight": np.ascontiguousarray(kernel.T), "linear.bias": bias}
    tf.io.gfile.makedirs(folder)
    atomic_write(os.path.join(folder, _CONFIG), json.dumps(values, indent=2) + "\n")
    atomic_write(os.path.join(folder, FILE), save(tensors, metadata={"format": "pt"}))
