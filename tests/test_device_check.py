"""The device check as a command: its report and its errors."""

import dataclasses
import re
import sys

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.device_check import Options, run
from bert_tf.devices.compiler import CompiledStep, DoesNotFit, step_to_hlo

SMALL = BertConfig(40, 16, 1, 2, 32, max_position_embeddings=32)
GB = 10**9


def compile_fake(target, step, batch) -> CompiledStep:
    """Reports 2 GB for a step, and 0.1 GB for every sequence."""
    size = len(batch["example_weights"])
    if size > 120:
        raise DoesNotFit(2 * GB + size * GB // 10, 14 * GB)
    return CompiledStep(
        seconds=61.4,
        arguments=3 * GB // 2,
        outputs=3 * GB // 2 + 1000,
        aliased=3 * GB // 2,
        temporaries=GB // 4 + size * GB // 10,
        code=GB // 4,
        flops=197e12 * 0.05,
        bytes_accessed=819e9 * 0.1,
        kernels=1234 if target == "GPU" else None,
    )


@pytest.fixture
def flags(tmp_path) -> dict:
    path = str(tmp_path / "bert_config.json")
    SMALL.to_json_file(path)
    return {
        "bert_config_file": path,
        "max_seq_length": 16,
        "max_predictions_per_seq": 3,
        "train_batch_size": 32,
        "device": "v5e:2x2",
    }


@pytest.fixture
def fake_compiler(monkeypatch):
    monkeypatch.setattr("bert_tf.devices.checking.TpuTarget", lambda topology: "TPU")
    monkeypatch.setattr("bert_tf.devices.checking.GpuTarget", lambda topology: "GPU")
    monkeypatch.setattr("bert_tf.devices.checking.compile_step", compile_fake)


def test_reports_memory_work_and_time(flags, fake_compiler, capsys):
    """Oracle: figures worked out by hand from those of `compile_fake` and of a v5e."""
    run(Options(**flags))
    report = capsys.readouterr().out
    for line in (
        "4 chips, 8 sequences per chip",
        "Compiles: yes, in 61 s",
        "arguments 1.50 GB weights",
        "temporaries 1.05 GB activations",
        "total 2.80 GB 16% of 17.18 GB",
        "arithmetic 9.85 TFLOP",
        "bytes accessed 81.90 GB",
        "arithmetic 50.00 ms",
        "memory 100.00 ms",
        "throughput 320 sequences/s 80 per chip",
        "share of peak 50%",
        "size 120 sequences per chip, 480 in total (--train_batch_size=480)",
    ):
        assert line in re.sub(" +", " ", report), line
    assert re.search(r"\n\[ *\d+ s\] 8 sequences per chip: fits, 2.80 GB\n", report)


def test_reports_the_kernels_of_gpus(flags, fake_compiler, capsys):
    """Oracle: figures worked out by hand from those of `compile_fake` and of an A100."""
    run(Options(**flags | {"device": "a100:2"}, find_largest_batch=False))
    report = re.sub(" +", " ", capsys.readouterr().out)
    for line in (
        "a100:2: 2 GPUs, 16 sequences per GPU",
        "a100: 85.10 GB of memory at 2,039 GB/s, 312 TFLOP/s in bfloat16",
        "kernels 1,234",
        "arithmetic 31.57 ms",
        "memory 40.17 ms",
    ):
        assert line in report, line


@pytest.mark.slow
def test_skipping_padding(flags, fake_compiler, monkeypatch, capsys):
    """Oracle: the graphs; compilers drop the branch whose condition is constant, for the times."""
    branches = []

    def compile(target, step, batch):
        operations = tf.function(step).get_concrete_function(batch).graph.get_operations()
        conditions = [x.inputs[0] for x in operations if x.type in ("If", "StatelessIf")]
        branches.extend(map(tf.get_static_value, conditions))
        work, kernels = (819e9, 5678) if len(branches) == 1 else (819e8, 1234)
        compiled = compile_fake(target, step, batch)
        return dataclasses.replace(compiled, bytes_accessed=work, kernels=kernels)

    monkeypatch.setattr("bert_tf.devices.checking.compile_step", compile)
    run(Options(**flags, fill=0.5, find_largest_batch=False))
    assert branches == [None, True]
    report = re.sub(" +", " ", capsys.readouterr().out)
    assert "3 predictions per sequence, 50% of the positions computed" in report
    assert "bytes accessed 81.90 GB" in report and "total 2.80 GB" in report
    assert "kernels 1,234" in report


def test_a_batch_that_does_not_fit_is_an_error_after_the_report(flags, fake_compiler, capsys):
    """Oracle: the limit of `compile_fake`, 120 sequences per chip."""
    with pytest.raises(ValueError, match=r"--train_batch_size=4096 does not fit on v5e:2x2"):
        run(Options(**flags | {"train_batch_size": 4096}))
    report = capsys.readouterr().out
    assert "sequences per chip: no, it needs 104.40 GB, but 14.00 GB are free" in report
    assert "--train_batch_size=480" in report


@pytest.mark.parametrize("device", ["v5e:1x1", "t4"])
def test_without_the_search_compiles_once(flags, device, fake_compiler, monkeypatch, capsys):
    """Oracle: XLA itself, which compiles the real program and raises for unsupported operations."""
    programs = []

    def compile(target, step, batch):
        programs.append(step_to_hlo(step, batch))
        return compile_fake(target, step, batch)

    monkeypatch.setattr("bert_tf.devices.checking.compile_step", compile)
    flags |= {"device": device, "precision": "float32"}
    run(Options(**flags, find_largest_batch=False))
    assert len(programs) == 1
    # A GPU draws only the seeds of the step; dropout hashes them.
    assert (programs[0].count(b"rng-bit-generator") > 2) == (device != "t4")
    assert "Largest" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"preset": "base"}, "--preset and --bert_config_file exclude each other"),
        ({"bert_config_file": None}, "give either --bert_config_file or --preset"),
        ({"device": "t4"}, "--precision=bfloat16 is not for t4: use float16 or float32"),
        ({"precision": "float16"}, "--precision=float16 is not for v5e:2x2: use bfloat16 or"),
        ({"train_batch_size": 30}, "--train_batch_size=30 is not a multiple of the 4 replicas"),
        ({"max_seq_length": 512}, "max_seq_length 512 is more than .* 32: use"),
    ],
)
def test_flags_that_do_not_agree_are_errors(flags, changed, message):
    """Oracle: the message names flag and value. It does not need the compiler."""
    with pytest.raises(ValueError, match=message):
        run(Options(**flags | changed))


@pytest.mark.parametrize(
    ("device", "package", "install"),
    [
        ("v5e:2x2", "libtpu", "'libtpu>=0.0.52'"),
        ("h100", "jax_plugins.xla_cuda12", "'jax-cuda12-plugin>=0.10.2' nvidia-cuda-nvcc-cu12"),
    ],
)
def test_the_error_of_a_missing_extra_names_it(flags, monkeypatch, device, package, install):
    """Oracle: the packages of the extra in setup.cfg."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"pip install 'jax>=0.10.2' {install}"):
        run(Options(**flags | {"device": device}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "precision", "package", "extra"),
    [
        ("v5e:2x2", "bfloat16", "libtpu", "tpu-check"),
        ("t4", "float16", "jax_plugins.xla_cuda12", "gpu-check"),
    ],
)
def test_the_real_compiler_accepts_the_step(flags, capsys, device, precision, package, extra):
    """Oracle: the arguments are three float32 numbers per parameter, and a small batch."""
    for name in ("jax", package):
        pytest.importorskip(name, reason=f"needs the extra {extra}")
    sizes = dict(vocab_size=4096, hidden_size=128, intermediate_size=512)  # fill the TPU's tiles
    config = dataclasses.replace(SMALL, **sizes)
    config.to_json_file(flags["bert_config_file"])
    flags |= {"device": device, "precision": precision}
    run(Options(**flags, find_largest_batch=False))
    report = capsys.readouterr().out
    parameters = int(re.search(r"([\d,]+) parameters", report)[1].replace(",", ""))
    found = float(re.search(r"arguments +([\d.]+) MB", report)[1]) * 1e6
    assert found == pytest.approx(12 * parameters, rel=0.05)
