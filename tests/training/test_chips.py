"""Published peaks of devices, and the measured peak of the CPU."""

import itertools
import types

import pytest
import tensorflow as tf

from bert_tf.training import chips
from bert_tf.training.chips import find_chip, peak_flops


@pytest.mark.parametrize(
    ("name", "half", "single"),
    [
        ("Tesla V100-SXM2-16GB", 125, 15.7),
        ("Tesla V100-PCIE-32GB", 112, 14),
        ("NVIDIA A100-SXM4-40GB", 312, 156),
        ("NVIDIA L4", 121, 60),
        ("NVIDIA L40S", 362, 183),
        ("NVIDIA H100 80GB HBM3", 989, 494),
        ("NVIDIA H100 NVL", 835, 417),
        ("NVIDIA GB200", 2500, 1250),
        ("TPU v2-8", 23, 23),
        ("TPU v3-32", 61.5, 61.5),
        ("TPU v4-8", 275, 275),
        ("TPU v5litepod-4", 197, 197),
        ("TPU v5p-8", 459, 459),
    ],
)
def test_published_peaks(monkeypatch, name, half, single):
    """Oracles: NVIDIA's data sheets, dense, and the Cloud TPU documentation, in TFLOP/s.

    TPUs have one device per core up to v3, and per chip from v4. Float32 is TensorFloat-32.
    """
    chip = find_chip(name)
    assert chip.replica_flops("bfloat16" if "TPU" in name else "float16") == half * 1e12
    assert chip.replica_flops("float32") == single * 1e12
    if "A100" in name:
        exact = tf.config.experimental.tensor_float_32_execution_enabled
        monkeypatch.setattr(tf.config.experimental, exact.__name__, lambda: False)
        assert chip.replica_flops("float32") == 19.5e12


@pytest.mark.parametrize(
    ("kind", "name", "precision", "tera"),
    [
        ("GPU", "NVIDIA L4", "float16", 4 * 121),
        ("TPU", "v3-32", "bfloat16", 4 * 61.5),
        ("GPU", "Tesla V100-SXM2-16GB", "bfloat16", 7),
        ("GPU", "NVIDIA X1", "float32", 7),
        ("TPU", "", "bfloat16", 7),
    ],
)
def test_the_peak_of_all_replicas(monkeypatch, kind, name, precision, tera):
    """Oracles: four times the published peak, or else a stand-in for the measurement."""
    monkeypatch.setattr(chips, "_measure", lambda strategy, precision: 7e12)
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", name)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"a {kind}"])
    details = {"a GPU": {"device_name": name}}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details.__getitem__)
    devices = [f"/job:worker/replica:0/task:0/device:{kind}:{index}" for index in range(4)]
    extended = types.SimpleNamespace(worker_devices=devices)
    strategy = types.SimpleNamespace(extended=extended, num_replicas_in_sync=4)
    assert peak_flops(strategy, precision) == tera * 1e12


def test_the_cpu_is_measured(monkeypatch):
    """Oracle: by hand; on this clock, four products of 512 x 512 matrices take a second.

    That is long enough for a measurement. Two replicas do twice as much in that second.
    """
    clock = itertools.count()
    monkeypatch.setattr(chips, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    expected = 4 * 2 * 512**3
    assert peak_flops(strategy, "float32") == expected
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert peak_flops(mirrored, "float32") == 2 * expected
