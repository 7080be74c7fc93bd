"""The report of a device check: the compiler's figures for a step, and the time they imply."""

import textwrap
from dataclasses import dataclass

from bert_tf.base.progress import counted
from bert_tf.devices.compiler import CompiledStep, DoesNotFit
from bert_tf.devices.device_check_options import DeviceCheckOptions
from bert_tf.devices.topology import Topology, estimate_step_time

_ASSUMPTIONS = (
    "Nothing ran on the device: the times follow from the published peak figures of the chip.",
    "Arithmetic runs at the peak rate while memory transfers run at full bandwidth.",
    "All bytes that operations read or write pass through the chip's main memory. In reality the "
    "compiler keeps many of them in fast on-chip memory, and also counts copies between the two. A "
    "real step is therefore likely to be faster than this, but never faster than its arithmetic.",
    "Each chip computes its share of the batch. The float32 gradients are summed once per step, in "
    "a ring, over one link in each dimension of the topology, without overlapping computation.",
    "The host keeps up: it reads and decodes records and launches kernels in no time. In reality, "
    "each kernel of a GPU takes at least a few microseconds.",
)


@dataclass(frozen=True)
class StepSetup:
    """What is compiled; `peak_flops` are those of a replica, and `model` describes the model."""

    options: DeviceCheckOptions
    topology: Topology
    peak_flops: float
    model: str
    gradient_bytes: int

    @property
    def batch_size(self) -> int:
        """Sequences per replica."""
        return self.options.train_batch_size // self.topology.num_replicas


def describe_subject(subject: StepSetup) -> str:
    """Describes the model, the batch and the device."""
    options, topology, chip = subject.options, subject.topology, subject.topology.chip
    replicas, replica = topology.num_replicas, topology.replica
    batch = (
        f"{options.train_batch_size} sequences of {options.max_seq_length} tokens, "
        f"{options.max_predictions_per_seq} predictions per sequence"
    )
    if options.fill < 1:
        batch += f", {options.fill:.0%} of the positions computed"
    peak = chip.replicas * subject.peak_flops
    size = (
        f"{topology.name}: {counted(replicas, replica)}, "
        f"{subject.batch_size} sequences per {replica}"
    )
    figures = (
        f"{topology.version}: {_bytes(chip.memory)} of memory at {chip.bandwidth / 1e9:,.0f} GB/s, "
        f"{peak / 1e12:,.0f} TFLOP/s in {options.precision}, "
        f"links of {chip.link_bandwidth / 1e9:,.0f} GB/s"
    )
    model = f"{subject.model}; {options.precision}"
    return _table(
        "Device check", ("model", model), ("batch", batch), ("devices", size), ("chip", figures)
    )


def describe_step(subject: StepSetup, step: CompiledStep | DoesNotFit) -> str:
    """Describes the memory, the work and the estimated time of a step."""
    replica = subject.topology.replica
    if isinstance(step, DoesNotFit):
        return f"Compiles for {subject.batch_size} sequences per {replica}: no, it {step}"
    in_place = f"new values, of which {_bytes(step.aliased)} replace the old ones in place"
    flops = _scaled(step.flops, "FLOP", {"T": 1e12, "G": 1e9, "M": 1e6})
    memory = _table(
        f"Memory per {replica}",
        ("arguments", _bytes(step.arguments), "weights, optimizer state, batch"),
        ("outputs", _bytes(step.outputs), in_place),
        ("temporaries", _bytes(step.temporaries), "activations, gradients, workspace"),
        ("code", _bytes(step.code), "the program"),
        ("total", _bytes(step.memory), _share(step.memory, subject.topology)),
    )
    counts = [
        ("arithmetic", flops, "floating-point operations"),
        ("bytes accessed", _bytes(step.bytes_accessed), "read and written by all operations"),
    ]
    if step.kernels:
        counts.append(("kernels", f"{step.kernels:,}", "launched on the GPU one after the other"))
    work = _table(f"Work per {replica} and step, as counted by the compiler", *counts)
    return (
        f"Compiles: yes, in {step.seconds:,.0f} s\n\n{memory}\n\n{work}\n\n{_time(subject, step)}"
    )


def _time(subject: StepSetup, step: CompiledStep) -> str:
    chips, gradient = subject.topology.num_chips, subject.gradient_bytes
    compute, memory, all_reduce, total = estimate_step_time(
        subject.topology, subject.peak_flops, step.flops, step.bytes_accessed, gradient
    )
    rate = subject.options.train_batch_size / total
    summed = "nothing to sum on a single chip"
    if chips > 1:
        summed = f"{_bytes(gradient)} of gradients summed over {chips} chips"
    table = _table(
        "Estimated time of a step",
        ("arithmetic", _seconds(compute), "at the chip's peak rate"),
        ("memory", _seconds(memory), "all bytes accessed, at the full memory bandwidth"),
        ("all-reduce", _seconds(all_reduce), summed),
        ("step", _seconds(total), "the longer of the first two, plus the all-reduce"),
        ("throughput", f"{rate:,.0f} sequences/s", f"{rate / chips:,.0f} per chip"),
        ("share of peak", f"{compute / total:.0%}", "arithmetic / step"),
    )
    indents = dict(initial_indent="  - ", subsequent_indent="    ")
    notes = [textwrap.fill(note, 96, **indents) for note in _ASSUMPTIONS]
    return "\n".join([table, "", "What this assumes", *notes])


def describe_largest(topology: Topology, size: int, step: CompiledStep | None) -> str:
    """Describes the result of the search for the largest batch."""
    if not step:
        return "Largest batch\n  none: not even one sequence fits; use a smaller model"
    total = size * topology.num_replicas
    sequences = f"{size} sequences per {topology.replica}, {total} in total"
    return _table(
        "Largest batch that fits",
        ("size", f"{sequences} (--train_batch_size={total})"),
        ("memory", f"{_bytes(step.memory)}, {_share(step.memory, topology)}"),
    )


def _table(title: str, *rows: tuple[str, ...]) -> str:
    """Formats a title and aligned rows: a name, then text, or a figure and its meaning."""
    names = max(len(row[0]) for row in rows)
    figures = max((len(row[1]) for row in rows if len(row) == 3), default=0)
    lines = [title]
    for name, value, *meaning in rows:
        lines.append("  ".join([f"  {name:{names}}", f"{value:>{figures}}", *meaning]))
    return "\n".join(lines)


def _scaled(value: float, unit: str, prefixes: dict[str, float]) -> str:
    """Formats with the first prefix that leaves at least 1, or else the last one."""
    prefix = next((name for name, size in prefixes.items() if value >= size), list(prefixes)[-1])
    return f"{value / prefixes[prefix]:,.2f} {prefix}{unit}"


def _bytes(size: float) -> str:
    return _scaled(size, "B", {"G": 1e9, "M": 1e6, "k": 1e3})


def _seconds(seconds: float) -> str:
    return _scaled(seconds, "s", {"m": 1e-3, "µ": 1e-6})


def _share(size: float, topology: Topology) -> str:
    return f"{size / topology.replica_memory:.0%} of {_bytes(topology.replica_memory)}"
