"""The flags of a fine-tuning run that exists already."""

import dataclasses
import functools
import os
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.files import absolute_path, errors_at
from bert_tf.base.output_files import LOCK
from bert_tf.base.provenance import check_same
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.finetuning_options import DATA, FineTuningOptions
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.runs.run import COMMAND, FLAGS, HEAD, Run
from bert_tf.training.checkpoints import BEST

# The key in flags.json for the checksums of the training and dev examples.
DATA_CHECKSUMS = "data_checksums"
# In a folder of results: their data files, and the model unless it is that of the run.
RESULTS_OF = "results_of.json"
ADAPTERS = "adapters.npz"
# The roles of the flags that say what a run was trained for; see `command.option`.
_FOUND = ("column", "setting")
_TRAINED = ("fixed", "length", *_FOUND)


def options_of(run: Run) -> FineTuningOptions:
    """Returns the flags of a fine-tuning run."""
    names = {field.name for field in dataclasses.fields(FineTuningOptions)}
    with errors_at(run.file(FLAGS)):
        return FineTuningOptions(**{name: run.flags[name] for name in run.flags.keys() & names})


def with_flags_of(options: FineTuningOptions, run: Run) -> FineTuningOptions:
    """Returns the flags of a command for a run that exists; unchanged if there is none.

    Training resumes with the defaults that the run found in its data and model. An evaluation uses
    the run's values for all flags that shaped the training, and the run's data unless flags name
    other data.
    """
    if {"task", "output_dir"} <= run.flags.keys():
        options_of(run)  # checks them
    if options.do_train or run.finished is None:
        return options.with_saved(run.flags, *_FOUND) if run.has_checkpoint else options
    data = ("data", "test") if DataFiles.of(options).are_official else ()
    options = options.with_saved(run.flags, *_TRAINED, "reading", *data)
    flags = {name: getattr(options, name) for name in options.names(*_TRAINED)}
    run.check_flags(flags, "omit the flag, or give the task that was trained")
    return options


def check_resumable(options: FineTuningOptions, run: Run) -> bool:
    """Returns whether the run in the output folder is complete."""
    if run.finished is None:
        names = tf.io.gfile.listdir(run.path) if tf.io.gfile.isdir(run.path) else []
        # On gs://, the names of folders end with a slash.
        if {name.rstrip("/") for name in names} - {LOCK, DATA, *options.early_files}:
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
    flags = options.values("location", "free", "test", "reading") | {COMMAND: options.command}
    run.check_flags(flags)
    return run.finished and has_last_files(options, run)


def has_last_files(options: FineTuningOptions, run: Run) -> bool:
    """Returns whether a run has the files that it writes after the last step.

    If one of them was removed, the run has to end again.
    """
    tasks = options.task.split(",")
    files = [f"{task}/{BEST}/{HEAD}" for task in tasks] if len(tasks) > 1 else []
    files += [ADAPTERS] if options.lora_rank else []
    return all(tf.io.gfile.exists(run.file(name)) for name in files)


def _sources(flags: Mapping[str, Any]) -> dict[str, str]:
    """Returns the files of the dev and the test set, given flags; "" where no flag names them."""
    data, train, dev, test = (flags.get(name) for name in DataFiles._fields)
    held_out = " and ".join(filter(None, [data, train]))
    return {"dev set": dev or held_out, "test set": test or data or ""}


def results_folder(
    options: FineTuningOptions, run: Run, splits: Collection[str], task: Task
) -> tuple[Run, dict[str, str]]:
    """Returns the folder for the results of some splits, and the content of `RESULTS_OF`.

    It is the run's folder or, for other files than the run's, a subfolder named after them.

    Raises:
        ValueError: the folder holds other results.
    """
    flags, kinds = dataclasses.asdict(options), {"dev set": task.dev_splits}
    kinds["test set"] = task.test_splits
    now = {x: y for x, y in _sources(flags).items() if not {*kinds[x]}.isdisjoint(splits)}
    if run.finished is None:
        now["init_checkpoint"] = flags["init_checkpoint"] or ""
    else:
        own, first = _sources(run.flags), {}
        if not own["test set"] and (own["dev set"] or task.read_own):
            # The first test file of a run that was trained without one becomes its own.
            first = {x: now[x] for x in now if x == "test set"}
            own |= first | run.read_json(RESULTS_OF, dict[str, str])
        # Results beside a file could replace it: it may be called like one of them.
        others = [x for x in now if now[x] != own[x] or _lies_in(run.path, now[x])]
        if not others:
            return run, first
        names = [f"{x.split()[0]}-{os.path.basename(now[x].rstrip('/'))}" for x in others]
        run = Run(run.file("-".join(["results", *names])))
    before = run.read_json(RESULTS_OF, dict[str, str])
    if not before:
        check_resumable(options, run)
    shared = [x for x in now if x in before]
    then, again = ({x: sources[x] for x in shared} for sources in (before, now))
    check_same(run.path, then, again, "choose another --output_dir")
    return run, before | now


def _lies_in(folder: str, path: str) -> bool:
    return bool(path) and os.path.dirname(absolute_path(path)) == absolute_path(folder)


def compared_splits(options: FineTuningOptions, run: Run, task: Task) -> list[str]:
    """Returns the splits whose examples must be those that a run began with.

    The training examples of a finished run are left out if the command changes them.
    """
    dev, saved = task.dev_splits[0], run.flags
    if options.do_train:
        return [dev] if run.finished and options.changes_examples else [TRAIN, dev]
    # The results of other examples would replace the run's own. A tenth of changed training
    # examples would hold some that the model was trained on.
    same = _sources(dataclasses.asdict(options))["dev set"] == _sources(saved)["dev set"]
    return [dev] if options.do_eval and same else []


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
