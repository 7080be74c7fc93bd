"""The phases of pre-training as users define them, such as short sequences before long ones."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from bert_tf.base.files import errors_at, parse_json, read_file
from bert_tf.pretraining.pretraining_options import SharedOptions

# What an object of a --phases_file may hold; all but the share are names of flags.
_KEYS = (
    "share",
    "input_file",
    "eval_input_file",
    "max_seq_length",
    "max_predictions_per_seq",
    "train_batch_size",
)


def read_phases(options: SharedOptions) -> list[tuple[int, SharedOptions]]:
    """Returns the last step of every phase, and the flags with which it runs.

    The phases are those of `--phases_file`, a JSON list of objects, which take what they omit from
    the flags; without a file, there is one.

    Example:
        [{"share": 0.9, "input_file": "len128-*.tfrecord"},
         {"share": 0.1, "input_file": "len512-*.tfrecord", "train_batch_size": 64}]
    """
    path = options.phases_file
    if not path:
        return [(options.num_train_steps, options)]
    with errors_at(f"{path} is not a JSON list of objects, one per phase"):
        content = parse_json(read_file(path), list[dict[str, Any]])
    phases, shares, last = [], [], 0
    for number, values in enumerate(content, start=1):
        with phase_named(options, number):
            if unknown := sorted(values.keys() - _KEYS):
                raise ValueError(f"unknown key {unknown[0]!r}: the keys are {', '.join(_KEYS)}")
            share = values.pop("share", None)
            if not isinstance(share, int | float) or not 0 < share <= 1:
                raise ValueError(f"share is {share}: give the phase's part of all steps, as 0.9")
            shares.append(share)
            before, last = last, round(sum(shares) * options.num_train_steps)
            if last == before:
                steps = options.num_train_steps
                raise ValueError(f"it has no step: {share:g} of --num_train_steps={steps}")
            if "input_file" in values:
                # The held-out records of the flags do not belong to this phase.
                values = {"eval_input_file": None} | values
            phases.append((last, dataclasses.replace(options, **values)))
    if abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"{path}: the shares of the phases add up to {sum(shares):g}, not to 1")
    return phases


@contextlib.contextmanager
def phase_named(options: SharedOptions, number: int) -> Iterator[None]:
    """Adds the file and number of a phase to errors about it."""
    try:
        yield
    except ValueError as error:
        if not options.phases_file:
            raise
        raise ValueError(f"{options.phases_file}, phase {number}: {error}") from None
