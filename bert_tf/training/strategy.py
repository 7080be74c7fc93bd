"""Where to train: CPU, GPUs or a TPU."""

import keras
import tensorflow as tf


def make_strategy(
    name: str = "auto",
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
) -> tf.distribute.Strategy:
    """The `tf.distribute` strategy for a kind of device.

    Args:
        name: "cpu", "gpu" (every GPU of the machine), "tpu", or "auto": a TPU if `tpu_name` is
            given, else the GPUs if there are any, else the CPU.
        tpu_name, tpu_zone, gcp_project: which TPU; on a TPU virtual machine leave them out.

    Raises:
        ValueError: where there is no such device.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if name == "auto":
        name = "tpu" if tpu_name else "gpu" if gpus else "cpu"
    if name == "tpu":
        return _tpu_strategy(tpu_name, tpu_zone, gcp_project)
    if name == "gpu" and not gpus:
        raise ValueError(
            "--strategy=gpu: TensorFlow finds no GPU here; look at the driver and at "
            "`pip install 'tensorflow[and-cuda]'`, or use --strategy=cpu"
        )
    if name == "cpu" or len(gpus) == 1:
        return tf.distribute.OneDeviceStrategy(gpus[0].name if name == "gpu" else "/cpu:0")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])


def _tpu_strategy(tpu_name, tpu_zone, gcp_project) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu_name or "local", zone=tpu_zone, project=gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        where = f"named {tpu_name}" if tpu_name else "on this machine"
        reason = str(error).strip().splitlines()[0][:100]
        raise ValueError(
            f"--strategy=tpu: no TPU {where} ({reason}); on a TPU virtual machine install "
            "tensorflow-tpu in place of tensorflow, elsewhere give --tpu_name, --tpu_zone and "
            "--gcp_project"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def describe(strategy: tf.distribute.Strategy) -> str:
    """For example "2 GPU replicas"."""
    kind = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type
    count = strategy.num_replicas_in_sync
    return f"{count} {kind} replica{'s' if count > 1 else ''}"


def check_batch_size(strategy: tf.distribute.Strategy, flag: str, batch_size: int) -> None:
    """Raises a ValueError where a global batch cannot be shared out evenly among the replicas."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise ValueError(f"--{flag}={batch_size} is not a multiple of the {replicas} replicas")


def compiles(strategy: tf.distribute.Strategy) -> bool:
    """Whether the step should be compiled by XLA: it pays on GPUs, a TPU does it by itself."""
    return "GPU" in describe(strategy)


def set_precision(precision: str) -> None:
    """Sets the compute type of the layers made from now on: "float32" or "bfloat16".

    Variables, normalization, softmax, losses and the optimizer stay in float32.
    """
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")
