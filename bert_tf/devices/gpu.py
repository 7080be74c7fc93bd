"""The compiler of GPUs, from jax's CUDA plugin and NVIDIA's assembler."""

import importlib.util
import math
import os
import re
from typing import Any, NamedTuple

from bert_tf.devices.compiler import Target
from bert_tf.devices.topology import USABLE, Topology


class _Architecture(NamedTuple):
    """What the compiler needs to know of a GPU.

    Attributes:
        capability: major and minor version of CUDA's compute capability.
        cores: streaming multiprocessors.
        fpus, threads, shared_memory: float32 units, threads and bytes of each.
        block_memory: bytes of shared memory that a block can have.
        cache: bytes of the second-level cache.
        clock: GHz.
    """

    capability: tuple[int, int]
    cores: int
    fpus: int
    threads: int
    shared_memory: int
    block_memory: int
    cache: int
    clock: float


# Sources: NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities", and the white papers of the
# architectures.
_ARCHITECTURES = {
    "v100": _Architecture((7, 0), 80, 64, 2048, 98304, 98304, 6 << 20, 1.53),
    "t4": _Architecture((7, 5), 40, 64, 1024, 65536, 65536, 4 << 20, 1.59),
    "a100": _Architecture((8, 0), 108, 64, 2048, 167936, 166912, 40 << 20, 1.41),
    "l4": _Architecture((8, 9), 58, 128, 1536, 102400, 101376, 48 << 20, 2.04),
    "h100": _Architecture((9, 0), 132, 128, 2048, 233472, 232448, 50 << 20, 1.98),
    "h200": _Architecture((9, 0), 132, 128, 2048, 233472, 232448, 50 << 20, 1.98),
}
_INSTALL = "pip install 'jax>=0.10.2' 'jax-cuda12-plugin>=0.10.2' nvidia-cuda-nvcc-cu12"


class GpuTarget(Target):
    """One GPU."""

    kind = "GPU"

    def __init__(self, topology: Topology):
        self.memory_limit = int(USABLE * topology.chip.memory)
        try:
            import jax
            import jax_plugins.xla_cuda12  # noqa: F401
            from jax.experimental import topologies

            tools = importlib.util.find_spec("nvidia.cuda_nvcc").submodule_search_locations[0]
        except (ImportError, AttributeError) as error:
            raise ValueError(f"the GPU compiler is missing ({error}): {_INSTALL}") from None
        os.environ["PATH"] = os.pathsep.join([os.path.join(tools, "bin"), os.environ["PATH"]])
        # Without a GPU, the compiler cannot time alternatives.
        os.environ["XLA_FLAGS"] = (
            f"--xla_gpu_cuda_data_dir={tools} --xla_gpu_autotune_level=0 "
            + os.environ.get("XLA_FLAGS", "")
        )
        jax.config.update("jax_platforms", "cpu")
        self._host = jax.devices("cpu")[0].client
        self.device = topologies.get_topology_desc(
            "", "cuda", target_config=_description(topology), topology="1x1x1"
        ).devices[0]

    def work(self, executable: Any) -> dict[str, float]:
        from jaxlib.xla_client import _xla

        (module,) = executable.hlo_modules()
        cost, text = _xla.hlo_module_cost_analysis(self._host, module), module.to_string()
        return {
            "flops": cost["flops"] + library_flops(text),
            "bytes_accessed": cost["bytes accessed"],
            "kernels": len(re.findall(r" (?:fusion|custom-call|sort)\(", text)),
        }


_LIBRARY_PRODUCT = re.compile(
    r"= \(?\w+\[([\d,]+)\].* custom-call\(.*\"__cublas.*"
    r'"lhs_batch_dimensions":\[([^]]*)\].*"lhs_stride":"(\d+)","rhs_stride":"(\d+)"'
)


def library_flops(module: str) -> int:
    """Returns the arithmetic of the products in cuBLAS, which XLA does not count.

    Args:
        module: the text of an optimized program.
    """
    flops = 0
    for shape, batch_axes, left, right in _LIBRARY_PRODUCT.findall(module):
        sizes = [int(size) for size in shape.split(",")]
        rows_times_columns = math.prod(sizes[len(batch_axes.split(",")) if batch_axes else 0 :])
        # The strides are rows * inner and inner * columns.
        inner = math.isqrt(int(left) * int(right) // rows_times_columns)
        flops += 2 * math.prod(sizes) * inner
    return flops


def _description(topology: Topology) -> str:
    """Returns a `GpuTargetConfigProto` of XLA in text form."""
    gpu, chip = _ARCHITECTURES[topology.version], topology.chip
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
          shared_memory_per_core: {gpu.shared_memory} threads_per_core_limit: {gpu.threads}
          core_count: {gpu.cores} fpus_per_core: {gpu.fpus}
          block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
          memory_bandwidth: {chip.bandwidth:.0f} l2_cache_size: {gpu.cache}
          clock_rate_ghz: {gpu.clock} device_memory_size: {chip.memory:.0f}
          shared_memory_per_block_optin: {gpu.block_memory}
          cuda_compute_capability {{ major: {gpu.capability[0]} minor: {gpu.capability[1]} }}
          registers_per_core_limit: 65536 registers_per_block_limit: 65536
        }}
        platform_name: "CUDA"
        dnn_version_info {{ major: 9 minor: 8 }}
        device_description_str: "{topology.version}"
    """
