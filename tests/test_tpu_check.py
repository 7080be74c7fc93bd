"""The TPU check as a command: its report and its errors."""

import dataclasses
import re
import sys

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.tpu import compiler as tpu_compiler
from bert_tf.tpu.compiler import CompiledStep, DoesNotFit
from bert_tf.tpu_check import Options, run

SMALL = BertConfig(40, 16, 1, 2, 32, max_position_embeddings=32)
GB = 10**9


class FakeCompiler:
    """A compiler that reports 2 GB for a step, and 0.1 GB for every sequence."""

    def __init__(self, topology):
        self.topology = topology

    def compile(self, step, batch):
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
        "topology": "v5e:2x2",
    }


@pytest.fixture
def fake_compiler(monkeypatch):
    monkeypatch.setattr("bert_tf.tpu.check.TpuCompiler", FakeCompiler)


def test_reports_memory_work_and_time(flags, fake_compiler, capsys):
    """Oracle: figures worked out by hand from those of `FakeCompiler` and of a v5e."""
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
        "growth 100.00 MB per additional sequence",
    ):
        assert line in re.sub(" +", " ", report), line
    assert re.search(r"\n\[ *\d+ s\] 8 sequences per chip: fits, 2.80 GB\n", report)


@pytest.mark.slow
def test_skipping_padding(flags, fake_compiler, monkeypatch, capsys):
    """Oracle: XLA's compiler for the CPU, which leaves no branch in the step that is timed."""
    branches = []

    def compile(compiler, step, batch, original=FakeCompiler.compile):
        text = tf.function(step, jit_compile=True).experimental_get_compiler_ir(batch)
        branches.append(text(stage="optimized_hlo").count(" conditional("))
        work = 819e9 if len(branches) == 1 else 819e8
        return dataclasses.replace(original(compiler, step, batch), bytes_accessed=work)

    monkeypatch.setattr(FakeCompiler, "compile", compile)
    run(Options(**flags, fill=0.5, find_largest_batch=False))
    assert branches == [1, 0]
    report = re.sub(" +", " ", capsys.readouterr().out)
    assert "3 predictions per sequence, 50% of the places computed" in report
    assert "bytes accessed 81.90 GB" in report and "total 2.80 GB" in report


def test_a_batch_that_does_not_fit_is_an_error_after_the_report(flags, fake_compiler, capsys):
    """Oracle: the limit of `FakeCompiler`, 120 sequences per chip."""
    with pytest.raises(ValueError, match=r"--train_batch_size=4096 does not fit on v5e:2x2"):
        run(Options(**flags | {"train_batch_size": 4096}))
    report = capsys.readouterr().out
    assert "sequences per chip: no, it needs 104.40 GB, but 14.00 GB are free" in report
    assert "--train_batch_size=480" in report


def test_without_the_search_compiles_once(flags, fake_compiler, monkeypatch, capsys):
    """Oracle: XLA itself, which compiles the real program and raises for unsupported operations."""
    programs = []

    def compile(compiler, step, batch, original=FakeCompiler.compile):
        programs.append(tpu_compiler.step_to_hlo(step, batch))
        return original(compiler, step, batch)

    monkeypatch.setattr(FakeCompiler, "compile", compile)
    run(Options(**flags, find_largest_batch=False))
    assert len(programs) == 1
    assert b"rng-bit-generator" in programs[0]  # dropout
    assert "Largest" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"preset": "base"}, "give either --bert_config_file or --preset"),
        ({"bert_config_file": None}, "give either --bert_config_file or --preset"),
        ({"bert_config_file": None, "preset": "huge"}, "no preset 'huge': choose one of tiny"),
        ({"topology": "v5litepod-4"}, "unknown topology 'v5litepod-4': give a version"),
        ({"train_batch_size": 30}, "--train_batch_size=30 is not a multiple of the 4 replicas"),
        ({"max_seq_length": 512}, "max_seq_length 512 is more than .* 32 of"),
    ],
)
def test_flags_that_do_not_agree_are_errors(flags, changed, message):
    """Oracle: the message names flag and value. It does not need the compiler."""
    with pytest.raises(ValueError, match=message):
        run(Options(**flags | changed))


def test_the_error_of_a_missing_extra_names_it(flags, monkeypatch):
    """Oracle: the name of the extra in setup.cfg."""
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(ValueError, match=r"pip install 'jax>=0.10.2' 'libtpu>=0.0.52'"):
        run(Options(**flags))


@pytest.mark.slow
def test_the_real_compiler_accepts_the_step(flags, capsys):
    """Oracle: the arguments are three float32 numbers per parameter, and a small batch."""
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    sizes = dict(vocab_size=4096, hidden_size=128, intermediate_size=512)  # fill the TPU's tiles
    config = dataclasses.replace(SMALL, **sizes)
    config.to_json_file(flags["bert_config_file"])
    run(Options(**flags, find_largest_batch=False))
    report = capsys.readouterr().out
    parameters = int(re.search(r"([\d,]+) parameters", report)[1].replace(",", ""))
    found = float(re.search(r"arguments +([\d.]+) MB", report)[1]) * 1e6
    assert found == pytest.approx(12 * parameters, rel=0.05)
