"""A fine-tuning run that exists already: its flags, and what it was made from."""

import dataclasses
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.files import errors_at, names_in
from bert_tf.base.made import Inputs
from bert_tf.base.output_files import LOCK
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tokenizing import Features
from bert_tf.runs.run import COMMAND, FLAGS, Run
from bert_tf.tables.memory import TableInMemory
from bert_tf.training.checkpoints import BEST
from bert_tf.weights.checkpoint import Checkpoint, describe_model
from bert_tf.weights.opening import open_checkpoint

# The key in flags.json for the flags whose data were in memory.
IN_MEMORY = "in_memory"
# What `Run.made_from` calls a split.
SET = "the {} set"
_OTHER_DATA = "to evaluate on other data, give --init_checkpoint={} and another --output_dir"


def options_of(run: Run) -> FineTuningOptions:
    """Returns the fine-tuning flags in flags.json; its errors name that file."""
    names = {field.name for field in dataclasses.fields(FineTuningOptions)}
    with errors_at(run.file(FLAGS)):
        return FineTuningOptions(**{name: run.flags[name] for name in run.flags.keys() & names})


def recorded(options: FineTuningOptions) -> dict[str, Any]:
    """Returns the flags as flags.json holds them: data in memory only by the names of the flags."""
    flags = options.values() | {COMMAND: options.command}
    in_memory = [name for name, value in flags.items() if isinstance(value, TableInMemory)]
    return flags | dict.fromkeys(in_memory) | {IN_MEMORY: in_memory}


def resumed_flags(options: FineTuningOptions, run: Run) -> FineTuningOptions:
    """Returns the flags of training in the output folder, those of the run that it holds, if any.

    Raises:
        ValueError: the folder holds something else, or a run that was made from other flags.
    """
    if run.finished is None:
        if {*names_in(run.path)} - {LOCK, *options.early_files}:
            raise ValueError(
                f"{run.path} is not empty and holds no fine-tuning run: choose another --output_dir"
            )
        return options
    if not run.has_checkpoint:
        if run.finished:
            raise ValueError(
                f"{run.path} holds a finished run whose checkpoint ckpt-* is gone: give "
                f"--init_checkpoint={run.path}/{BEST} and another --output_dir to use its weights"
            )
        return options  # stopped before its first checkpoint: there is nothing to resume
    options_of(run)  # checks them
    options = options.with_saved(run.flags, "training")
    run.check_flags(options.values("place", "evaluation") | {COMMAND: options.command})
    if options.init_checkpoint not in (None, run.flags["init_checkpoint"]):
        init = open_checkpoint(options.init_checkpoint)
        run.check_made_from(describe_model("--init_checkpoint", init))
    return options


def splits_of_other_files(
    options: FineTuningOptions, run: Run, splits: Collection[str]
) -> list[str]:
    """Returns those of some splits of which `own_flags` names other files than the run's flags."""
    files = DataFiles.of(options)._asdict()
    others = [name for name in files if files[name] != run.flags.get(name)]
    return [x for x in splits if "data_dir" in others or f"{x}_file" in others]


def own_flags(options: FineTuningOptions, run: Run) -> FineTuningOptions:
    """Returns the flags of an evaluation of the run in the output folder, on its own data.

    Raises:
        ValueError: a flag differs from the run's, or the data were in memory.
    """
    theirs = DataFiles.of(options_of(run))
    files = {x: getattr(options, x) or getattr(theirs, x) for x in DataFiles._fields}
    if run.flags.get(IN_MEMORY) and not any(files.values()):
        names = " and ".join(f"--{name}" for name in run.flags[IN_MEMORY])
        raise ValueError(
            f"{run.path} was trained on data in memory, which it does not keep: give {names} "
            f"again; {_OTHER_DATA.format(run.path)}"
        )
    options = options.changed(**files).with_saved(run.flags, "training", "evaluation")
    advice = "omit the flag, or give the task that was trained"
    run.check_flags(options.values("place", "evaluation"), advice)
    return options


def flags_of_model(options: FineTuningOptions, model: Checkpoint) -> FineTuningOptions:
    """Returns the flags of an evaluation of a model on other data than its run's."""
    if not model.run:
        return options
    saved = model.run.flags
    if saved.get("task") != options.task:
        saved = {name: saved[name] for name in ("max_seq_length",) if name in saved}
    with errors_at(model.run.file(FLAGS)):
        return options.with_saved(saved, "training", "evaluation")


def _describe(splits: Mapping[str, Features]) -> Inputs:
    """Describes splits by checksums of their tokenized examples and targets."""
    inputs = []
    for name, features in splits.items():
        values = (features.ids, features.types, *features.targets.values())
        checksum = 0
        for part in tf.nest.flatten(values, expand_composites=True):
            checksum = zlib.crc32(np.ascontiguousarray(part), checksum)
        inputs.append({"name": SET.format(name), "crc32": checksum})
    return inputs


def check_same_data(
    run: Run, splits: Mapping[str, Features], needed: Collection[str] = ()
) -> Inputs:
    """Checks that splits hold the examples that a run began with; returns their description.

    A split that the run has not read yet is accepted, unless it is `needed`.
    """
    data = _describe(splits)
    advice = f"restore the data; {_OTHER_DATA.format(run.path)}"
    run.check_made_from(data, advice, [*map(SET.format, needed)])
    return data


def record_evaluation(run: Run, model: Checkpoint, splits: Mapping[str, Features]) -> None:
    """Writes what the results in a folder without a run are made from, before they are written.

    Raises:
        ValueError: the folder holds something else.
    """
    inputs = [*describe_model("model", model), *_describe(splits)]
    if not run.made_from.inputs and {*names_in(run.path)} - {LOCK}:
        raise ValueError(f"{run.path} is not empty: choose another --output_dir")
    run.check_made_from(inputs)
    run.record_made_from(inputs)
