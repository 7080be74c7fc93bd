"""Checkpoints of google-research/bert: TensorFlow 1, with bert_config.json and vocab.txt beside."""

import dataclasses
import os
import re
from collections.abc import Collection, Sequence

import tensorflow as tf

from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.run_folder import CONFIG, VOCAB, RunFolder
from bert_tf.training.checkpoints import latest_checkpoint, tensors_by_key
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.table import Row, import_tensors

NAME = "Google"

_LAYER = "bert/encoder/layer_{}"
_QKV = ("query", "key", "value")
ROWS = (
    Row("encoder/embeddings/word_embeddings", "bert/embeddings/word_embeddings"),
    Row("encoder/embeddings/position_embeddings", "bert/embeddings/position_embeddings"),
    Row("encoder/embeddings/token_type_embeddings", "bert/embeddings/token_type_embeddings"),
    Row("encoder/embeddings/layer_norm/gamma", "bert/embeddings/LayerNorm/gamma"),
    Row("encoder/embeddings/layer_norm/beta", "bert/embeddings/LayerNorm/beta"),
    Row(
        "encoder/layer_{}/attention/qkv_kernel",
        tuple(f"{_LAYER}/attention/self/{name}/kernel" for name in _QKV),
    ),
    Row(
        "encoder/layer_{}/attention/qkv_bias",
        tuple(f"{_LAYER}/attention/self/{name}/bias" for name in _QKV),
    ),
    Row(
        "encoder/layer_{}/attention/output_kernel",
        f"{_LAYER}/attention/output/dense/kernel",
    ),
    Row("encoder/layer_{}/attention/output_bias", f"{_LAYER}/attention/output/dense/bias"),
    Row("encoder/layer_{}/attention_norm/gamma", f"{_LAYER}/attention/output/LayerNorm/gamma"),
    Row("encoder/layer_{}/attention_norm/beta", f"{_LAYER}/attention/output/LayerNorm/beta"),
    Row("encoder/layer_{}/intermediate_kernel", f"{_LAYER}/intermediate/dense/kernel"),
    Row("encoder/layer_{}/intermediate_bias", f"{_LAYER}/intermediate/dense/bias"),
    Row("encoder/layer_{}/output_kernel", f"{_LAYER}/output/dense/kernel"),
    Row("encoder/layer_{}/output_bias", f"{_LAYER}/output/dense/bias"),
    Row("encoder/layer_{}/output_norm/gamma", f"{_LAYER}/output/LayerNorm/gamma"),
    Row("encoder/layer_{}/output_norm/beta", f"{_LAYER}/output/LayerNorm/beta"),
    Row("encoder/pooler/dense_kernel", "bert/pooler/dense/kernel"),
    Row("encoder/pooler/dense_bias", "bert/pooler/dense/bias"),
    Row("pretrainer/masked_lm/transform_kernel", "cls/predictions/transform/dense/kernel"),
    Row("pretrainer/masked_lm/transform_bias", "cls/predictions/transform/dense/bias"),
    Row("pretrainer/masked_lm/layer_norm/gamma", "cls/predictions/transform/LayerNorm/gamma"),
    Row("pretrainer/masked_lm/layer_norm/beta", "cls/predictions/transform/LayerNorm/beta"),
    Row("pretrainer/masked_lm/output_bias", "cls/predictions/output_bias"),
    Row(
        "pretrainer/next_sentence/dense_kernel",
        "cls/seq_relationship/output_weights",
        transposed=True,
    ),
    Row("pretrainer/next_sentence/dense_bias", "cls/seq_relationship/output_bias"),
)
# Where run_classifier.py and run_squad.py keep their heads.
_HEADS = {"classifier": "", "span": "cls/squad/"}
# States of the optimizers and loss scales of published programs.
_IGNORED = (
    *("*/adam_m", "*/adam_v", "*/Adam", "*/Adam_1", "beta1_power", "beta2_power", "global_step"),
    *("good_steps", "bad_steps", "loss_scale", "current_loss_scale"),
)
# The names of Google's models, as in `validate_case_matches_checkpoint` of google-research/bert.
_CASINGS = (
    (r"uncased", True),
    (r"cased", False),
    (r"(multilingual|chinese)_L-\d", True),
)


def _rows(kind: str | None) -> Sequence[Row]:
    """Returns the table for a model with this kind of head."""
    if kind is None:
        return ROWS
    kernel, bias = (f"{_HEADS[kind]}output_{name}" for name in ("weights", "bias"))
    return (
        *ROWS,
        Row("task_model/head/dense_kernel", kernel, transposed=True),
        Row("task_model/head/dense_bias", bias),
    )


def recognizes(path: str) -> bool:
    """Returns whether a path is a checkpoint of this format, or a folder that holds one."""
    try:
        names = tensors_by_key(_prefix(path))
    except OSError:
        return False
    return any(name.startswith("bert/embeddings/") for name in names)


def open_(path: str, config: BertConfig | None, ignored: Collection[str] = ()) -> Checkpoint:
    """Opens a checkpoint.

    Args:
        path: the prefix of its files, any of them, or the folder that holds them.
        config: the configuration if there is no bert_config.json beside it.
        ignored: patterns of additional variables to leave out, beside those of optimizers.

    Raises:
        ValueError: the checkpoint does not fit its configuration or vocabulary.
        OSError: a file is missing or damaged.
    """
    prefix = _prefix(path)
    folder = RunFolder(os.path.dirname(prefix))
    spec = folder.read(config)
    theirs = tensors_by_key(prefix)
    kind = next((kind for kind, scope in _HEADS.items() if f"{scope}output_bias" in theirs), None)
    classes = theirs[f"{_HEADS[kind]}output_bias"].shape[0] if kind else 0
    tensors, unused = import_tensors(
        prefix, _rows(kind), spec.config, theirs, (*_IGNORED, *ignored), classes
    )
    return Checkpoint(
        path=prefix,
        format=NAME,
        spec=_with_casing(spec, folder.path),
        tensors=tensors,
        head=kind and Head(kind),
        config_file=folder.file(CONFIG) if tf.io.gfile.exists(folder.file(CONFIG)) else None,
        vocab_file=folder.file(VOCAB) if spec.vocab else None,
        unused=unused,
    )


def _prefix(path: str) -> str:
    """Returns the prefix of the files of a checkpoint; raises a FileNotFoundError if none."""
    path = path.removesuffix(".meta")
    if not tf.io.gfile.isdir(path):
        return latest_checkpoint(path)
    found = tf.io.gfile.glob(os.path.join(path, "*.ckpt.index"))
    return latest_checkpoint(found[0] if len(found) == 1 else path)


def _with_casing(spec: ModelSpec, folder: str) -> ModelSpec:
    """Adds the casing, which Google's checkpoints state in the name of their folder only."""
    name = os.path.basename(os.path.abspath(folder))
    stated = (lower_case for pattern, lower_case in _CASINGS if re.search(pattern, name))
    return (
        spec
        if spec.lower_case is not None
        else dataclasses.replace(spec, lower_case=next(stated, None))
    )
