"""The flags that choose devices, shared by every command that trains."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bert_tf.choices import PRECISIONS, STRATEGIES
from tfrecords import command
from tfrecords.command import option, rare_option

if TYPE_CHECKING:
    import tensorflow as tf


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
    )
    use_tpu: bool = rare_option(False, "Same as --strategy=tpu.")
    tpu_name: str | None = rare_option(None, "Name of the TPU. Omit it on a TPU VM.")
    tpu_zone: str | None = rare_option(None, "Zone of --tpu_name.")
    gcp_project: str | None = rare_option(None, "Project of --tpu_name.")


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(DeviceOptions):
    """The machines of a command that trains on several."""

    worker_hosts: str | None = rare_option(
        None,
        "host:port of every machine of --strategy=multi_worker, comma-separated and the same "
        "on each. Alternatively, set TF_CONFIG.",
    )
    task_index: int | None = rare_option(
        None, "Index of this machine in --worker_hosts. Worker 0 writes the files.", at_least=0
    )


def make_strategy(options: DeviceOptions) -> "tf.distribute.Strategy":
    """Creates the `tf.distribute` strategy that the flags describe.

    Raises:
        ValueError: flags contradict each other or have no effect, or there is no such device.
    """
    from bert_tf.training import strategy

    name = options.strategy
    if options.use_tpu:
        if name not in ("auto", "tpu"):
            raise ValueError(f"--use_tpu and --strategy={name} contradict each other: omit one")
        name = "tpu"
    for given, flag, fitting in (
        (options.worker_hosts, "--worker_hosts", ("auto", "multi_worker")),
        (options.task_index is not None, "--task_index", ("auto", "multi_worker")),
        (options.tpu_name, "--tpu_name", ("auto", "tpu")),
    ):
        if given and name not in fitting:
            raise ValueError(f"{flag} and --strategy={name} contradict each other: omit one")
    for flag in ("tpu_zone", "gcp_project"):
        if getattr(options, flag) and not options.tpu_name:
            raise ValueError(f"--{flag} has no effect without --tpu_name: omit it")
    hosts = options.worker_hosts.split(",") if options.worker_hosts else ()
    return strategy.make_strategy(
        name,
        tpu_name=options.tpu_name,
        tpu_zone=options.tpu_zone,
        gcp_project=options.gcp_project,
        worker_hosts=[host.strip() for host in hosts],
        task_index=options.task_index,
    )
