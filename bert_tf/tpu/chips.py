"""The published figures of TPU chips, and the time of a step estimated from them."""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

_GIB = 2**30


class Chip(NamedTuple):
    """Peak figures of one chip.

    Attributes:
        hbm_bytes: size of the main memory.
        peak_flops: FLOP/s in bfloat16, to which TPUs also round float32 matrices.
        hbm_bandwidth: bytes/s between memory and the cores.
        link_bandwidth: bytes/s of one link to a neighboring chip (ICI), in one direction.
        replicas: TensorFlow devices per chip: one per core on old chips, otherwise one.
    """

    hbm_bytes: int
    peak_flops: float
    hbm_bandwidth: float
    link_bandwidth: float
    replicas: int = 1


# Sources: the Cloud TPU documentation (cloud.google.com/tpu/docs), one page per version, whose ICI
# figures add up both directions of all links: 4 links (v5e, v6e) or 6 (v5p). v2: The Design Process
# for Google's Training Chips (IEEE Micro 41, 2021). Links of v3 and v4: TPU v4 (arXiv:2304.01433)
# table 4.
CHIPS = {
    "v2": Chip(16 * _GIB, 46e12, 700e9, 62e9, replicas=2),
    "v3": Chip(32 * _GIB, 123e12, 900e9, 70e9, replicas=2),
    "v4": Chip(32 * _GIB, 275e12, 1200e9, 50e9),
    "v5e": Chip(16 * _GIB, 197e12, 819e9, 400e9 / 4 / 2),
    "v5p": Chip(95 * _GIB, 459e12, 2765e9, 1200e9 / 6 / 2),
    "v6e": Chip(32 * _GIB, 918e12, 1638e9, 800e9 / 4 / 2),
}


@dataclass(frozen=True)
class Topology:
    """A TPU slice: chips in a grid of two or three dimensions.

    Attributes:
        name: the name that the TPU compiler and Cloud TPU use, such as "v5e:2x2".
        version: a key of `CHIPS`.
        shape: chips in each dimension.
    """

    name: str
    version: str
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, name: str) -> "Topology":
        """Parses a name."""
        found = re.fullmatch(r"(\w+):([1-9]\d{0,2}(?:x[1-9]\d{0,2}){1,2})", name)
        if not found or found[1] not in CHIPS:
            raise ValueError(
                f"unknown topology {name!r}: give a version ({', '.join(CHIPS)}) and the number of "
                "chips in each dimension, such as v5e:1x1, v5e:2x2 or v5p:2x2x1"
            )
        return cls(name, found[1], tuple(map(int, found[2].split("x"))))

    @property
    def chip(self) -> Chip:
        return CHIPS[self.version]

    @property
    def num_chips(self) -> int:
        return math.prod(self.shape)

    @property
    def num_replicas(self) -> int:
        return self.num_chips * self.chip.replicas

    @property
    def replica(self) -> str:
        """What a replica runs on: a chip or a core."""
        return "chip" if self.chip.replicas == 1 else "core"

    @property
    def replica_memory(self) -> float:
        """Bytes of memory of a replica."""
        return self.chip.hbm_bytes / self.chip.replicas

    @property
    def links(self) -> int:
        """The number of links over which a chip sends at a time: one per dimension."""
        return sum(size > 1 for size in self.shape)


class StepTime(NamedTuple):
    """The seconds of a training step, estimated from peak figures.

    Attributes:
        compute: the arithmetic, at the peak rate.
        memory: all memory accesses, at full bandwidth.
        all_reduce: summing the gradients over the chips.
    """

    compute: float
    memory: float
    all_reduce: float

    @property
    def total(self) -> float:
        """Computation and memory accesses overlap; the all-reduce follows."""
        return max(self.compute, self.memory) + self.all_reduce


def estimate_step_time(
    topology: Topology, flops: float, bytes_accessed: float, gradient_bytes: float
) -> StepTime:
    """Estimates the time of a data-parallel step.

    In a ring all-reduce over n chips, each chip sends 2 (n - 1) / n of the gradient (Patarasuk and
    Yuan, 2009), here over all of its links at once.

    Args:
        flops: floating-point operations of one replica.
        bytes_accessed: bytes that one replica reads and writes.
        gradient_bytes: size of the whole gradient, which every replica holds.
    """
    chip, chips = topology.chip, topology.num_chips
    sent = 2 * (chips - 1) / chips * gradient_bytes
    return StepTime(
        compute=flops * chip.replicas / chip.peak_flops,
        memory=bytes_accessed * chip.replicas / chip.hbm_bandwidth,
        all_reduce=sent / (topology.links * chip.link_bandwidth) if chips > 1 else 0.0,
    )
