"""The published figures of GPUs and TPUs, and the peak FLOP/s of any device."""

import os
import re
import time
from typing import NamedTuple

import tensorflow as tf

from bert_tf.base.published import read_published

_SIZES = (512, 1024, 2048, 4096, 8192)
_PRODUCTS, _REPEATS = 4, 3
_LONG_ENOUGH = 0.1  # seconds for `_PRODUCTS` products


def peak_flops(strategy: tf.distribute.Strategy, precision: str) -> float:
    """Returns the peak FLOP/s of all replicas together in matrix products.

    For known GPUs and TPUs, this is the published peak. For others, and for the CPU, it is measured
    on all replicas of this machine at once, which takes about two seconds.
    """
    chip = find_chip(_device_name(strategy))
    if chip and (peak := chip.replica_flops(precision)):
        return strategy.num_replicas_in_sync * peak
    return _measure(strategy, precision)


def _device_name(strategy) -> str:
    device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
    if device.device_type == "TPU":
        # TensorFlow does not know the type; TPU VM images and GKE set this variable.
        return f"TPU {os.environ.get('TPU_ACCELERATOR_TYPE', 'of unknown type')}"
    if device.device_type == "GPU":
        details = tf.config.experimental.get_device_details(
            tf.config.list_physical_devices("GPU")[0]
        )
        return details.get("device_name", "GPU of unknown type")
    return "the CPU"


def _measure(strategy, precision: str) -> float:
    """Returns the best FLOP/s of all replicas together, with any size of matrices."""
    best = 0.0
    for size in _SIZES:
        seconds = _seconds(strategy, precision, size)
        flops = strategy.num_replicas_in_sync * _PRODUCTS * 2 * size**3
        best = max(best, flops / seconds)
        if seconds > _LONG_ENOUGH:
            break
    return best


def _seconds(strategy, precision: str, size: int) -> float:
    """Returns the shortest of several times for `_PRODUCTS` products on all replicas at once."""

    def multiply(value):
        matrix = product = tf.fill([size, size], value)
        for _ in range(_PRODUCTS):
            product = tf.matmul(product, matrix)
        return tf.reduce_max(product)

    run = tf.function(lambda value: strategy.run(multiply, (value,)))
    value = tf.cast(1 / size, precision)  # keeps products finite
    times = []
    for _ in range(_REPEATS + 1):  # the first one traces
        started = time.perf_counter()
        for result in strategy.experimental_local_results(run(value)):
            result.numpy()
        times.append(time.perf_counter() - started)
    return min(times)


class Chip(NamedTuple):
    """Published figures of a GPU or a TPU chip. Rates are per second.

    Attributes:
        pattern: what its name contains.
        float16, bfloat16: TFLOP/s in dense products of matrices, accumulated in float32.
        tensor_float_32: the same for float32 matrices that are rounded to TensorFloat-32, or to
            bfloat16 on TPUs.
        float32: the same for float32 matrices. None where the hardware has no such products.
        memory: bytes of the main memory; 0 if unknown, as are then the following.
        bandwidth: bytes/s between memory and the cores.
        link_bandwidth: bytes/s of one link to a neighboring chip, in one direction.
        replicas: TensorFlow devices per chip: one per core on old TPUs, otherwise one.
    """

    pattern: str
    float32: float
    float16: float | None = None
    bfloat16: float | None = None
    tensor_float_32: float | None = None
    memory: float = 0.0
    bandwidth: float = 0.0
    link_bandwidth: float = 0.0
    replicas: int = 1

    def replica_flops(self, precision: str) -> float | None:
        """Returns the FLOP/s of one TensorFlow device; None if it does not have the precision."""
        peak = getattr(self, precision)
        if precision == "float32" and tf.config.experimental.tensor_float_32_execution_enabled():
            peak = self.tensor_float_32 or peak
        return peak and peak * 1e12 / self.replicas


_TABLES = read_published("chips")
GPUS = {name: Chip(**chip) for name, chip in _TABLES["gpus"].items()}
TPUS = {name: Chip(**chip) for name, chip in _TABLES["tpus"].items()}
_OTHER_GPUS = [Chip(**chip) for chip in _TABLES["other_gpus"].values()]


def find_chip(name: str) -> Chip | None:
    """Returns the chip of a device with this name, if known."""
    chips = (*GPUS.values(), *_OTHER_GPUS, *TPUS.values())
    return next((chip for chip in chips if re.search(chip.pattern, name)), None)
