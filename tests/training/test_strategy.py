"""Strategies and peaks of devices: messages name what is missing; published and measured peaks."""

import itertools
import json
import types

import pytest
import tensorflow as tf
from support import one_device, one_line

from bert_tf.base.common_options import WorkerOptions
from bert_tf.sessions.session import training_devices
from bert_tf.training import chips
from bert_tf.training import strategy as strategies
from bert_tf.training.chips import find_chip, peak_flops


def test_missing_devices_are_named():
    for name, message in (("gpu", "TensorFlow finds no GPU here"), ("tpu", "no TPU on this")):
        with pytest.raises(ValueError, match=f"--strategy={name}: {message}"):
            strategies.make_strategy(WorkerOptions(strategy=name))
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with pytest.raises(ValueError, match="--train_batch_size=7 is not a multiple of the 2 repl"):
        strategies.check_batch_size(mirrored, "train_batch_size", 7)
    with mirrored.scope(), one_line("a strategy is in scope here: leave its scope; --strategy ch"):
        with training_devices(WorkerOptions(), writes=False):
            pass
    one = "--train_batch_size=7 is not a multiple of the 1 replica times --grad.*=2: use a mul.* 2"
    with pytest.raises(ValueError, match=one):
        strategies.check_batch_size(one_device(), "train_batch_size", 7, parts=2)


def test_one_process_is_its_own_chief():
    strategy = one_device()
    assert strategies.is_chief(strategy)
    assert strategies.values_of_workers(strategy, [2**24 + 1, 0]).tolist() == [[2**24 + 1, 0]]


def test_a_second_call_does_not_start_the_devices_again(monkeypatch):
    """Oracle: the TPUs that TensorFlow initializes, and the servers that it starts."""
    started = []
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda resolver: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", started.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: object())
    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", lambda name, **_: name)
    workers = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    server = "MultiWorkerMirroredStrategy"
    monkeypatch.setattr(tf.distribute, server, lambda: started.append("workers") or object())
    workers = WorkerOptions(strategy="multi_worker")
    for options in (WorkerOptions(strategy="tpu", tpu_name="x"), workers):
        assert strategies.make_strategy(options) is strategies.make_strategy(options)
    assert started == ["x", "workers"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"worker_hosts": "a:1,b:1"}, "--worker_hosts has no effect without --task_index"),
        ({"task_index": 0}, "--task_index has no effect without --worker_hosts"),
        ({"worker_hosts": "a:1,b:1", "task_index": 2}, "--worker_hosts=a:1,b:1 --task_index=2: n"),
        ({"worker_hosts": "a,b:1", "task_index": 0}, "--worker_hosts=a,b:1 .* name the host:port"),
        ({"worker_hosts": "a:1, a:1", "task_index": 0}, "--worker_hosts=a:1, a:1 .* each .* once"),
        ({}, "--strategy=multi_worker needs --worker_hosts and --task_index, or TF_CONFIG"),
    ],
)
def test_wrong_worker_flags_are_named(monkeypatch, arguments, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=message):
        strategies.make_strategy(WorkerOptions(strategy="multi_worker", **arguments))


@pytest.mark.parametrize(
    ("flags", "kind"),
    [({"use_tpu": True}, "tpu"), ({"tpu_name": "x"}, "tpu")]
    + [({"worker_hosts": "a:1", "task_index": 0}, "multi_worker")],
)
def test_flags_of_other_devices_are_named(flags, kind):
    """Oracle: the declared relation."""
    needed = f"--{[*flags][0]} has no effect without --strategy=auto or --strategy={kind}"
    with pytest.raises(ValueError, match=needed):
        WorkerOptions(strategy="cpu", **flags)
    WorkerOptions(strategy=kind, **flags)


@pytest.mark.parametrize("value", ["", "{}"])
def test_tf_config_without_workers_names_none(monkeypatch, value):
    monkeypatch.setenv("TF_CONFIG", value)
    assert strategies.make_strategy(WorkerOptions(strategy="auto")).num_replicas_in_sync == 1
    with pytest.raises(ValueError, match="needs --worker_hosts .* or TF_CONFIG with the workers"):
        strategies.make_strategy(WorkerOptions(strategy="multi_worker"))


def described(worker, **task) -> str:
    return json.dumps({"cluster": {"worker": worker, "ps": ["p:1"]}, "task": task})


@pytest.mark.parametrize(
    "value",
    [
        *("{", "[]", "3", '{"cluster": ["a:1"]}', '{"task": [1]}'),
        *(described(hosts, type="worker", index=0) for hosts in ("a:1", 1, {"0": "a:1"})),
        *(described(hosts, type="worker", index=0) for hosts in ([], ["a:1", 3], ["a:1", "a:1"])),
        *(described(["a:1", "b:1"], type="worker", index=index) for index in (2, -1, "x")),
        *(described(["a:1"], type=kind, index=0) for kind in ([], "chief", "ps")),
        described(["a:1"]),
    ],
)
def test_a_wrong_tf_config_is_shown(monkeypatch, value):
    """Oracle: the form that TensorFlow's documentation gives; "ps" would train alone."""
    monkeypatch.setenv("TF_CONFIG", value)
    for strategy in ("auto", "multi_worker"):
        with pytest.raises(ValueError, match="TF_CONFIG is .*: it must look like"):
            strategies.make_strategy(WorkerOptions(strategy=strategy))


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
    """Oracle: by hand; on this clock, four products of 512 x 512 matrices take a second."""
    clock = itertools.count()
    monkeypatch.setattr(chips, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    expected = 4 * 2 * 512**3
    assert peak_flops(strategy, "float32") == expected
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert peak_flops(mirrored, "float32") == 2 * expected
