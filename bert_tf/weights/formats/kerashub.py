"""Presets of KerasHub's BertBackbone, BertMaskedLM and BertTextClassifier.

A preset is a folder of JSON files that describe Keras objects, HDF5 files of weights, and the
vocabulary. The objects are neither loaded nor created: only their values are read and written.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Collection
from typing import Any

import tensorflow as tf

from bert_tf.base.files import errors_at, read_json
from bert_tf.base.output_files import make_folder, write_json
from bert_tf.base.process import needed
from bert_tf.base.storage import download_errors
from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.weights.checkpoint import Checkpoint, with_vocab
from bert_tf.weights.formats.tensor_files import hdf5_tensors, write_hdf5
from bert_tf.weights.names import HEAD_BIAS, part_of, weights
from bert_tf.weights.translation import Row, export_tensors, import_tensors
from tfrecords.vocabulary import check_word_pieces, load_vocab, write_vocab

NAME = "KerasHub"

_MASKED_LM = "task/layers/masked_lm_head"
_CLASSIFIER_BIAS = "task/layers/dense/vars/1"
_IGNORED = ("optimizer/*", "task/optimizer/*", "*/seed_generator/vars/*")

# Our keys -> the arguments of BertBackbone.
_KEYS = {
    "vocab_size": "vocabulary_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "hidden_dim",
    "intermediate_size": "intermediate_dim",
    "hidden_dropout_prob": "dropout",
    "max_position_embeddings": "max_sequence_length",
    "type_vocab_size": "num_segments",
}
# What BertBackbone and BertMaskedLM compute, whatever their arguments.
_FIXED = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
_MASKED_LM_FORM = {"masked_lm_act": "gelu", "masked_lm_layer_norm_eps": 1e-5}

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_TASK_WEIGHTS, _TOKENIZER = "task.weights.h5", "tokenizer.json"
_VOCAB = "assets/tokenizer/vocabulary.txt"
_OBJECT = {"class_name": str, "config": {"lowercase?": bool | None}}


def download(name: str) -> str:
    """Downloads a preset in KerasHub's list or with a Kaggle handle, or opens the copy kept."""
    with needed("keras-hub", f"keras:{name} needs"):
        import kagglehub
        import keras_hub
    presets = keras_hub.models.BertBackbone.presets
    handle = presets[name]["kaggle_handle"] if name in presets else name
    with download_errors(f"keras:{name}"):
        return kagglehub.model_download(handle.removeprefix("kaggle://"))


def rows(config: BertConfig) -> list[Row]:
    """Returns the table of the format; names in task.weights.h5 begin with "task/" here."""
    named = ((weight, weight.kerashub) for weight in weights(config))
    return [Row(weight, name, by_heads=True) for weight, name in named if name]


def recognizes(path: str) -> bool:
    """Returns whether a path is a preset's folder."""
    return tf.io.gfile.exists(os.path.join(path, _WEIGHTS))


def open_(path: str, config: BertConfig | None, ignored: Collection[str] = ()) -> Checkpoint:
    """Opens a preset, which always has a configuration of its own."""
    in_backbone = hdf5_tensors(os.path.join(path, _WEIGHTS))
    theirs = {_renamed(name): tensor for name, tensor in in_backbone.items()}
    task = os.path.join(path, _TASK_WEIGHTS)
    if tf.io.gfile.exists(task):
        theirs |= {f"task/{name}": tensor for name, tensor in hdf5_tensors(task).items()}
    config = _read_config(path)
    if any(name.startswith(_MASKED_LM) for name in theirs):
        config = dataclasses.replace(config, **_MASKED_LM_FORM)
    tokenizer = read_json(os.path.join(path, _TOKENIZER), _OBJECT).get("config", {})
    vocab_file = os.path.join(path, _VOCAB)
    vocab_file = vocab_file if tf.io.gfile.exists(vocab_file) else None
    checkpoint = Checkpoint(
        path=path,
        format=NAME,
        spec=ModelSpec(config, lower_case=tokenizer.get("lowercase")),
        tensors=theirs,
        head=Head("classifier") if _CLASSIFIER_BIAS in theirs else None,
        config_file=os.path.join(path, _CONFIG),
        vocab_file=vocab_file,
    )
    checkpoint = import_tensors(checkpoint, rows(config), (*_IGNORED, *ignored))
    # Published presets state `strip_accents: False`, although their models learned text without.
    return with_vocab(checkpoint, lambda: load_vocab(vocab_file) if vocab_file else None)


def fitted(checkpoint: Checkpoint) -> Checkpoint:
    """Returns what KerasHub's models hold of a checkpoint; prints whether outputs will differ.

    They have no next-sentence head, and a masked-LM head of one form.
    """
    config, tensors = checkpoint.spec.config, checkpoint.tensors
    lacking = {"next_sentence"}
    if config.masked_lm_form != tuple(_MASKED_LM_FORM.values()):
        lacking.add("masked_lm")
    kept = {path: tensors[path] for path in tensors if part_of(path) not in lacking}
    if config.hidden_act == "gelu":
        print(
            "WARNING: KerasHub's BERT has the tanh form of GELU (gelu_new), and this model the "
            "exact one, so their outputs differ slightly."
        )
        config = dataclasses.replace(config, hidden_act="gelu_new")
    return dataclasses.replace(
        checkpoint,
        spec=dataclasses.replace(checkpoint.spec, config=config),
        tensors=kept,
        unused=(*checkpoint.unused, *sorted(tensors.keys() - kept.keys())),
    )


def write(checkpoint: Checkpoint, folder: str) -> None:
    """Writes a preset into an empty folder.

    It is a BertTextClassifier or BertMaskedLM if there is such a head, or else a BertBackbone.
    """
    spec = checkpoint.spec
    _check_config(spec.config, "masked_lm" in checkpoint.parts)
    check_word_pieces(spec.vocab, checkpoint.vocab_file)
    if checkpoint.head and checkpoint.head.kind != "classifier":
        raise ValueError(f"KerasHub has no BERT {checkpoint.head.kind}: use --to=run")
    config = dataclasses.replace(spec.config, masked_lm_act=None, masked_lm_layer_norm_eps=None)
    arrays = export_tensors(rows(config), config, checkpoint.tensors)
    # The table begins with the rows of model.weights.h5.
    for in_task, group in itertools.groupby(arrays, lambda item: item[0].startswith("task/")):
        file = os.path.join(folder, _TASK_WEIGHTS if in_task else _WEIGHTS)
        write_hdf5(file, ((_their_name(name), array) for name, array in group))
    _write_objects(checkpoint, folder)


def _write_objects(checkpoint: Checkpoint, folder: str) -> None:
    """Writes the files of a preset that hold no weights."""
    spec = checkpoint.spec
    values = {theirs: getattr(spec.config, ours) for ours, theirs in _KEYS.items()}
    objects = {_CONFIG: _object("BertBackbone", **values)}
    if spec.vocab:
        if spec.lower_case is None:
            raise ValueError(
                f"the casing of {checkpoint.vocab_file} is unknown: give --do_lower_case"
            )
        make_folder(os.path.dirname(os.path.join(folder, _VOCAB)))
        write_vocab(os.path.join(folder, _VOCAB), spec.vocab)
        strips = spec.vocab.strip_accents
        objects[_TOKENIZER] = _object(
            "BertTokenizer",
            lowercase=spec.lower_case,
            strip_accents=spec.lower_case if strips is None else strips,
        )
    if (name := model_class(checkpoint)) != "BertBackbone":
        tokenizer = objects.get(_TOKENIZER)
        length = spec.config.max_position_embeddings
        preprocessor = tokenizer and _object(
            f"{name}Preprocessor", tokenizer=tokenizer, sequence_length=length
        )
        bias = checkpoint.tensors.get(HEAD_BIAS)
        arguments = {"num_classes": bias.shape[0]} if bias else {}
        objects["task.json"] = _object(
            name, backbone=objects[_CONFIG], preprocessor=preprocessor, **arguments
        )
        if preprocessor:
            objects["preprocessor.json"] = preprocessor
    for file, value in objects.items():
        write_json(os.path.join(folder, file), value, indent=4)


def model_class(checkpoint: Checkpoint) -> str:
    """Returns KerasHub's class for a checkpoint with its head."""
    if "head" in checkpoint.parts:
        return "BertTextClassifier"
    return "BertMaskedLM" if "masked_lm" in checkpoint.parts else "BertBackbone"


def _object(name: str, **config: Any) -> dict[str, Any]:
    """Describes an object of one of KerasHub's classes as Keras does."""
    module = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=M)(?=P)", "_", name).lower()
    return {
        "module": f"keras_hub.src.models.bert.{module}",
        "class_name": name,
        "config": config,
        "registered_name": f"keras_hub>{name}",
    }


def _check_config(config: BertConfig, masked_lm: bool) -> None:
    """Checks that KerasHub's models compute the same; raises a ValueError that names the key."""
    fixed = dict.fromkeys(config.special_keys) | _FIXED | (_MASKED_LM_FORM if masked_lm else {})
    form = dict(zip(_MASKED_LM_FORM, config.masked_lm_form, strict=True))
    for key, value in fixed.items():
        ours = form[key] if key in form else getattr(config, key)
        if ours != value:
            raise ValueError(
                f"{key} is {ours!r}, but KerasHub's BERT can only have {value!r}: use --to=run"
            )


def _renamed(name: str) -> str:
    """Returns the table's name for a name in a file of any version of Keras."""
    name = name.replace("_layer_checkpoint_dependencies/", "layers/")
    name = re.sub(r"/_(query|key|value|output)_dense/", r"/\1_dense/", name)
    return re.sub(r"^layers/transformer_encoder/", "layers/transformer_encoder_0/", name)


def _their_name(name: str) -> str:
    """Returns the name in a file for a name in the table."""
    return name.removeprefix("task/").replace("/transformer_encoder_0/", "/transformer_encoder/")


def _read_config(folder: str) -> BertConfig:
    path = os.path.join(folder, _CONFIG)
    found = read_json(path, _OBJECT)
    if (name := found.get("class_name")) != "BertBackbone":
        raise ValueError(f"{path}: the preset holds {name}, but only BertBackbone can be read")
    values = found["config"]
    if missing := sorted(set(_KEYS.values()) - values.keys()):
        raise ValueError(f"{path}: {missing[0]} is missing: copy the preset again")
    with errors_at(path):
        return BertConfig(**{ours: values[theirs] for ours, theirs in _KEYS.items()}, **_FIXED)
