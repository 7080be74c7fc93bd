"""What a sentence-transformers folder adds to Hugging Face's files: how to compute vectors.

modules.json                 the modules in their order, each with its folder
1_Pooling/config.json        how the vectors of tokens become one
2_Dense/                     a dense layer: config.json and model.safetensors
sentence_bert_config.json    the length at which texts are truncated, or tokenizer_config.json

In older folders, this last file and Hugging Face's are in a folder such as 0_Transformer.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.choices import SINGLE_LENGTH
from bert_tf.base.files import read_json
from bert_tf.base.output_files import atomic_write, write_json
from bert_tf.config import EMBEDDING, Head
from bert_tf.text.tokenizer_files import TOKENIZER, TokenizerFiles
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.tensor_files import FILE, open_tensors
from bert_tf.weights.names import HEAD_BIAS, HEAD_KERNEL

MODULES, _CONFIG = "modules.json", "config.json"
_LENGTH, _OTHERS = "sentence_bert_config.json", "config_sentence_transformers.json"
_POOLING, _DENSE = f"1_Pooling/{_CONFIG}", "2_Dense"
FILES = (MODULES, _LENGTH, _OTHERS, f"*_Pooling/{_CONFIG}", f"*_Dense/{_CONFIG}", f"*_Dense/{FILE}")
# What 1_Pooling/config.json calls each kind of `choices.EMBEDDING_POOLINGS`.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
_TANH = "torch.nn.modules.activation.Tanh"
_ACTIVATIONS = {_TANH: "tanh", "torch.nn.modules.linear.Identity": "linear"}
# The supported modules in their order; the first two are names of one module.
_KINDS = ("Transformer", "BERT", "Pooling", "Dense", "Normalize")
_MODULE = {"path": str, "type": str}
_DENSE_VALUES = {"in_features": int, "out_features": int}
_DENSE_VALUES |= {"activation_function?": str, "bias?": bool, "use_residual?": bool}
_POOLING_VALUES = {f"{name}?": bool for name in _FLAGS} | {"pooling_mode?": str | list[str]}
# That of sentence_bert_config.json and of config_sentence_transformers.json.
_SETTINGS = {
    "default_prompt_name?": str | None,
    "do_lower_case?": bool | None,
    "max_seq_length?": float | None,
    "prompts?": dict[str, str] | None,
    "truncate_dim?": int | None,
}


class EmbeddingSettings(NamedTuple):
    """How a text becomes a vector."""

    head: Head = Head(EMBEDDING)
    max_seq_length: int | None = None  # None for as many tokens as the encoder takes
    do_lower_case: bool = False  # whatever the vocabulary
    others: Mapping[str, Any] = MappingProxyType({})  # from config_sentence_transformers.json
    dense: Mapping[str, Tensor] = MappingProxyType({})  # the head's weights, by their paths


def settings_of(checkpoint: Checkpoint, pooling: str | None = None) -> EmbeddingSettings | None:
    """Returns how a checkpoint computes vectors: a run that states it, or as `read_settings`."""
    spec, head, tensors = checkpoint.spec, checkpoint.head, checkpoint.tensors
    if head and head.kind == EMBEDDING:
        length = checkpoint.run.flags.get("max_seq_length") if checkpoint.run else None
        head = dataclasses.replace(head, pooling=pooling or head.pooling)
        dense = {path: tensors[path] for path in (HEAD_KERNEL, HEAD_BIAS) if path in tensors}
        settings = EmbeddingSettings(head, length, dense=dense)
    else:
        settings = read_settings(checkpoint.config_file, pooling)
    if settings and settings.do_lower_case and not spec.lower_case:
        raise ValueError(
            f"sentence-transformers lower-cases text for {checkpoint.path} before a cased "
            "tokenizer reads it, which is not supported"
        )
    most = spec.config.max_position_embeddings
    return settings and settings._replace(max_seq_length=min(settings.max_seq_length or most, most))


def transformer_folder(folder: str) -> str:
    """Returns the folder of Hugging Face's files; `folder` itself unless its layout is older."""
    path = os.path.join(folder, MODULES)
    if tf.io.gfile.exists(os.path.join(folder, _CONFIG)) or not tf.io.gfile.exists(path):
        return folder
    return next((place for _, place in _read_modules(path)), folder)


def read_settings(config_file: str | None, pooling: str | None = None) -> EmbeddingSettings | None:
    """Reads the settings beside the configuration of a checkpoint, if there are any.

    `pooling` replaces that of the folder; modules that are not supported are then ignored. Raises a
    ValueError for them otherwise, and if a file is damaged.
    """
    inner = folder = os.path.dirname(config_file or "")
    if not tf.io.gfile.exists(os.path.join(folder, MODULES)):
        folder = os.path.dirname(inner)
    path, others_path = (os.path.join(folder, name) for name in (MODULES, _OTHERS))
    if not (config_file and tf.io.gfile.exists(path) and transformer_folder(folder) == inner):
        return None
    replaced, normalize, layer, dense = pooling is not None, False, {}, {}
    last = -1
    for kind, place in _read_modules(path):
        before, last = last, _KINDS.index(kind) if kind in _KINDS else -1
        if last <= before and not replaced:
            raise ValueError(
                f"{path}: {kind} is not supported in this place: only Pooling, Dense, Normalize are"
            )
        if kind == "Normalize":
            normalize = True
        elif kind == "Dense" and pooling and not (dense or normalize):
            layer, dense = _read_dense(place)
        elif kind == "Pooling" and not replaced:
            pooling = _read_pooling(os.path.join(place, _CONFIG))
    if pooling is None:
        raise ValueError(f"{path} has no Pooling, which computes the vector of a text")
    others = read_json(others_path, _SETTINGS)
    prompt = others.get("default_prompt_name")
    has_prompt = prompt and (others.get("prompts") or {}).get(prompt) != ""
    if has_prompt or others.get("truncate_dim"):
        raise ValueError(f"{others_path}: a default prompt or truncate_dim is not supported")
    head = Head(EMBEDDING, pooling=pooling, normalize=normalize, **layer)
    source = os.path.join(inner, _LENGTH)
    values = read_json(source, _SETTINGS)
    # Newer versions leave the length to the tokenizer.
    if (length := values.get("max_seq_length")) is None:
        source = os.path.join(inner, TOKENIZER)
        stated = TokenizerFiles(inner).config.get("model_max_length")
        # Programs write 1e30 if there is no limit.
        length = stated if stated is not None and stated < 1e9 else None
    least = SINGLE_LENGTH["at_least"]
    if length is not None and not (length >= least and length % 1 == 0):
        raise ValueError(f"{source}: the length is {length}, not a whole number from {least}")
    length = length and int(length)  # which some programs write as 16.0
    lower_case = bool(values.get("do_lower_case"))
    return EmbeddingSettings(head, length, lower_case, MappingProxyType(others), dense)


def _read_modules(path: str) -> list[tuple[str, str]]:
    """Returns the class of each module, and its folder."""
    folder = os.path.dirname(path)
    modules = [(x["type"].rpartition(".")[2], x["path"]) for x in read_json(path, list[_MODULE])]
    for _, name in modules:
        # Other names could lead to any folder of the machine.
        if name.strip("/") == ".." or not re.fullmatch(r"([^/\\:]+/?)?", name):
            raise ValueError(f"{path} names {name!r}, which is not a folder beside it")
    return [(kind, os.path.join(folder, name).rstrip("/")) for kind, name in modules]


def _read_pooling(path: str) -> str:
    values = read_json(path, _POOLING_VALUES)
    if not values:
        raise ValueError(f"{path} is missing or empty: download or copy it again")
    flags = [name for name, value in values.items() if name.startswith("pooling_mode_") and value]
    kinds = values.get("pooling_mode", [_FLAGS.get(name, name) for name in flags] or ["mean"])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if len(kinds) != 1 or kinds[0] not in _FLAGS.values():
        raise ValueError(f"{path}: {kinds} is not supported, only cls, mean or max")
    return kinds[0]


def _read_dense(folder: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns what a `Head` says about a dense layer, and the weights."""
    config, path = os.path.join(folder, _CONFIG), os.path.join(folder, FILE)
    if not (values := read_json(config, _DENSE_VALUES)):
        raise ValueError(f"{config} is missing: download or copy it again")
    activation = _ACTIVATIONS.get(values.get("activation_function", _TANH))
    if not activation or values.get("use_residual"):
        raise ValueError(f"{folder}: only Tanh or Identity, without use_residual, is supported")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{path} is missing: save the model again with sentence-transformers")
    size, width = values["out_features"], values["in_features"]
    theirs = open_tensors(folder)[0]
    shapes = {"linear.weight": (size, width)}
    if values.get("bias", True):
        shapes["linear.bias"] = (size,)
    if (found := {name: tensor.shape for name, tensor in theirs.items()}) != shapes:
        raise ValueError(f"{path} holds {found}, but {config} says {shapes}: copy both again")
    kernel = theirs["linear.weight"]
    bias = theirs.get("linear.bias", Tensor((size,), lambda: np.zeros(size)))
    return {"outputs": size, "activation": activation}, {
        HEAD_KERNEL: Tensor((width, size), lambda: kernel.read().T.astype(np.float32)),
        HEAD_BIAS: Tensor((size,), lambda: bias.read().astype(np.float32)),
    }


def write_settings(settings: EmbeddingSettings, width: int, folder: str) -> None:
    """Writes the files that sentence-transformers needs in addition to Hugging Face's."""
    head = settings.head
    kinds = ["Transformer", "Pooling"]
    if head.outputs:
        kinds.append("Dense")
    if head.normalize:
        kinds.append("Normalize")
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    pooling = {name: kind == head.pooling for name, kind in _FLAGS.items()}
    names = ("max_seq_length", "do_lower_case")
    files = {
        MODULES: modules,
        _POOLING: {"word_embedding_dimension": width, **pooling},
        _LENGTH: {name: getattr(settings, name) for name in names},
    }
    if head.outputs:
        files[f"{_DENSE}/{_CONFIG}"] = {
            "in_features": width,
            "out_features": head.outputs,
            "activation_function": next(
                theirs for theirs, ours in _ACTIVATIONS.items() if ours == head.activation
            ),
        }
    if settings.others:
        files[_OTHERS] = dict(settings.others)
    for name, values in files.items():
        path = os.path.join(folder, name)
        tf.io.gfile.makedirs(os.path.dirname(path))
        write_json(path, values)
    if head.outputs:
        import safetensors.numpy

        kernel, bias = (settings.dense[path].read() for path in (HEAD_KERNEL, HEAD_BIAS))
        arrays = {"linear.weight": np.ascontiguousarray(kernel.T), "linear.bias": bias}
        content = safetensors.numpy.save(arrays, metadata={"format": "pt"})
        atomic_write(os.path.join(folder, _DENSE, FILE), content)
