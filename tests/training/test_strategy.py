"""Strategies: messages name what is missing or wrong."""

import json

import pytest
import tensorflow as tf
from support import one_device

from bert_tf.flags import WorkerOptions
from bert_tf.training.strategy import (
    check_batch_size,
    describe_devices,
    is_chief,
    make_strategy,
    values_of_workers,
)


def test_missing_devices_are_named():
    for name, message in (("gpu", "TensorFlow finds no GPU here"), ("tpu", "no TPU on this")):
        with pytest.raises(ValueError, match=f"--strategy={name}: {message}"):
            make_strategy(WorkerOptions(strategy=name))
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert describe_devices(mirrored) == "2 CPU replicas"
    with pytest.raises(ValueError, match="--train_batch_size=7 is not a multiple of the 2 repl"):
        check_batch_size(mirrored, "train_batch_size", 7)
    one = "--train_batch_size=7 is not a multiple of the 1 replica times --grad.*=2: use a mul.* 2"
    with pytest.raises(ValueError, match=one):
        check_batch_size(one_device(), "train_batch_size", 7, parts=2)


def test_one_process_is_its_own_chief():
    strategy = one_device()
    assert is_chief(strategy)
    assert values_of_workers(strategy, [2**24 + 1, 0]).tolist() == [[2**24 + 1, 0]]


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
        assert make_strategy(options) is make_strategy(options)
    assert started == ["x", "workers"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"worker_hosts": "a:1,b:1"}, "--worker_hosts and --task_index need each other"),
        ({"task_index": 0}, "--worker_hosts and --task_index need each other"),
        ({"worker_hosts": "a:1,b:1", "task_index": 2}, "--worker_hosts=a:1,b:1 --task_index=2: n"),
        ({"worker_hosts": "a,b:1", "task_index": 0}, "--worker_hosts=a,b:1 .* name the host:port"),
        ({"worker_hosts": "a:1, a:1", "task_index": 0}, "--worker_hosts=a:1, a:1 .* each .* once"),
        ({}, "--strategy=multi_worker needs --worker_hosts and --task_index, or TF_CONFIG"),
    ],
)
def test_wrong_worker_flags_are_named(monkeypatch, arguments, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=message):
        make_strategy(WorkerOptions(strategy="multi_worker", **arguments))


@pytest.mark.parametrize("value", ["", "{}"])
def test_tf_config_without_workers_names_none(monkeypatch, value):
    monkeypatch.setenv("TF_CONFIG", value)
    assert make_strategy(WorkerOptions(strategy="auto")).num_replicas_in_sync == 1
    with pytest.raises(ValueError, match="needs --worker_hosts .* or TF_CONFIG with the workers"):
        make_strategy(WorkerOptions(strategy="multi_worker"))


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
            make_strategy(WorkerOptions(strategy=strategy))
