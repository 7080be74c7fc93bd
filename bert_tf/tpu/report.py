"""The report of a TPU check: the compiler's figures for a step, and the time they imply."""

import textwrap
from dataclasses import dataclass

from bert_tf.tpu.batch_size import LargestBatch
from bert_tf.tpu.chips import Topology, estimate_step_time
from bert_tf.tpu.compiler import CompiledStep, DoesNotFit

_ASSUMPTIONS = (
    "Nothing ran on a TPU: the times follow from the published peak figures of the chip.",
    "Arithmetic runs at the peak rate while memory transfers run at full bandwidth.",
    "All bytes that operations read or write pass through the chip's main memory. In reality the "
    "compiler keeps many of them in fast on-chip memory, and also counts copies between the two. A "
    "real step is therefore likely to be faster than this, but never faster than its arithmetic.",
    "Each chip computes its share of the batch. The float32 gradients are summed once per step, in "
    "a ring, over one link in each dimension of the topology, without overlapping computation.",
    "The host keeps up: reading and decoding records takes no time.",
)


@dataclass(frozen=True)
class Subject:
    """What is compiled.

    Attributes:
        model: description of the model.
        precision: type of the activations.
        max_seq_length: tokens per sequence.
        max_predictions_per_seq: masked positions per sequence.
        batch_size: sequences per replica.
        gradient_bytes: size of the whole gradient.
        topology: the slice to compile for.
    """

    model: str
    precision: str
    max_seq_length: int
    max_predictions_per_seq: int
    batch_size: int
    gradient_bytes: int
    topology: Topology

    @property
    def replica(self) -> str:
        """What a replica runs on: a chip or a core."""
        return "chip" if self.topology.chip.replicas == 1 else "core"

    @property
    def memory(self) -> float:
        """Bytes of memory of a replica."""
        return self.topology.chip.hbm_bytes / self.topology.chip.replicas


def describe_subject(subject: Subject) -> str:
    """Describes the model, the batch and the TPU."""
    topology, chip = subject.topology, subject.topology.chip
    replicas = topology.num_replicas
    return _table(
        "TPU check",
        ("model", f"{subject.model}; {subject.precision}"),
        (
            "batch",
            f"{subject.batch_size * replicas} sequences of {subject.max_seq_length} tokens, "
            f"{subject.max_predictions_per_seq} predictions per sequence",
        ),
        (
            "slice",
            f"{topology.name}: {replicas} {subject.replica}{'s' * (replicas > 1)}, "
            f"{subject.batch_size} sequences per {subject.replica}",
        ),
        (
            "chip",
            f"TPU {topology.version}: {_bytes(chip.hbm_bytes)} of memory at "
            f"{chip.hbm_bandwidth / 1e9:,.0f} GB/s, {chip.peak_flops / 1e12:,.0f} TFLOP/s, "
            f"links of {chip.link_bandwidth / 1e9:,.0f} GB/s",
        ),
    )


def describe_step(subject: Subject, step: CompiledStep | DoesNotFit) -> str:
    """Describes the memory, the work and the estimated time of a step."""
    if isinstance(step, DoesNotFit):
        return f"Compiles for {subject.batch_size} sequences per {subject.replica}: no, it {step}"
    return "\n\n".join(
        (
            f"Compiles: yes, in {step.seconds:,.0f} s",
            _memory(subject, step),
            _work(subject, step),
            _time(subject, step),
        )
    )


def describe_largest(subject: Subject, largest: LargestBatch) -> str:
    """Describes the result of the search for the largest batch."""
    if not largest.step:
        return "Largest batch\n  none: not even one sequence fits; use a smaller model"
    rows = [
        (
            "size",
            f"{largest.size} sequences per {subject.replica}, "
            f"{largest.size * subject.topology.num_replicas} in total "
            f"(--train_batch_size={largest.size * subject.topology.num_replicas})",
        ),
        (
            "memory",
            f"{_bytes(largest.step.memory)}, {_share(largest.step.memory, subject.memory)}",
        ),
    ]
    if largest.bytes_per_sequence:
        rows.append(("growth", f"{_bytes(largest.bytes_per_sequence)} per additional sequence"))
    return _table("Largest batch that fits", *rows)


def _memory(subject: Subject, step: CompiledStep) -> str:
    return _table(
        f"Memory per {subject.replica}",
        ("arguments", _bytes(step.arguments), "weights, optimizer state, batch"),
        (
            "outputs",
            _bytes(step.outputs),
            f"new values, of which {_bytes(step.aliased)} replace the old ones in place",
        ),
        ("temporaries", _bytes(step.temporaries), "activations, gradients, workspace"),
        ("code", _bytes(step.code), "the program"),
        ("total", _bytes(step.memory), _share(step.memory, subject.memory)),
    )


def _work(subject: Subject, step: CompiledStep) -> str:
    table = _table(
        f"Work per {subject.replica} and step, as counted by the compiler",
        (
            "arithmetic",
            _scaled(step.flops, "FLOP", {"T": 1e12, "G": 1e9, "M": 1e6}),
            "floating-point operations",
        ),
        ("bytes accessed", _bytes(step.bytes_accessed), "read and written by all operations"),
    )
    if step.float64_op:
        table += (
            f"\n  WARNING: {step.float64_op} computes in float64, which a TPU emulates "
            "many times slower than float32"
        )
    return table


def _time(subject: Subject, step: CompiledStep) -> str:
    topology = subject.topology
    gradient = subject.gradient_bytes
    seconds = estimate_step_time(topology, step.flops, step.bytes_accessed, gradient)
    rate = subject.batch_size * topology.num_replicas / seconds.total
    table = _table(
        "Estimated time of a step",
        ("arithmetic", _seconds(seconds.compute), "at the chip's peak rate"),
        (
            "memory",
            _seconds(seconds.memory),
            "all bytes accessed, at the full memory bandwidth",
        ),
        (
            "all-reduce",
            _seconds(seconds.all_reduce),
            f"{_bytes(gradient)} of gradients summed over {topology.num_chips} chips"
            if topology.num_chips > 1
            else "nothing to sum on a single chip",
        ),
        ("step", _seconds(seconds.total), "the longer of the first two, plus the all-reduce"),
        ("throughput", f"{rate:,.0f} sequences/s", f"{rate / topology.num_chips:,.0f} per chip"),
        ("share of peak", f"{seconds.compute / seconds.total:.0%}", "arithmetic / step"),
    )
    notes = (
        textwrap.fill(note, 96, initial_indent="  - ", subsequent_indent="    ")
        for note in _ASSUMPTIONS
    )
    return "\n".join((table, "", "What this assumes", *notes))


def _table(title: str, *rows: tuple[str, ...]) -> str:
    """Formats a title and aligned rows: a name, then text, or a figure and its meaning."""
    names = max(len(row[0]) for row in rows)
    figures = max((len(row[1]) for row in rows if len(row) == 3), default=0)
    lines = [title]
    for name, value, *meaning in rows:
        line = f"  {name:{names}}  {value:>{figures}}"
        lines.append(f"{line}  {meaning[0]}" if meaning else line)
    return "\n".join(lines)


def _scaled(value: float, unit: str, prefixes: dict[str, float]) -> str:
    """Formats with the first prefix that leaves at least 1, or else the last one."""
    prefix = next((name for name, size in prefixes.items() if value >= size), list(prefixes)[-1])
    return f"{value / prefixes[prefix]:,.2f} {prefix}{unit}"


def _bytes(size: float) -> str:
    return _scaled(size, "B", {"G": 1e9, "M": 1e6, "k": 1e3})


def _seconds(seconds: float) -> str:
    return _scaled(seconds, "s", {"m": 1e-3, "µ": 1e-6})


def _share(size: float, whole: float) -> str:
    return f"{size / whole:.0%} of {_bytes(whole)}"
