"""Opens checkpoints of any format."""

import dataclasses
import os
from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.runs.run import CONFIG, VOCAB, Run
from bert_tf.training.checkpoints import chosen_checkpoint, saved_tensors
from bert_tf.weights.archives import extract, is_archive
from bert_tf.weights.checkpoint import Checkpoint, with_vocab
from bert_tf.weights.formats import google, huggingface, kerashub, model_garden, saved_model
from bert_tf.weights.table import import_tensors, own_rows
from tfrecords.files import named_errors
from tfrecords.vocabulary import guess_casing

# The names of our models, as weights begin with them.
_MODELS = ("encoder", "pretrainer", "task_model")
# The formats of other programs. The first that recognizes a path opens it.
FORMATS = (google, huggingface, kerashub, saved_model, model_garden)
# Downloads for paths such as "hf:org/name", by the part before the colon; each returns a folder.
DOWNLOADS: dict[str, Callable[[str], str]] = {
    "hf": huggingface.download,
    "keras": kerashub.download,
    "tfhub": saved_model.download,
}


def open_checkpoint(
    path: str,
    config: BertConfig | None = None,
    *,
    replace_vocab: bool = False,
    ignored: Collection[str] = (),
    any_encoder: bool = False,
    vocab_file: str | None = None,
) -> Checkpoint:
    """Opens a checkpoint; reads everything but the values of the weights.

    Args:
        path: a run folder or a checkpoint in one; a checkpoint of another program (see `FORMATS`)
            or its download (see `DOWNLOADS`); or an archive of any of these.
        config: the configuration if there is none beside the checkpoint.
        replace_vocab: do not read the vocabulary of a run, because it will be replaced.
        ignored: patterns of names that may be left out, as another program's checkpoint has them.
        any_encoder: whether the encoder may have no layers of BERT.
        vocab_file: another vocabulary; the checkpoint's own may then be damaged.
    """
    path = local_path(path)
    with named_errors(f"cannot read {path}: download it first"):
        tf.io.gfile.exists(path)
    path = path.rstrip("/") or path
    if is_archive(path):
        return _open_archive(
            path,
            config,
            replace_vocab=replace_vocab,
            ignored=ignored,
            any_encoder=any_encoder,
            vocab_file=vocab_file,
        )
    module = next((module for module in FORMATS if module.recognizes(path)), None)
    if module:
        checkpoint = module.open_(path, config, ignored)
    else:
        checkpoint = _open_run(path, config, replace_vocab, ignored, any_encoder)
    if checkpoint.vocab_problem and not vocab_file:
        raise ValueError(checkpoint.vocab_problem)
    spec = checkpoint.spec
    if spec.lower_case is not None or checkpoint.sentencepiece_file:
        return checkpoint
    spec = dataclasses.replace(spec, lower_case=guess_casing(spec.vocab, checkpoint.path))
    return dataclasses.replace(checkpoint, spec=spec, casing_is_guess=True)


def local_path(path: str) -> str:
    """Downloads a path such as "hf:org/name" and returns the folder; returns other paths unchanged.

    An existing file or folder with such a name is used as it is.
    """
    path = os.fspath(path)
    prefix, colon, name = path.partition(":")
    if not colon or prefix not in DOWNLOADS or os.path.exists(path):
        return path
    if not name:
        raise ValueError(
            f"{path} names nothing to download: add a name; docs/checkpoints.md has examples"
        )
    return DOWNLOADS[prefix](name)


def _open_archive(path: str, config: BertConfig | None, **options: Any) -> Checkpoint:
    folder = extract(path)
    try:
        return dataclasses.replace(open_checkpoint(folder, config, **options), path=path)
    except (ValueError, OSError) as error:
        # The folder no longer exists when the message is read.
        kind = ValueError if isinstance(error, ValueError) else OSError
        raise kind(str(error).replace(folder, path)) from error


def _open_run(
    path: str,
    config: BertConfig | None,
    replace_vocab: bool,
    ignored: Collection[str],
    any_encoder: bool,
) -> Checkpoint:
    try:
        checkpoint = chosen_checkpoint(path)
    except FileNotFoundError:
        Run(path).check_single()
        raise
    folder = Run(os.path.dirname(checkpoint))
    spec = ModelSpec(folder.config_or(config), lower_case=folder.lower_case)
    if not (spec.config.has_layers or any_encoder):
        raise ValueError(
            f"{path} is a BiLSTM, which has no layers of BERT: only run_finetuning --do_eval, "
            "predict, export.classifier and results can read it"
        )
    saved = saved_tensors(checkpoint)
    found = {path: tensor for path, tensor in saved.items() if path.split("/")[0] in _MODELS}
    others = {path: tensor for path, tensor in saved.items() if path not in found}
    bias = found.get("task_model/head/dense_bias")
    classes = bias.shape[0] if bias and bias.shape else 0
    tensors, unused = found, ()
    if spec.config.has_layers:
        rows = own_rows(spec.config)
        tensors, unused = import_tensors(checkpoint, rows, spec.config, found, ignored, classes)
    has_head = any(path.startswith("task_model/") for path in found)
    if others and (has_head or _is_pretraining(folder)):
        unused, others = (*unused, *sorted(others)), {}
    opened = Checkpoint(
        path=checkpoint,
        format="",
        spec=spec,
        tensors=tensors | others,
        unused=unused,
        head=folder.head,
        config_file=folder.file(CONFIG),
        run=folder.whole,
    )
    return opened if replace_vocab else with_vocab(opened, folder.file(VOCAB), lambda: folder.vocab)


def _is_pretraining(folder: Run) -> bool:
    # Models without a head of ours may have names of their own, but not those of pre-training.
    flags = folder.flags
    return bool(flags) and "task" not in flags
