"""The peak FLOP/s of devices, for model FLOP utilization."""

import os
import re
import time

import tensorflow as tf

# FLOP/s of one device for dense matrix products: in float16 and bfloat16 with float32
# accumulation, in TensorFloat-32, and in float32. None if the hardware has no such products.
# Sources: NVIDIA's data sheets "Tesla V100" (2018), "T4" (2019), "A100" (2022), "A10" (2021),
# "L4" (2023), "L40S" (2023), "H100" and "H200" (2024), and "Blackwell architecture" (2024). Those
# of the Ada, Hopper and Blackwell generations state twice these figures, for sparse matrices.
# The first pattern found in a device's name applies.
_GPUS = (
    (r"V100.*PCIE", 112e12, None, 14e12),
    (r"V100", 125e12, None, 15.7e12),
    (r"\bT4\b", 65e12, None, 8.1e12),
    (r"A100", 312e12, 156e12, 19.5e12),
    (r"\bA10\b", 125e12, 62.5e12, 31.2e12),
    (r"\bL4\b", 121e12, 60e12, 30.3e12),
    (r"L40S", 362e12, 183e12, 91.6e12),
    (r"H100 PCIe", 756e12, 378e12, 51e12),
    (r"H100 NVL|H200 NVL", 835e12, 417e12, 60e12),
    (r"H100|H200", 989e12, 494e12, 67e12),
    (r"\bB200\b", 2250e12, 1100e12, 75e12),
    (r"\bGB200\b", 2500e12, 1250e12, 80e12),
)
_NO_BFLOAT16 = re.compile(r"V100|\bT4\b")
# bfloat16 FLOP/s of what TensorFlow calls one device: a core up to v3, a chip from v4. TPUs round
# float32 matrices to bfloat16.
# Source: Cloud TPU documentation, page of each version; for v3 and v4 also arXiv:2304.01433.
_TPUS = {
    "v2": 46e12 / 2,
    "v3": 123e12 / 2,
    "v4": 275e12,
    "v5litepod": 197e12,
    "v5p": 459e12,
    "v6e": 918e12,
}
_SIZES = (512, 1024, 2048, 4096, 8192)
_PRODUCTS, _REPEATS = 4, 3
_LONG_ENOUGH = 0.1  # seconds for `_PRODUCTS` products


def peak_flops(strategy: tf.distribute.Strategy, precision: str) -> float:
    """Returns the peak FLOP/s of all replicas together in matrix products.

    For known GPUs and TPUs, this is the published peak. For others, and for the CPU, it is measured
    on all replicas of this machine at once, which takes about two seconds.
    """
    if peak := published_flops(_device_name(strategy), precision):
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


def published_flops(name: str, precision: str) -> float | None:
    """Returns the published FLOP/s of one device of this name, if known."""
    if found := re.match(r"TPU (v\w+)-", name):
        return None if precision == "float16" else _TPUS.get(found[1])
    for pattern, half, tensor_float_32, single in _GPUS:
        if re.search(pattern, name):
            if precision == "bfloat16" and _NO_BFLOAT16.search(name):
                return None
            if precision != "float32":
                return half
            rounded = tf.config.experimental.tensor_float_32_execution_enabled()
            return tensor_float_32 if rounded and tensor_float_32 else single
    return None


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
