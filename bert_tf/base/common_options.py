"""The flags that several commands share: devices to train on, and where jobs run."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.base import command
from bert_tf.base.choices import PRECISIONS, STRATEGIES, WORKERS
from bert_tf.base.command import option, rare_option

_BEAM = ("Direct", "Dataflow", "Flink", "Spark", "Dask", "Portable")
_TPU, _SEVERAL = "strategy=auto or strategy=tpu", "strategy=auto or strategy=multi_worker"
_location = functools.partial(rare_option, role="place")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(command.Options):
    """The devices that a command trains on, and the precision."""

    # Flags of `WorkerOptions`; commands without them run on one machine.
    worker_hosts = task_index = None

    # Flags of google-research/bert, and of `WorkerOptions`.
    absent_flags: ClassVar[Mapping[str, str]] = {
        "worker_hosts": "the command runs on one machine, so omit it",
        "master": "use --strategy=multi_worker, or --strategy=tpu with --tpu_name",
        "num_tpu_cores": "all cores of the TPU are used, so omit it",
        "seed": "use --random_seed",
    }
    if_out_of_memory: ClassVar[str] = (
        "use a smaller --train_batch_size, --eval_batch_size, --max_seq_length or encoder"
    )

    precision: str = option(
        "float32",
        "Type of activations and matrix products. Variables stay in float32; with float16 "
        "the loss is scaled.",
        choices=PRECISIONS,
    )
    strategy: str = option(
        "auto",
        "Devices to train on. auto takes the workers or the TPU named by other flags, or else "
        "all GPUs, or else the CPU.",
        choices=STRATEGIES,
        role="place",
    )
    use_tpu: bool = _location(False, "Same as --strategy=tpu.", needs=(_TPU,))
    tpu_name: str | None = _location(None, "Name of the TPU. Omit it on a TPU VM.", needs=(_TPU,))
    tpu_zone: str | None = _location(None, "Its zone.", needs=("tpu_name",))
    gcp_project: str | None = _location(None, "Its project.", needs=("tpu_name",))


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(DeviceOptions):
    """The machines of a command that trains on several."""

    worker_hosts: str | None = _location(
        None,
        "host:port of every machine of --strategy=multi_worker, comma-separated and the same "
        "on each. Alternatively, set TF_CONFIG.",
        needs=("task_index", _SEVERAL),
    )
    task_index: int | None = _location(
        None,
        "Index of this machine in --worker_hosts. Worker 0 writes the files.",
        at_least=0,
        needs=("worker_hosts", _SEVERAL),
    )


@dataclass(frozen=True, kw_only=True)
class RunnerOptions(command.Options):
    """Where work in chunks runs, and whether its output may replace another one."""

    num_workers: int | None = _location(
        None,
        "Number of processes. Default: as many as save time.",
        **WORKERS,
        needs=("runner=local",),
    )
    runner: str = _location(
        "local",
        "Where the work runs: on this machine, or on a runner of Apache Beam.",
        choices=("local", *(f"{name}Runner" for name in _BEAM)),
    )
    beam_options: str | None = _location(
        None,
        "Further Beam options, such as '--project=P --region=R --temp_location=gs://...'.",
        instead_of=("runner=local",),
    )
    overwrite: bool = option(
        False,
        "Replace output that was created with other settings or from other input.",
        role="place",
    )
