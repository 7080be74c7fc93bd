"""The flags of all commands that run jobs."""

import functools
from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option, rare_option
from bert_tf.choices import WORKERS

_BEAM = ("Direct", "Dataflow", "Flink", "Spark", "Dask", "Portable")
_location = functools.partial(rare_option, role="location")


@dataclass(frozen=True, kw_only=True)
class RunnerOptions(command.Options):
    """Where work in chunks runs, and whether its output may replace another one."""

    num_workers: int | None = _location(
        None, "Number of processes. Default: as many as save time.", **WORKERS
    )
    runner: str = _location(
        "local",
        "Where the work runs: on this machine, or on a runner of Apache Beam.",
        choices=("local", *(f"{name}Runner" for name in _BEAM)),
    )
    beam_options: str | None = _location(
        None, "Further Beam options, such as '--project=P --region=R --temp_location=gs://...'."
    )
    overwrite: bool = option(
        False,
        "Replace output that was created with other settings or from other input.",
        role="free",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        flag = "beam_options" if self.runner == "local" else "num_workers"
        self.refuse([flag], f"has no effect with --runner={self.runner}")
