"""Chooses the devices (CPU, GPUs, several machines or a TPU) and the precision."""

import contextlib
import functools
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.common_options import DeviceOptions
from bert_tf.base.progress import counted, say


def make_strategy(options: DeviceOptions) -> tf.distribute.Strategy:
    """Creates the `tf.distribute` strategy that the flags describe.

    "multi_worker" takes all GPUs, or else the CPU, of several machines; it must be chosen before
    any other use of TensorFlow. Raises a ValueError if there is no such device, or the workers are
    not described correctly.
    """
    name = "tpu" if options.use_tpu else options.strategy
    if options.worker_hosts or options.task_index is not None:
        _set_tf_config(options)
    if name == "multi_worker" or (name == "auto" and len(_workers()) > 1):
        return _multi_worker_strategy(tuple(_workers()))
    gpus = tf.config.list_logical_devices("GPU")
    if name == "auto":
        name = "tpu" if options.tpu_name else "gpu" if gpus else "cpu"
    if name == "tpu":
        return _tpu_strategy(options.tpu_name, options.tpu_zone, options.gcp_project)
    if name == "gpu" and not gpus:
        raise ValueError(
            "--strategy=gpu: TensorFlow finds no GPU here: check the driver and "
            "`pip install 'tensorflow[and-cuda]'`, or use --strategy=cpu"
        )
    if name == "cpu" or len(gpus) == 1:
        return tf.distribute.OneDeviceStrategy(gpus[0].name if name == "gpu" else "/cpu:0")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])


def _set_tf_config(options: DeviceOptions) -> None:
    """Describes the workers in TF_CONFIG, where TensorFlow looks for them."""
    index = options.task_index
    hosts = [host.strip() for host in options.worker_hosts.split(",")]
    if not _are_hosts(hosts) or index >= len(hosts):
        raise ValueError(
            f"--worker_hosts={options.worker_hosts} --task_index={index}: name the host:port of "
            "each worker once, and the place of this one in the list, counted from 0"
        )
    config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
    os.environ["TF_CONFIG"] = json.dumps(config)


def _are_hosts(hosts: Sequence[str]) -> bool:
    """Returns whether hosts have the form host:port, and none is named twice."""
    return all(re.fullmatch(r".+:\d+", x) for x in hosts) and len({*hosts}) == len(hosts)


def _workers() -> list[str]:
    """Returns the hosts that train according to TF_CONFIG, after checking it."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        jobs = {job: hosts for job, hosts in cluster.items() if job in ("chief", "worker")}
        workers = [host for hosts in jobs.values() for host in hosts]
        # A parameter server, for example, would train alone.
        kind, index = task.get("type"), task.get("index")
        fits = _are_hosts(workers) and (not cluster or index in range(len(jobs[kind])))
    except (ValueError, AttributeError, KeyError, TypeError):
        fits = False
    if not fits:
        raise ValueError(
            f"TF_CONFIG is {text!r}: it must look like "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, '
            "where the task is one of the workers, and each is named once"
        )
    return workers


# A second server, or a second start of a TPU, would end what the first one computes.
@functools.cache
def _multi_worker_strategy(workers: tuple[str, ...]) -> tf.distribute.Strategy:
    if not workers:
        raise ValueError(
            "--strategy=multi_worker needs --worker_hosts and --task_index, or TF_CONFIG with the "
            "workers"
        )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise ValueError(
            f"--strategy=multi_worker: the workers {', '.join(workers)} could not connect "
            f"({reason}): check that each of them is running and reachable under its name and port"
        ) from error


@functools.cache
def _tpu_strategy(
    tpu_name: str | None, zone: str | None, project: str | None
) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu_name or "local", zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        where = f"named {tpu_name}" if tpu_name else "on this machine"
        reason = textwrap.shorten(str(error), 120, placeholder=" ...")
        raise ValueError(
            f"--strategy=tpu: no TPU {where} ({reason}): on a TPU VM, install tensorflow-tpu "
            "instead of tensorflow; elsewhere, give --tpu_name, --tpu_zone and --gcp_project"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def device_type(strategy: tf.distribute.Strategy) -> str:
    """Returns "CPU", "GPU" or "TPU"."""
    return tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process, as the only or first worker, writes files and messages."""
    resolver = strategy.cluster_resolver
    if not has_several_workers(strategy):
        return True
    has_chief = "chief" in resolver.cluster_spec().jobs
    return resolver.task_type == ("chief" if has_chief else "worker") and resolver.task_id == 0


def has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def chief_say(strategy: tf.distribute.Strategy) -> Callable[[str], None]:
    """Returns `say` on the chief, and a function that prints nothing on other workers."""
    return say if is_chief(strategy) else lambda text: None


def values_of_workers(strategy: tf.distribute.Strategy, values: Sequence[int]) -> np.ndarray:
    """Returns the values of every replica, int64 [replicas, values].

    All workers get the same values and so can make the same decisions. It is also a barrier: every
    worker must call it at the same point.
    """
    if not has_several_workers(strategy):
        return np.array([values], np.int64)
    each = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([values], tf.int64)
    )
    return _gathered(strategy)(each).numpy()


@functools.cache
def _gathered(strategy: tf.distribute.Strategy):
    # In eager mode, every collective operation would start its own threads.
    return tf.function(lambda values: strategy.gather(values, axis=0))


@contextlib.contextmanager
def explain_lost_workers() -> Iterator[None]:
    """Turns TensorFlow's errors for a lost worker or TPU into an OSError that says what to do."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        raise OSError(
            "the connection to another machine was lost: run the same command again, on every "
            "worker, to resume from the last checkpoint"
        ) from error


def check_batch_size(
    strategy: tf.distribute.Strategy, flag: str, batch_size: int, parts: int = 1
) -> None:
    """Raises a ValueError if a global batch cannot be divided into equal parts."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * parts):
        times = f" times --gradient_accumulation_steps={parts}" if parts > 1 else ""
        count = counted(replicas, "replica")
        raise ValueError(
            f"--{flag}={batch_size} is not a multiple of the {count}{times}: use a multiple of "
            f"{replicas * parts}"
        )


def compiles(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether to compile the step with XLA, which pays off on GPUs; TPUs always do."""
    return device_type(strategy) == "GPU"


def set_precision(precision: str) -> None:
    """Sets the compute type of the layers created from now on, such as "bfloat16".

    Variables, normalization, softmax, losses and the optimizer stay in float32.
    """
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")
