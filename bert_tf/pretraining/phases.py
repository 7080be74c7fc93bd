"""The phases of pre-training: steps on short sequences first, then on long ones."""

import dataclasses
import json
from collections.abc import Sequence

import tensorflow as tf

from tfrecords.dynamic_masking import DynamicMasking


@dataclasses.dataclass(frozen=True)
class PhaseOptions:
    """One object of a `--phases_file`; the names are those of run_pretraining's flags.

    Raises:
        ValueError: for a value that no phase can have; names the key.
    """

    share: float
    input_file: str
    eval_input_file: str | None = None
    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    train_batch_size: int = 32

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kinds = {float: (int, float), int: (int,), str: (str,)}.get(
                field.type, (str, type(None))
            )
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise ValueError(f"{field.name} cannot be {value!r}")
            if field.type in (int, float) and not value > 0:
                raise ValueError(f"{field.name} is {value}; it must be above 0")


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps on records of one length.

    Attributes:
        first_step, until_step: it takes the steps after the first up to the last.
        files: to train on.
        eval_files: to evaluate on.
        splits: whether they are the same: then the first of every hundred records of a file is held
            out of training and evaluated on.
        train_batch_size: over all replicas.
        seed: of the order of the records.
        masking: of records that are masked as they are read.
    """

    first_step: int
    until_step: int
    files: tuple[str, ...]
    eval_files: tuple[str, ...]
    splits: bool
    max_seq_length: int
    max_predictions_per_seq: int
    train_batch_size: int
    seed: int
    masking: DynamicMasking | None = None


def read_phases(path: str, defaults: PhaseOptions) -> list[PhaseOptions]:
    """The phases in a JSON file, a list of objects; what one leaves out is as in `defaults`.

    Example:
        [{"share": 0.9, "max_seq_length": 128, "input_file": "len128-*.tfrecord"},
         {"share": 0.1, "max_seq_length": 512, "input_file": "len512-*.tfrecord",
          "max_predictions_per_seq": 77, "train_batch_size": 64}]

    Raises:
        ValueError: it is not such a list, or the shares do not add up to 1; names the file.
        OSError: it cannot be read.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = json.loads(file.read())
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON ({error})") from None
    if not (isinstance(content, list) and content and all(isinstance(p, dict) for p in content)):
        raise ValueError(f"{path}: not a list of objects, one for each phase")
    phases = [
        _phase(values, defaults, f"{path}, phase {number}")
        for number, values in enumerate(content, start=1)
    ]
    total = sum(phase.share for phase in phases)
    if abs(total - 1) > 1e-6:
        raise ValueError(f"{path}: the shares of the phases add up to {total:g}, not to 1")
    return phases


def last_steps(phases: Sequence[PhaseOptions], num_train_steps: int) -> list[int]:
    """The number of the last step of each phase.

    Raises:
        ValueError: a phase is without a step.
    """
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
    known = {field.name for field in dataclasses.fields(PhaseOptions)}
    if unknown := sorted(values.keys() - known):
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}")
    if "share" not in values:
        raise ValueError(f"{where}: share is missing, its part of all steps, such as 0.9")
    if "input_file" in values:
        # Another phase's held-out records are not this one's.
        values = {"eval_input_file": None} | values
    try:
        return dataclasses.replace(defaults, **values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
