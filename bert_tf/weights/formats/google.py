"""Checkpoints of google-research/bert and google-research/albert, which are TensorFlow 1's."""

import os
import re
from collections.abc import Collection

import tensorflow as tf

from bert_tf.base.files import errors_at, named_errors, read_json
from bert_tf.base.output_files import write_json
from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.runs.run import CONFIG, Run
from bert_tf.training.checkpoints import check_name, listed_checkpoint, tensors_by_key
from bert_tf.weights.checkpoint import Checkpoint, with_vocab
from bert_tf.weights.formats import architectures
from bert_tf.weights.names import part_of, weights
from bert_tf.weights.translation import Row, export_tensors, import_tensors

NAME = "Google"

_ALBERT_CONFIG = "albert_config.json"

# The scopes in which run_classifier.py and run_squad.py keep their heads.
_HEADS = {"classifier": "", "span": "cls/squad/"}
_IGNORED = (
    *("*/adam_m", "*/adam_v", "*/Adam", "*/Adam_1", "beta1_power", "beta2_power", "global_step"),
    *("good_steps", "bad_steps", "loss_scale", "current_loss_scale"),
)
# The epsilon that Google's programs compute with, whatever bert_config.json says.
_EPSILON = 1e-12


def rows(config: BertConfig, kind: str | None = None) -> list[Row]:
    """Returns the table for a model with this kind of head."""
    beginnings, found = architectures.ARCHITECTURES[config.model_type].google, []
    for weight in weights(config):
        name = weight.google
        if part_of(weight.path) == "head":
            name = kind and f"{_HEADS[kind]}{name}"
        if name:
            theirs = architectures.renamed(name, beginnings)
            found.append(Row(weight, theirs, transposed=name.endswith("output_weights")))
    return found


def recognizes(path: str) -> bool:
    """Returns whether a path is a checkpoint of this format, or a folder that holds one."""
    prefix = _find(path)
    if not prefix:
        return False
    try:
        return any(name.startswith("bert/embeddings/") for name in tensors_by_key(prefix))
    except OSError:
        # Damaged. Run folders and the Model Garden have these names.
        return not re.fullmatch(r"ckpt-\d+", os.path.basename(prefix))


def open_(path: str, config: BertConfig | None, ignored: Collection[str] = ()) -> Checkpoint:
    """Opens a checkpoint: the prefix of its files, any of them, or their folder."""
    prefix = _find(path)
    theirs = tensors_by_key(prefix)
    if not tf.io.gfile.glob(f"{prefix}.data-*"):
        raise FileNotFoundError(
            f"{prefix}.data-00000-of-00001 is missing: copy it beside the index"
        )
    folder = Run(os.path.dirname(prefix))
    names = (CONFIG, _ALBERT_CONFIG)
    config_file = next((f for f in map(folder.file, names) if tf.io.gfile.exists(f)), None)
    if config_file == folder.file(_ALBERT_CONFIG):
        # google-research/albert computes "gelu" by the tanh form, and drops 0.1 before a head.
        values = {"classifier_dropout_prob": 0.1, **read_json(config_file)}
        if values.get("hidden_act") == "gelu":
            values["hidden_act"] = "gelu_new"
        with errors_at(config_file):
            config = BertConfig.from_dict(values)
    spec = ModelSpec(folder.config_or(config), lower_case=folder.lower_case)
    _check(spec.config, config_file or prefix, "it cannot be read")
    kind = next((kind for kind, scope in _HEADS.items() if f"{scope}output_bias" in theirs), None)
    checkpoint = Checkpoint(
        path=prefix,
        format=NAME,
        spec=spec,
        tensors=theirs,
        head=kind and Head(kind),
        config_file=config_file,
        vocab_file=folder.vocab_file,
    )
    checkpoint = import_tensors(checkpoint, rows(spec.config, kind), (*_IGNORED, *ignored))
    return with_vocab(checkpoint, lambda: folder.vocab)


def write(checkpoint: Checkpoint, folder: str) -> None:
    """Writes bert_model.ckpt, bert_config.json, vocab.txt and tokenizer_config.json."""
    spec, kind = checkpoint.spec, checkpoint.head and checkpoint.head.kind
    _check(spec.config, checkpoint.path, "convert it to another format")
    if kind and kind not in _HEADS:
        raise ValueError(f"{checkpoint.path}: --to=google has no {kind}: use --to=run")
    if spec.config.layer_norm_eps != _EPSILON:
        print(
            f"WARNING: {checkpoint.path} was trained with layer_norm_eps "
            f"{spec.config.layer_norm_eps:g}, but google-research/bert always uses {_EPSILON:g}"
        )
    check_name(folder)
    # Sorted, as in Google's files.
    arrays = dict(sorted(export_tensors(rows(spec.config, kind), spec.config, checkpoint.tensors)))
    with named_errors(f"cannot write a checkpoint to {folder}"):
        tf.raw_ops.SaveV2(
            prefix=os.path.join(folder, "bert_model.ckpt"),
            tensor_names=list(arrays),
            shape_and_slices=[""] * len(arrays),
            tensors=list(arrays.values()),
        )
    run = Run(folder)
    run.write(spec)
    values = architectures.config_values(spec.config)
    # Both forms of GELU are "gelu" there.
    if (act := spec.config.hidden_act) in ("gelu", "gelu_new"):
        values |= {"hidden_act": "gelu", "gelu_approximate": act == "gelu_new"}
    write_json(run.file(CONFIG), values)


def _check(config: BertConfig, source: str, advice: str) -> None:
    """Raises a ValueError if Google's programs have no such model."""
    for key in config.special_keys:
        if key not in ("embedding_size", "num_hidden_groups"):
            raise ValueError(
                f"{source}: {key} is {getattr(config, key)}, which google-research/bert does not "
                f"have: {advice}"
            )


def _find(path: str) -> str | None:
    """Returns the prefix of a checkpoint's files, in a folder the listed or last one's; or None."""
    if not tf.io.gfile.isdir(path):
        prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
        return prefix if tf.io.gfile.exists(f"{prefix}.index") else None
    found = {}
    for name in tf.io.gfile.listdir(path):
        # macOS adds files whose names begin with "._".
        if match := re.fullmatch(r"([^.].*?(?:-(\d+))?)\.index", name):
            found.setdefault(int(match[2] or 0), []).append(os.path.join(path, match[1]))
    last = found[max(found)] if found else []
    if listed := listed_checkpoint(path):
        last = [listed]
    return last[0] if len(last) == 1 else None
