"""The published figures of GPUs and TPUs, and the peak FLOP/s of any device."""

import os
import re
import time
from typing import NamedTuple

import tensorflow as tf

_SIZES = (512, 1024, 2048, 4096, 8192)
_PRODUCTS, _REPEATS = 4, 3
_LONG_ENOUGH = 0.1  # seconds for `_PRODUCTS` products
_GIB = 2**30


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
        pattern: what its name contains: that which NVIDIA's driver gives a GPU; "TPU " and the
            accelerator type of a TPU.
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
    float16: float | None
    bfloat16: float | None
    tensor_float_32: float | None
    float32: float
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


# Sources: NVIDIA's data sheets "Tesla V100" (2018), "T4" (2019), "A100" (2022), "A10" (2021),
# "L4" (2023), "L40S" (2023), "H100" and "H200" (2024), and "Blackwell architecture" (2024). Those
# of the Ada, Hopper and Blackwell generations state twice these arithmetic figures, for sparse
# matrices. The memory is that which programs see; the link has half of the bandwidth of NVLink, or
# of PCI Express on T4 and L4, which counts both directions.
GPUS = {
    "v100": Chip(r"V100(?!.*PCIE)", 125, None, None, 15.7, 16.9e9, 900e9, 150e9),
    "t4": Chip(r"\bT4\b", 65, None, None, 8.1, 15.8e9, 320e9, 16e9),
    "a100": Chip(r"A100", 312, 312, 156, 19.5, 85.1e9, 2039e9, 300e9),
    "l4": Chip(r"\bL4\b", 121, 121, 60, 30.3, 23.6e9, 300e9, 32e9),
    "h100": Chip(r"H100(?! PCIe| NVL)", 989, 989, 494, 67, 85.0e9, 3352e9, 450e9),
    "h200": Chip(r"H200(?! NVL)", 989, 989, 494, 67, 151.4e9, 4800e9, 450e9),
}
_OTHER_GPUS = (
    Chip(r"V100.*PCIE", 112, None, None, 14),
    Chip(r"\bA10\b", 125, 125, 62.5, 31.2),
    Chip(r"L40S", 362, 362, 183, 91.6),
    Chip(r"H100 PCIe", 756, 756, 378, 51),
    Chip(r"H100 NVL|H200 NVL", 835, 835, 417, 60),
    Chip(r"\bB200\b", 2250, 2250, 1100, 75),
    Chip(r"\bGB200\b", 2500, 2500, 1250, 80),
)
# Sources: the Cloud TPU documentation (cloud.google.com/tpu/docs), one page per version, whose ICI
# figures add up both directions of all links: 4 links (v5e, v6e) or 6 (v5p). v2: The Design Process
# for Google's Training Chips (IEEE Micro 41, 2021). v3 and v4: TPU v4 (arXiv:2304.01433) table 4.
TPUS = {
    "v2": Chip("TPU v2-", None, 46, 46, 46, 16 * _GIB, 700e9, 62e9, replicas=2),
    "v3": Chip("TPU v3-", None, 123, 123, 123, 32 * _GIB, 900e9, 70e9, replicas=2),
    "v4": Chip("TPU v4-", None, 275, 275, 275, 32 * _GIB, 1200e9, 50e9),
    "v5e": Chip("TPU v5litepod-", None, 197, 197, 197, 16 * _GIB, 819e9, 400e9 / 4 / 2),
    "v5p": Chip("TPU v5p-", None, 459, 459, 459, 95 * _GIB, 2765e9, 1200e9 / 6 / 2),
    "v6e": Chip("TPU v6e-", None, 918, 918, 918, 32 * _GIB, 1638e9, 800e9 / 4 / 2),
}


def find_chip(name: str) -> Chip | None:
    """Returns the chip of a device with this name, if known."""
    chips = (*GPUS.values(), *_OTHER_GPUS, *TPUS.values())
    return next((chip for chip in chips if re.search(chip.pattern, name)), None)
