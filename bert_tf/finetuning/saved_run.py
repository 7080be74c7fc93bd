"""The flags of a fine-tuning run that exists already."""

import dataclasses
import zlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.features import Features
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.task import DataFiles
from bert_tf.folder_lock import LOCK
from bert_tf.run_folder import LOCATION_FLAGS, RunFolder
from bert_tf.training.checkpoints import BEST

# The key in flags.json for whether all steps were taken.
FINISHED = "finished"
# The key in flags.json for the checksum of the training and dev examples.
DATA_CHECKSUM = "data_checksum"
# The folder of the results that `compress` computes before training.
PRECOMPUTED = "precomputed"
# Flags that say what to do with a run, and so may differ from those it was trained with.
_FREE = frozenset({"do_train", "do_eval", "do_predict", "eval_batch_size", "test_file"})
# Flags that say how to read the model's output, and so may be given anew.
_READING = frozenset({"n_best_size", "max_answer_length", "null_score_diff_threshold"})
# Flags that may differ in addition if the run is only evaluated.
_EVALUATION = frozenset({*DataFiles._fields, "precision", "init_checkpoint"})


def with_saved_flags(options: FineTuningOptions, run: RunFolder) -> FineTuningOptions:
    """Returns the flags for an evaluation: those of the training run where none are given.

    Training and dev data are those of the training run if no flag says where others are. Returns
    `options` unchanged to train, or if there is no run.

    Raises:
        ValueError: a flag contradicts the run.
    """
    saved = run.read_flags()
    if options.do_train or FINISHED not in saved:
        return options
    values = {}
    if not (options.data_dir or options.train_file or options.dev_file):
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
            raise ValueError(
                f"{run.path} was trained with --{name}={saved[name]}, not {value}: omit the flag"
            )
        values[name] = saved[name]
    return dataclasses.replace(options, **values)


def check_resumable(options: FineTuningOptions, run: RunFolder) -> bool:
    """Returns whether the run in the output folder took all its steps.

    Raises:
        ValueError: the folder holds something else, or a run with different flags.
    """
    saved = run.read_flags()
    if FINISHED not in saved:
        if tf.io.gfile.isdir(run.path) and _names(run.path) - {LOCK, PRECOMPUTED}:
            raise ValueError(
                f"{run.path} is not empty and holds no fine-tuning run: choose another --output_dir"
            )
        return False
    if not run.has_checkpoint():
        if saved[FINISHED]:
            raise ValueError(
                f"{run.path} holds a finished run whose checkpoint ckpt-* is gone: give "
                f"--init_checkpoint={run.path}/{BEST} and another --output_dir to use its weights"
            )
        return False  # stopped before its first checkpoint: there is nothing to resume
    if "recipe" in saved and not hasattr(options, "recipe"):
        raise ValueError(f"{run.path} holds a run of compress: resume it with the same command")
    run.check_flags(dataclasses.asdict(options), free=_FREE | _READING)
    return saved[FINISHED]


def data_checksum(splits: Iterable[Features]) -> int:
    """Returns a checksum of tokenized examples and their targets."""
    checksum = 0
    for features in splits:
        for values in (features.ids, features.types, *features.targets.values()):
            for part in tf.nest.flatten(values, expand_composites=True):
                checksum = zlib.crc32(np.ascontiguousarray(part), checksum)
    return checksum


def check_same_data(run: RunFolder, checksum: int) -> None:
    """Checks that a run resumes with the examples it began with, given their `data_checksum`.

    Raises:
        ValueError: they are others.
    """
    if run.has_checkpoint() and run.read_flags().get(DATA_CHECKSUM, checksum) != checksum:
        raise ValueError(
            f"the training or dev examples have changed since {run.path} began to train: restore "
            "the files, or choose another --output_dir"
        )


def _names(folder: str) -> set[str]:
    # On gs://, the names of folders end with a slash.
    return {name.rstrip("/") for name in tf.io.gfile.listdir(folder)}
