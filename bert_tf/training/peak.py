"""The peak FLOP/s of devices, for model FLOP utilization."""

import os
import time

import tensorflow as tf

from bert_tf.training.chips import find_chip

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
