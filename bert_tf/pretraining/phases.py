"""The phases of pre-training as users define them, such as short sequences before long ones."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from bert_tf.pretraining.pretraining_options import PretrainingOptions
from tfrecords import command
from tfrecords.command import option
from tfrecords.files import read_file


def _flag(name: str) -> Any:
    """Declares a field with the default and the limits of a flag."""
    flag = PretrainingOptions.__dataclass_fields__[name]
    return dataclasses.field(default=flag.default, metadata=flag.metadata)


@dataclasses.dataclass(frozen=True)
class PhaseOptions(command.Options):
    """One object of a `--phases_file`; the names are those of run_pretraining's flags."""

    share: float = option(help="The phase's part of all steps.", at_least=1e-9, at_most=1)
    input_file: str = _flag("input_file")
    eval_input_file: str | None = _flag("eval_input_file")
    max_seq_length: int | None = _flag("max_seq_length")
    max_predictions_per_seq: int | None = _flag("max_predictions_per_seq")
    train_batch_size: int = _flag("train_batch_size")


def read_phases(path: str, defaults: PhaseOptions) -> list[PhaseOptions]:
    """Reads the phases from a JSON list of objects, which take what they omit from `defaults`.

    Example:
        [{"share": 0.9, "input_file": "len128-*.tfrecord"},
         {"share": 0.1, "input_file": "len512-*.tfrecord", "train_batch_size": 64}]
    """
    try:
        content = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error})") from None
    if not (isinstance(content, list) and content and all(isinstance(p, dict) for p in content)):
        raise ValueError(f"{path} is not a list of objects, one per phase")
    phases = [
        _phase(values, defaults, f"{path}, phase {number}")
        for number, values in enumerate(content, start=1)
    ]
    total = sum(phase.share for phase in phases)
    if abs(total - 1) > 1e-6:
        raise ValueError(f"{path}: the shares of the phases add up to {total:g}, not to 1")
    return phases


def last_steps(phases: Sequence[PhaseOptions], num_train_steps: int) -> list[int]:
    """Returns the number of each phase's last step."""
    ends = [0]
    for count in range(1, len(phases) + 1):
        ends.append(round(sum(phase.share for phase in phases[:count]) * num_train_steps))
        if ends[-1] == ends[-2]:
            raise ValueError(
                f"phase {count} has no step: its share is {phases[count - 1].share:g} of "
                f"--num_train_steps={num_train_steps}"
            )
    return ends[1:]


def _phase(values: dict, defaults: PhaseOptions, where: str) -> PhaseOptions:
    names = [field.name for field in dataclasses.fields(PhaseOptions)]
    if unknown := sorted(values.keys() - names):
        raise ValueError(f"{where}: unknown key {unknown[0]!r}: the keys are {', '.join(names)}")
    if "share" not in values:
        raise ValueError(f"{where}: share is missing, the phase's part of all steps, such as 0.9")
    if "input_file" in values:
        # The held-out records of the flags do not belong to this phase.
        values = {"eval_input_file": None} | values
    try:
        return dataclasses.replace(defaults, **values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
