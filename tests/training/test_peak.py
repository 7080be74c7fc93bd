"""Published peaks of devices, and the measured peak of the CPU."""

import itertools
import types

import pytest
import tensorflow as tf

from bert_tf.training import peak
from bert_tf.training.peak import peak_flops


def fake_strategy(kind: str, replicas: int = 1):
    """A strategy with `replicas` devices that do not exist."""
    devices = [f"/job:worker/replica:0/task:0/device:{kind}:{index}" for index in range(replicas)]
    return types.SimpleNamespace(
        extended=types.SimpleNamespace(worker_devices=devices), num_replicas_in_sync=replicas
    )


def gpu_peak(monkeypatch, name: str, precision: str, replicas: int = 1):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"a {kind}"])
    details = {"a GPU": {"device_name": name, "compute_capability": (8, 0)}}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details.__getitem__)
    return peak_flops(fake_strategy("GPU", replicas), precision)


@pytest.mark.parametrize(
    ("name", "half", "single"),
    [
        ("Tesla V100-SXM2-16GB", 125, 15.7),
        ("Tesla V100-PCIE-32GB", 112, 14),
        ("NVIDIA A100-SXM4-40GB", 312, 156),
        ("NVIDIA L4", 121, 60),
        ("NVIDIA L40S", 362, 183),
        ("NVIDIA GB200", 2500, 1250),
    ],
)
def test_published_peaks_of_gpus(monkeypatch, name, half, single):
    """Oracle: NVIDIA's data sheets, dense, in TFLOP/s; float32 products use TensorFloat-32."""
    assert gpu_peak(monkeypatch, name, "float32") == single * 1e12
    assert gpu_peak(monkeypatch, name, "float16", replicas=8) == 8 * half * 1e12
    if name == "NVIDIA A100-SXM4-40GB":
        exact = tf.config.experimental.tensor_float_32_execution_enabled
        monkeypatch.setattr(tf.config.experimental, exact.__name__, lambda: False)
        assert gpu_peak(monkeypatch, name, "float32") == 19.5e12


def test_unpublished_peaks_are_measured(monkeypatch):
    """Oracle: a stand-in for the measurement."""
    monkeypatch.setattr(peak, "_measure", lambda strategy, precision: 7e12)
    for name, precision in (("Tesla V100-SXM2-16GB", "bfloat16"), ("NVIDIA X1", "float32")):
        assert gpu_peak(monkeypatch, name, precision) == 7e12
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    assert peak_flops(fake_strategy("TPU"), "bfloat16") == 7e12


@pytest.mark.parametrize(
    ("kind", "tera"),
    [("v2-8", 23), ("v3-32", 61.5), ("v4-8", 275), ("v5litepod-4", 197), ("v5p-8", 459)],
)
def test_published_peaks_of_tpus(monkeypatch, kind, tera):
    """Oracle: the Cloud TPU documentation, bfloat16, per core up to v3 and per chip from v4."""
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", kind)
    for precision in ("bfloat16", "float32"):
        assert peak_flops(fake_strategy("TPU", 4), precision) == 4 * tera * 1e12


def test_the_cpu_is_measured(monkeypatch):
    """Oracle: by hand; on this clock, four products of 512 x 512 matrices take a second.

    That is long enough for a measurement. Two replicas do twice as much in that second.
    """
    clock = itertools.count()
    monkeypatch.setattr(peak, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    expected = 4 * 2 * 512**3
    assert peak_flops(strategy, "float32") == expected
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert peak_flops(mirrored, "float32") == 2 * expected
