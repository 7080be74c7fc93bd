"""Compiles a training step for a device on any x86 Linux machine, without the device or data.

The compilers come with packages of jax: that of TPUs in libtpu, that of GPUs in its CUDA plugin.
"""

import abc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


class DoesNotFit(Exception):
    """The step needs more memory than a replica has.

    Attributes:
        needed: bytes that the compiler reports, sometimes without those of the arguments.
        available: bytes of the replica, without those that the system reserves.
    """

    def __init__(self, needed: int, available: int):
        super().__init__(f"needs {needed / 1e9:,.2f} GB, but {available / 1e9:,.2f} GB are free")
        self.needed = needed
        self.available = available


@dataclass(frozen=True)
class CompiledStep:
    """The compiler's figures for a step on one replica, which took `seconds` to compile.

    In bytes: `arguments` are variables and batch, `outputs` the new values of the variables, of
    which `aliased` reuse the memory of arguments, `temporaries` all values in between, and `code`
    the program. `kernels` are programs that a GPU launches.
    """

    seconds: float
    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int
    flops: float
    bytes_accessed: float
    kernels: int | None = None

    @property
    def memory(self) -> int:
        """Bytes that must be held at the same time."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


class Target(abc.ABC):
    """What the compilers of TPUs and GPUs do differently, for one replica of a topology.

    Attributes:
        kind: "TPU" or "GPU".
        device: jax's description of the device.
        memory_limit: bytes of memory for programs; None if the compiler itself refuses more.
    """

    kind: str
    device: Any
    memory_limit: int | None = None

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
    target: Target,
    step: Callable[[Mapping[str, tf.Tensor]], Any],
    batch: Mapping[str, tf.Tensor],
) -> CompiledStep:
    """Compiles `step(batch)`.

    Raises:
        DoesNotFit: it needs too much memory.
        ValueError: it cannot be compiled.
    """
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
