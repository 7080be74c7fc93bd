"""What the TPU compiler tells of a training step, in words and with what follows from it."""

import textwrap
from dataclasses import dataclass

from bert_tf.tpu.batch_size import LargestBatch
from bert_tf.tpu.chips import Topology, estimate_step_time
from bert_tf.tpu.compiler import CompiledStep, DoesNotFit

_ASSUMPTIONS = (
    "Nothing ran on a TPU: these times follow from the chip's published peak figures.",
    "Matrix products run at the peak rate, and memory at its full bandwidth, at the same time.",
    "Every byte that an operation reads or writes comes from the chip's main memory. The compiler "
    "keeps many of them in fast memory inside the chip instead, and counts copies between the two "
    "as well: a real step is likely to be faster than this, but never faster than its arithmetic.",
    "Each chip takes its share of the batch; the gradients, in float32, are summed once a step, "
    "around a ring, over one link in each dimension of the topology, while nothing else is done.",
    "The host keeps up: reading and decoding records takes no time.",
)


@dataclass(frozen=True)
class Subject:
    """What a report is about.

    Attributes:
        model: in words.
        precision: of the activations.
        max_seq_length, max_predictions_per_seq: of the sequences.
        batch_size: sequences of one replica.
        gradient_bytes: of the whole gradient.
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
        return "chip" if self.topology.chip.replicas == 1 else "core"

    @property
    def memory(self) -> float:
        """Bytes of a replica."""
        return self.topology.chip.hbm_bytes / self.topology.chip.replicas


def describe_subject(subject: Subject) -> str:
    """What is to be compiled, and for what."""
    topology, chip = subject.topology, subject.topology.chip
    replicas = topology.num_replicas
    return _table(
        "TPU check",
        ("model", f"{subject.model}; {subject.precision}"),
        (
            "batch",
            f"{subject.batch_size * replicas} sequences of {subject.max_seq_length} tokens, "
            f"{subject.max_predictions_per_seq} predictions in each",
        ),
        (
            "slice",
            f"{topology.name}: {replicas} {subject.replica}{'s' * (replicas > 1)}, each with "
            f"{subject.batch_size} of the sequences",
        ),
        (
            "chip",
            f"TPU {topology.version}: {_bytes(chip.hbm_bytes)} of memory at "
            f"{chip.hbm_bandwidth / 1e9:,.0f} GB/s, {chip.peak_flops / 1e12:,.0f} TFLOP/s, "
            f"links of {chip.link_bandwidth / 1e9:,.0f} GB/s",
        ),
    )


def describe_step(subject: Subject, step: CompiledStep | DoesNotFit) -> str:
    """The compiler's figures for a step, and the time that follows from them."""
    if isinstance(step, DoesNotFit):
        return f"Compiles for {subject.batch_size} sequences a {subject.replica}: no, {step}"
    return "\n\n".join(
        (
            f"Compiles: yes, in {step.seconds:,.0f} s",
            _memory(subject, step),
            _work(subject, step),
            _time(subject, step),
        )
    )


def describe_largest(subject: Subject, largest: LargestBatch) -> str:
    """The result of the search for the largest batch."""
    if not largest.step:
        return "Largest batch\n  none: not even one sequence fits; take a smaller model"
    rows = [
        (
            "size",
            f"{largest.size} sequences on a {subject.replica}, "
            f"{largest.size * subject.topology.num_replicas} in all "
            f"(--train_batch_size={largest.size * subject.topology.num_replicas})",
        ),
        (
            "memory",
            f"{_bytes(largest.step.memory)}, {_share(largest.step.memory, subject.memory)}",
        ),
    ]
    if largest.bytes_per_sequence:
        rows.append(("growth", f"{_bytes(largest.bytes_per_sequence)} for each further sequence"))
    return _table("Largest batch that was compiled and fits", *rows)


def _memory(subject: Subject, step: CompiledStep) -> str:
    return _table(
        f"Memory of a {subject.replica}",
        ("arguments", _bytes(step.arguments), "weights, the optimizer's state, the batch"),
        (
            "outputs",
            _bytes(step.outputs),
            f"their new values, of which {_bytes(step.aliased)} take the place of the old ones",
        ),
        ("temporaries", _bytes(step.temporaries), "activations, gradients, work space"),
        ("code", _bytes(step.code), "the program"),
        ("in all", _bytes(step.memory), _share(step.memory, subject.memory)),
    )


def _work(subject: Subject, step: CompiledStep) -> str:
    table = _table(
        f"Work of a {subject.replica} in a step, as the compiler counts it",
        (
            "arithmetic",
            _scaled(step.flops, "FLOP", {"T": 1e12, "G": 1e9, "M": 1e6}),
            "floating-point operations",
        ),
        ("bytes accessed", _bytes(step.bytes_accessed), "read and written, by all operations"),
    )
    if step.float64_op:
        table += (
            f"\n  WARNING: {step.float64_op} computes in float64, which a TPU only emulates, "
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
            "all bytes accessed, at the full bandwidth of the chip's memory",
        ),
        (
            "all-reduce",
            _seconds(seconds.all_reduce),
            f"{_bytes(gradient)} of gradients summed over {topology.num_chips} chips"
            if topology.num_chips > 1
            else "one chip sums nothing",
        ),
        ("step", _seconds(seconds.total), "the longer of the first two, then the all-reduce"),
        ("throughput", f"{rate:,.0f} sequences/s", f"{rate / topology.num_chips:,.0f} a chip"),
        ("share of peak", f"{seconds.compute / seconds.total:.0%}", "arithmetic / step"),
    )
    notes = (
        textwrap.fill(note, 96, initial_indent="  - ", subsequent_indent="    ")
        for note in _ASSUMPTIONS
    )
    return "\n".join((table, "", "What this assumes", *notes))


def _table(title: str, *rows: tuple[str, ...]) -> str:
    """A title over aligned rows: a name, and text or a figure and what it means."""
    names = max(len(row[0]) for row in rows)
    figures = max((len(row[1]) for row in rows if len(row) == 3), default=0)
    lines = [title]
    for name, value, *meaning in rows:
        line = f"  {name:{names}}  {value:>{figures}}"
        lines.append(f"{line}  {meaning[0]}" if meaning else line)
    return "\n".join(lines)


def _scaled(value: float, unit: str, prefixes: dict[str, float]) -> str:
    """With the first prefix that leaves at least 1 before the decimal point, else the last."""
    prefix = next((name for name, size in prefixes.items() if value >= size), list(prefixes)[-1])
    return f"{value / prefixes[prefix]:,.2f} {prefix}{unit}"


def _bytes(size: float) -> str:
    return _scaled(size, "B", {"G": 1e9, "M": 1e6, "k": 1e3})


def _seconds(seconds: float) -> str:
    return _scaled(seconds, "s", {"m": 1e-3, "µ": 1e-6})


def _share(size: float, whole: float) -> str:
    return f"{size / whole:.0%} of {_bytes(whole)}"
