"""Compiles a training step with the compiler of TPUs, on any x86 machine with Linux.

The packages jax and libtpu bring the compiler; no TPU is needed, and no data.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from bert_tf.tpu.chips import Topology

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class DoesNotFit(Exception):
    """The compiled step would need more memory than a replica has.

    Attributes:
        needed: bytes, as far as the compiler tells; it may leave out those of the arguments.
        available: bytes, less than the chip's by what the system keeps for itself.
    """

    def __init__(self, needed: int, available: int):
        super().__init__(f"it needs {needed / 1e9:,.2f} GB, and {available / 1e9:,.2f} GB are free")
        self.needed = needed
        self.available = available


@dataclass(frozen=True)
class CompiledStep:
    """What the compiler tells of a step; all numbers are of one replica.

    Attributes:
        seconds: it took to compile.
        arguments, outputs: bytes of what the step takes and gives: variables and batch.
        aliased: bytes of the outputs that take the place of arguments.
        temporaries: bytes of everything between.
        code: bytes of the program.
        flops, bytes_accessed: of one step.
        float64_op: an operation in float64, if there is one.
    """

    seconds: float
    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int
    flops: float
    bytes_accessed: float
    float64_op: str | None = None

    @property
    def memory(self) -> int:
        """Bytes needed at a time."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


class TpuCompiler:
    """The compiler for one replica of a slice of a TPU.

    Raises:
        ValueError: where jax or libtpu is missing, or there is no such topology.
    """

    def __init__(self, topology: Topology):
        self._jax = _import_jax()
        # Of the two ways to use a v4 chip this is TensorFlow's: its two cores as one device.
        options = {"chip_config_name": "megacore"} if topology.version == "v4" else {}
        try:
            description = self._jax.topologies.get_topology_desc(
                platform="tpu", topology_name=topology.name, **options
            )
        except self._jax.Error as error:
            raise ValueError(f"no topology {topology.name}: {_reason(error)}") from None
        assert len(description.devices) == topology.num_replicas
        self._device = description.devices[0]

    def compile(
        self, step: Callable[[Mapping[str, tf.Tensor]], Any], batch: Mapping[str, tf.Tensor]
    ) -> CompiledStep:
        """Compiles `step(batch)`.

        Raises:
            DoesNotFit: where the compiled step would need too much memory.
            ValueError: for what a TPU cannot run; names the operation.
        """
        hlo = self._jax.XlaComputation(step_to_hlo(step, batch))
        started = time.perf_counter()
        try:
            with self._jax.make_ir_context():
                executable = self._device.client.compile(
                    self._jax.Module.parse(as_for_a_tpu(self._jax.to_mlir(hlo))),
                    self._jax.DeviceList((self._device,)),
                    self._jax.CompileOptions(),
                )
        except (self._jax.Error, self._jax.MLIRError) as error:
            raise _explained(error) from None
        seconds = time.perf_counter() - started
        stats, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
        return CompiledStep(
            seconds=seconds,
            arguments=stats.argument_size_in_bytes,
            outputs=stats.output_size_in_bytes,
            aliased=stats.alias_size_in_bytes,
            temporaries=stats.temp_size_in_bytes,
            code=stats.generated_code_size_in_bytes,
            flops=cost["flops"],
            bytes_accessed=cost["bytes accessed"],
            float64_op=_float64_op(hlo.as_hlo_module().to_string()),
        )


def step_to_hlo(
    step: Callable[[Mapping[str, tf.Tensor]], Any], batch: Mapping[str, tf.Tensor]
) -> bytes:
    """The program of `step(batch)` in XLA's language, as a serialized `HloModuleProto`.

    Raises:
        ValueError: where XLA has no such program; names the operation.
    """
    traced = tf.function(step, jit_compile=True)
    try:
        return traced.experimental_get_compiler_ir(batch)(stage="hlo_serialized")
    except (ValueError, tf.errors.OpError) as error:
        found = re.search(r"XLA_\w+: (\w+) \(.*?\{\{node (\S+?)\}\}", str(error), re.DOTALL)
        if not found:
            raise
        op, node = found.groups()
        string = " with a string" if "DT_STRING" in str(error) else ""
        raise ValueError(
            f"a TPU cannot run the operation {op}{string} ({node}): XLA has none of this kind; "
            "take it out of the step, for instance into the input pipeline"
        ) from None


def _import_jax() -> SimpleNamespace:
    """Of jax what is needed here, most of it internal to it."""
    # There is no TPU to ask for these; without them libtpu looks for a server that tells.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # Other processes may use the compiler, or a TPU, at the same time.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
    try:
        import libtpu  # noqa: F401
        from jax.errors import JaxRuntimeError
        from jax.experimental import topologies
        from jax.interpreters.mlir import make_ir_context
        from jaxlib._hlo import XlaComputation
        from jaxlib._jax.mlir import xla_computation_to_mlir_module
        from jaxlib.mlir.ir import MLIRError, Module
        from jaxlib.xla_client import CompileOptions, DeviceList
    except ImportError as error:
        raise ValueError(
            f"the compiler for TPUs is missing ({error}): pip install 'bert-tf[tpu-check]'"
        ) from None
    return SimpleNamespace(
        CompileOptions=CompileOptions,
        DeviceList=DeviceList,
        Error=JaxRuntimeError,
        MLIRError=MLIRError,
        Module=Module,
        XlaComputation=XlaComputation,
        make_ir_context=make_ir_context,
        to_mlir=xla_computation_to_mlir_module,
        topologies=topologies,
    )


def as_for_a_tpu(module: str) -> str:
    """A program that TensorFlow wrote for the CPU, in MLIR, as it writes it for a TPU.

    - Copies between variables, for which the TPU's dialect has no word, become identities.
    - Random numbers come from the TPU's own generator and not from Philox, whose state has one word
      more and whose blocks of 4 numbers a TPU would pad to 128.
    """
    module = module.replace("mhlo.copy ", "stablehlo.optimization_barrier ")
    return re.sub(
        r"(?P<state>%\w+), (?P<bits>%\w+) = stablehlo.rng_bit_generator (?P<seed>%[\w#]+), +"
        r"algorithm = +PHILOX : \(tensor<3xui64>\) -> \(tensor<3xui64>, (?P<type>tensor<[^>]*>)\)",
        r"\g<bits>_tpu_seed = stablehlo.slice \g<seed> [0:2] : (tensor<3xui64>) -> tensor<2xui64>\n"
        r"\g<bits>_tpu_rest = stablehlo.slice \g<seed> [2:3] : (tensor<3xui64>) -> tensor<1xui64>\n"
        r"\g<bits>_tpu_state, \g<bits> = stablehlo.rng_bit_generator \g<bits>_tpu_seed, "
        r"algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, \g<type>)\n"
        r"\g<state> = stablehlo.concatenate \g<bits>_tpu_state, \g<bits>_tpu_rest, dim = 0 : "
        r"(tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>",
        module,
    )


def _explained(error: Exception) -> Exception:
    """What a user can make of the compiler's error."""
    size = r"\(?([\d.]+)([KMGT]?)B?\)?"
    found = re.search(rf"(?:required.*?|Used ){size} (?:exceeds.*?|of ){size}", str(error))
    if "RESOURCE_EXHAUSTED" in str(error) and found:
        needed, available = (
            int(float(number) * _UNITS[unit])
            for number, unit in (found.groups()[:2], found.groups()[2:])
        )
        return DoesNotFit(needed, available)
    return ValueError(f"the TPU compiler refuses the step: {_reason(error)}")


def _reason(error: Exception) -> str:
    return str(error).split("\nSee ")[0][:300]


def _float64_op(hlo: str) -> str | None:
    found = re.search(r"= f64\[.*?op_name=\"([^\"]*)\"", hlo)
    return found[1] if found else None
