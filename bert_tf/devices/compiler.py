"""Compiles a training step for a device on any x86 Linux machine, without the device or data.

The compilers come with packages of jax: that of TPUs in libtpu, that of GPUs in its CUDA plugin.
"""

import abc
import importlib.util
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.base.published import read_published
from bert_tf.devices.topology import USABLE, Topology


class DoesNotFit(Exception):
    """The step needs more memory than a replica has.

    `needed` are the bytes that the compiler reports, sometimes without those of the arguments, and
    `available` those of the replica that the system does not reserve.
    """

    def __init__(self, needed: int, available: int):
        super().__init__(f"needs {needed / 1e9:,.2f} GB, but {available / 1e9:,.2f} GB are free")
        self.needed, self.available = needed, available


@dataclass(frozen=True)
class CompiledStep:
    """The compiler's figures for a step on one replica, in bytes unless stated otherwise."""

    seconds: float  # to compile it
    arguments: int  # variables and batch
    outputs: int  # the new values of the variables
    aliased: int  # outputs that reuse the memory of arguments
    temporaries: int  # all values in between
    code: int
    flops: float
    bytes_accessed: float
    kernels: int | None = None  # programs that a GPU launches

    @property
    def memory(self) -> int:
        """Bytes that must be held at the same time."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


class Target(abc.ABC):
    """What the compilers of TPUs and GPUs do differently, for one replica of a topology."""

    kind: str  # "TPU" or "GPU"
    device: Any  # jax's description
    memory_limit: int | None = None  # bytes; None if the compiler itself refuses more

    def adapt(self, module: str) -> str:
        """Turns an MLIR module that TensorFlow made for the CPU into the one for the device."""
        return module

    @abc.abstractmethod
    def work(self, executable: Any) -> dict[str, float]:
        """Returns what the compiler counts: arguments of `CompiledStep`."""

    def does_not_fit(self, error: Exception) -> DoesNotFit | None:
        """Returns what an error of the compiler says about memory."""
        return None


def compile_step(
    target: Target, step: Callable[[Mapping[str, tf.Tensor]], Any], batch: Mapping[str, tf.Tensor]
) -> CompiledStep:
    """Compiles `step(batch)`; raises a `DoesNotFit`, or a ValueError if it cannot be compiled."""
    from jax.errors import JaxRuntimeError
    from jax.interpreters.mlir import make_ir_context
    from jaxlib._hlo import XlaComputation
    from jaxlib._jax.mlir import xla_computation_to_mlir_module
    from jaxlib.mlir.ir import MLIRError, Module
    from jaxlib.xla_client import CompileOptions, DeviceList

    module = xla_computation_to_mlir_module(XlaComputation(step_to_hlo(step, batch)))
    # Copies between variables become identities, since the compilers' dialect has no copies.
    module = target.adapt(module.replace("mhlo.copy ", "stablehlo.optimization_barrier "))
    started = time.perf_counter()
    try:
        with make_ir_context():
            executable = target.device.client.compile(
                Module.parse(module), DeviceList((target.device,)), CompileOptions()
            )
    except (JaxRuntimeError, MLIRError) as error:
        rejected = ValueError(f"the {target.kind} compiler rejects the step: {reason(error)}")
        raise target.does_not_fit(error) or rejected from None
    seconds = time.perf_counter() - started
    stats = executable.get_compiled_memory_stats()
    compiled = CompiledStep(
        seconds=seconds,
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliased=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
        code=stats.generated_code_size_in_bytes,
        **target.work(executable),
    )
    if target.memory_limit is not None and compiled.memory > target.memory_limit:
        raise DoesNotFit(compiled.memory, target.memory_limit)
    return compiled


def reason(error: Exception) -> str:
    """Returns the part of an error of jax that is for users."""
    return str(error).split("\nSee ")[0][:300]


def step_to_hlo(step: Callable[[Mapping[str, tf.Tensor]], Any], batch: Mapping[str, Any]) -> bytes:
    """Returns the XLA program of `step(batch)`, a serialized `HloModuleProto`."""
    traced = tf.function(step, jit_compile=True)
    return traced.experimental_get_compiler_ir(batch)(stage="hlo_serialized")


# What libtpu needs to know.
_ENVIRONMENT = {
    # Without a TPU, it would look for a metadata server to ask for these.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Other processes may use the compiler or a TPU at the same time.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TpuTarget(Target):
    """One replica of a TPU slice."""

    kind = "TPU"

    def __init__(self, topology: Topology):
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import libtpu  # noqa: F401
            from jax.errors import JaxRuntimeError
            from jax.experimental import topologies
        except ImportError as error:
            raise ValueError(
                f"the TPU compiler is missing ({error}): pip install 'jax>=0.10.2' 'libtpu>=0.0.52'"
            ) from None
        # TensorFlow uses the two cores of a v4 chip as one device.
        options = {"chip_config_name": "megacore"} if topology.version == "v4" else {}
        try:
            devices = topologies.get_topology_desc(
                platform="tpu", topology_name=topology.name, **options
            ).devices
        except JaxRuntimeError as error:
            raise ValueError(f"no topology {topology.name!r}: {reason(error)}") from None
        assert len(devices) == topology.num_replicas
        self.device = devices[0]

    def adapt(self, module: str) -> str:
        """Replaces Philox by the TPU's own generator, as the TPU build of TensorFlow does.

        The state of Philox is one word longer, and a TPU would pad its blocks of 4 random numbers
        to 128.
        """
        return re.sub(
            r"(?P<state>%\w+), (?P<bits>%\w+) = stablehlo.rng_bit_generator (?P<seed>%[\w#]+), +"
            r"algorithm = +PHILOX : \(tensor<3xui64>\) -> "
            r"\(tensor<3xui64>, (?P<type>tensor<[^>]*>)\)",
            r"\g<bits>_tpu_seed = stablehlo.slice \g<seed> [0:2] : (tensor<3xui64>) -> "
            "tensor<2xui64>\n"
            r"\g<bits>_tpu_rest = stablehlo.slice \g<seed> [2:3] : (tensor<3xui64>) -> "
            "tensor<1xui64>\n"
            r"\g<bits>_tpu_state, \g<bits> = stablehlo.rng_bit_generator \g<bits>_tpu_seed, "
            r"algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, \g<type>)"
            "\n"
            r"\g<state> = stablehlo.concatenate \g<bits>_tpu_state, \g<bits>_tpu_rest, dim = 0 : "
            r"(tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>",
            module,
        )

    def work(self, executable: Any) -> dict[str, float]:
        cost = executable.cost_analysis()
        return {"flops": cost["flops"], "bytes_accessed": cost["bytes accessed"]}

    def does_not_fit(self, error: Exception) -> DoesNotFit | None:
        size = r"\(?([\d.]+)([KMGT]?)B?\)?"
        found = re.search(rf"(?:required.*?|Used ){size} (?:exceeds.*?|of ){size}", str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) or not found:
            return None
        needed, unit, available, of = found.groups()
        return DoesNotFit(int(float(needed) * _UNITS[unit]), int(float(available) * _UNITS[of]))


class _Architecture(NamedTuple):
    """What the compiler needs to know of a GPU; memory in bytes."""

    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    fpus: int  # of a core, as the next two
    threads: int
    shared_memory: int
    block_memory: int  # the most shared memory of a block
    cache: int  # second level
    clock: float  # GHz


_ARCHITECTURES = {
    name: _Architecture(*values)
    for name, values in read_published("chips")["architectures"].items()
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
    """Counts the products in cuBLAS, which XLA leaves out, in the text of an optimized program."""
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
