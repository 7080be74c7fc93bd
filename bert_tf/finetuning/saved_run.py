"""The flags of a fine-tuning run that exists already."""

import dataclasses
import functools
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.features import Features
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.task import TRAIN, DataFiles, TrainableTask
from bert_tf.folder_lock import LOCK
from bert_tf.runs.provenance import check_same
from bert_tf.runs.run import COMMAND, FLAGS, HEAD, LOCATION_FLAGS, Run
from bert_tf.training.checkpoints import BEST
from tfrecords.files import fields_kind

# The key in flags.json for the checksums of the training and dev examples.
DATA_CHECKSUMS = "data_checksums"
# The file with what trained beside frozen weights.
ADAPTERS = "adapters.npz"
# The folder of the results that `compress` computes before training.
PRECOMPUTED = "precomputed"
# Flags that say what to do with a run, and so may differ from those it was trained with.
_FREE = frozenset({"do_train", "do_eval", "do_predict", "eval_batch_size", "test_file"})
# Flags that say how to read the model's output, and so may be given anew.
_READING = frozenset({"n_best_size", "max_answer_length", "null_score_diff_threshold"})
# Flags that say where the training and dev examples are.
_TRAINED_ON = ("data_dir", "train_file", "dev_file")
# Flags that say how much of a text the model reads.
LENGTHS = ("max_seq_length", "max_query_length", "doc_stride")
# Flags that say how the vectors of texts are computed.
SETTINGS = ("pooling", "normalize", "max_seq_length")
# Flags whose defaults a run has found in its training file or its model.
_FOUND = ("text_column", "label_column", *SETTINGS)
# Flags that may differ in addition if the run is only evaluated.
_EVALUATION = frozenset({*DataFiles._fields, "precision", "init_checkpoint"})


def with_saved_flags(options: FineTuningOptions, run: Run) -> FineTuningOptions:
    """Returns the flags for an evaluation: those of the training run where none are given.

    Training and dev data are those of the training run if no flag says where others are. Returns
    `options` unchanged to train, or if there is no run.
    """
    if options.do_train or run.finished is None:
        return options
    saved = run.read_json(FLAGS, fields_kind(FineTuningOptions))
    values = {}
    if not any(getattr(options, name) for name in _TRAINED_ON):
        values = {name: saved[name] for name in DataFiles._fields if name in saved}
        values["test_file"] = options.test_file or saved.get("test_file")
    for field in dataclasses.fields(options):
        name = field.name
        if name not in saved or name in _FREE | _EVALUATION | LOCATION_FLAGS:
            continue
        value = getattr(options, name)
        if name in _READING and value != field.default:
            continue
        if value not in (field.default, saved[name]):
            advice = "give that task" if name == "task" else "omit the flag"
            raise ValueError(
                f"{run.path} was trained with --{name}={saved[name]}, not {value}: {advice}"
            )
        values[name] = saved[name]
    return dataclasses.replace(options, **values)


def with_values_of(
    options: FineTuningOptions, saved: Mapping[str, Any], names: Iterable[str] = _FOUND
) -> FineTuningOptions:
    """Returns the flags; those of these names that are not given take the saved values."""
    unset = [name for name in names if getattr(options, name) == getattr(type(options), name)]
    return dataclasses.replace(options, **{x: saved[x] for x in unset if x in saved})


def check_resumable(options: FineTuningOptions, run: Run) -> bool:
    """Returns whether the run in the output folder is complete."""
    if run.finished is None:
        names = tf.io.gfile.listdir(run.path) if tf.io.gfile.isdir(run.path) else []
        # On gs://, the names of folders end with a slash.
        if {name.rstrip("/") for name in names} - {LOCK, PRECOMPUTED}:
            raise ValueError(
                f"{run.path} is not empty and holds no fine-tuning run: choose another --output_dir"
            )
        return False
    if not run.has_checkpoint:
        if run.finished:
            raise ValueError(
                f"{run.path} holds a finished run whose checkpoint ckpt-* is gone: give "
                f"--init_checkpoint={run.path}/{BEST} and another --output_dir to use its weights"
            )
        return False  # stopped before its first checkpoint: there is nothing to resume
    flags = dataclasses.asdict(options) | {COMMAND: options.command}
    run.check_flags(flags, free=_FREE | _READING)
    return run.finished and has_last_files(options, run)


def has_last_files(options: FineTuningOptions, run: Run) -> bool:
    """Returns whether a run has the files that it writes after the last step.

    If one of them was removed, the run has to end again.
    """
    tasks = options.task.split(",")
    files = [f"{task}/{BEST}/{HEAD}" for task in tasks] if len(tasks) > 1 else []
    files += [ADAPTERS] if options.lora_rank else []
    return all(tf.io.gfile.exists(run.file(name)) for name in files)


def compared_splits(options: FineTuningOptions, run: Run, task: TrainableTask) -> list[str]:
    """Returns the splits whose examples must be those that a run began with.

    The training examples of a finished run are left out if the command changes them.
    """
    dev, saved = task.dev_splits[0], run.flags
    if options.do_train:
        return [dev] if run.finished and options.changes_examples else [TRAIN, dev]
    if not options.do_eval or task.has_dev:
        return []
    # A tenth of changed training examples would hold some that the model was trained on.
    same_files = all(getattr(options, name) == saved.get(name) for name in _TRAINED_ON)
    return [dev] if same_files else []


def data_checksums(splits: Mapping[str, Features]) -> dict[str, int]:
    """Returns a checksum of the tokenized examples and targets of each split."""
    checksums = {}
    for name, features in splits.items():
        values = (features.ids, features.types, *features.targets.values())
        parts = [part for x in values for part in tf.nest.flatten(x, expand_composites=True)]
        checksums[name] = functools.reduce(
            lambda checksum, part: zlib.crc32(np.ascontiguousarray(part), checksum), parts, 0
        )
    return checksums


def check_same_data(run: Run, checksums: Mapping[str, int]) -> None:
    """Checks that splits hold the examples that a run began with, given their `data_checksums`."""
    before = run.flags.get(DATA_CHECKSUMS, {}) if run.finished or run.has_checkpoint else {}
    then, now = (
        {f"the {name} set": {"crc32": x[name]} for name in checksums if name in before}
        for x in (before, checksums)
    )
    check_same(run.path, then, now, "restore the files, or choose another --output_dir")
