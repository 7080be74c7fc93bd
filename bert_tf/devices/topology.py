"""Several chips as one device, and the time of a step estimated from their published figures."""

import math
import re
from dataclasses import dataclass

from bert_tf.training.chips import GPUS, TPUS, Chip

# The share of a chip's memory that the system leaves to programs: slightly more on all TPUs seen.
USABLE = 0.98


@dataclass(frozen=True)
class Topology:
    """GPUs of one machine, or a TPU slice: chips in a grid of two or three dimensions."""

    name: str  # "h100", "h100:8", or as the TPU compiler and Cloud TPU have it, "v5e:2x2"
    version: str  # a key of `GPUS` or `TPUS`
    shape: tuple[int, ...]  # of the grid

    @classmethod
    def parse(cls, name: str) -> "Topology":
        """Parses a name."""
        if found := re.fullmatch(r"(\w+?)(?::([1-9]\d?))?", name):
            if found[1] in GPUS:
                return cls(name, found[1], (int(found[2] or 1),))
        found = re.fullmatch(r"(\w+):([1-9]\d{0,2}(?:x[1-9]\d{0,2}){1,2})", name)
        if not found or found[1] not in TPUS:
            raise ValueError(
                f"unknown device {name!r}: give a GPU ({', '.join(GPUS)}), with the number of "
                f"GPUs if there are several, as in a100:8; or a TPU ({', '.join(TPUS)}) and the "
                "number of chips in each dimension, such as v5e:1x1, v5e:2x2 or v5p:2x2x1"
            )
        return cls(name, found[1], tuple(map(int, found[2].split("x"))))

    @property
    def is_gpu(self) -> bool:
        return self.version in GPUS

    @property
    def chip(self) -> Chip:
        return GPUS[self.version] if self.is_gpu else TPUS[self.version]

    @property
    def num_chips(self) -> int:
        return math.prod(self.shape)

    @property
    def num_replicas(self) -> int:
        return self.num_chips * self.chip.replicas

    @property
    def replica(self) -> str:
        """What a replica runs on: a GPU, a chip or a core."""
        return "GPU" if self.is_gpu else "chip" if self.chip.replicas == 1 else "core"

    @property
    def replica_memory(self) -> float:
        """Bytes of memory of a replica."""
        return self.chip.memory / self.chip.replicas

    def peak_flops(self, precision: str) -> float:
        """Returns the FLOP/s of a replica in products of matrices; raises a ValueError if none."""
        peak = self.chip.replica_flops(precision)
        if peak is None:
            raise ValueError(
                f"--precision={precision} is not for {self.name}: use "
                f"{'float16' if precision == 'bfloat16' else 'bfloat16'} or float32"
            )
        return peak


def estimate_step_time(
    topology: Topology,
    peak_flops: float,
    flops: float,
    bytes_accessed: float,
    gradient_bytes: float,
) -> tuple[float, float, float, float]:
    """Estimates the seconds of a data-parallel step from peak figures.

    In a ring all-reduce over n chips, each chip sends 2 (n - 1) / n of the gradient (Patarasuk and
    Yuan, 2009), here over all of its links at once, one per dimension. Every replica holds the
    whole gradient; all other figures are those of one replica.

    Returns the times of the arithmetic at the peak rate, of all memory accesses at full bandwidth,
    which overlap with it, of the all-reduce, which follows, and of the whole step.
    """
    chip, chips = topology.chip, topology.num_chips
    sent, links = 2 * (chips - 1) / chips * gradient_bytes, sum(size > 1 for size in topology.shape)
    compute, memory = flops / peak_flops, bytes_accessed * chip.replicas / chip.bandwidth
    all_reduce = sent / (links * chip.link_bandwidth) if chips > 1 else 0.0
    return compute, memory, all_reduce, max(compute, memory) + all_reduce
