"""Compiles a training step for a TPU on any x86 Linux machine.

The compiler comes with the packages jax and libtpu. It needs neither a TPU nor data.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.tpu.chips import Topology

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
    """The compiler's figures for a step on one replica.

    Attributes:
        seconds: duration of the compilation.
        arguments: bytes of the inputs: variables and batch.
        outputs: bytes of the outputs: new values of the variables.
        aliased: bytes of the outputs that reuse the memory of arguments.
        temporaries: bytes of all intermediate values.
        code: bytes of the program.
        flops: floating-point operations.
        bytes_accessed: bytes read and written.
        float64_op: name of an operation in float64, if there is one.
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
        """Bytes that must be held at the same time."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code


class TpuCompiler:
    """The compiler for one replica of a TPU slice."""

    def __init__(self, topology: Topology):
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
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
                f"the TPU compiler is missing ({error}): pip install 'jax>=0.10.2' 'libtpu>=0.0.52'"
            ) from None
        # TensorFlow uses the two cores of a v4 chip as one device.
        options = {"chip_config_name": "megacore"} if topology.version == "v4" else {}
        try:
            devices = topologies.get_topology_desc(
                platform="tpu", topology_name=topology.name, **options
            ).devices
        except JaxRuntimeError as error:
            raise ValueError(f"no topology {topology.name!r}: {_reason(error)}") from None
        assert len(devices) == topology.num_replicas

        def compile_hlo(program: bytes) -> tuple[Any, str]:
            """Returns the executable and the text of a serialized program."""
            hlo = XlaComputation(program)
            module = adapt_to_tpu(xla_computation_to_mlir_module(hlo))
            try:
                with make_ir_context():
                    executable = devices[0].client.compile(
                        Module.parse(module), DeviceList((devices[0],)), CompileOptions()
                    )
            except (JaxRuntimeError, MLIRError) as error:
                raise _user_error(error) from None
            return executable, hlo.as_hlo_module().to_string()

        self._compile = compile_hlo

    def compile(
        self, step: Callable[[Mapping[str, tf.Tensor]], Any], batch: Mapping[str, tf.Tensor]
    ) -> CompiledStep:
        """Compiles `step(batch)`."""
        program = step_to_hlo(step, batch)
        started = time.perf_counter()
        executable, text = self._compile(program)
        seconds = time.perf_counter() - started
        stats, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
        float64 = re.search(r"= f64\[.*?op_name=\"([^\"]*)\"", text)
        return CompiledStep(
            seconds=seconds,
            arguments=stats.argument_size_in_bytes,
            outputs=stats.output_size_in_bytes,
            aliased=stats.alias_size_in_bytes,
            temporaries=stats.temp_size_in_bytes,
            code=stats.generated_code_size_in_bytes,
            flops=cost["flops"],
            bytes_accessed=cost["bytes accessed"],
            float64_op=float64[1] if float64 else None,
        )


def step_to_hlo(
    step: Callable[[Mapping[str, tf.Tensor]], Any], batch: Mapping[str, tf.Tensor]
) -> bytes:
    """Returns the XLA program of `step(batch)`, a serialized `HloModuleProto`."""
    traced = tf.function(step, jit_compile=True)
    try:
        return traced.experimental_get_compiler_ir(batch)(stage="hlo_serialized")
    except (ValueError, tf.errors.OpError) as error:
        found = re.search(r"XLA_\w+: (\w+) \(.*?\{\{node (\S+?)\}\}", str(error), re.DOTALL)
        if not found:
            raise
        op, node = found.groups()
        string = " on strings" if "DT_STRING" in str(error) else ""
        raise ValueError(
            f"a TPU cannot run the operation {op}{string} ({node}), which XLA does not support: "
            "move it out of the step, for instance into the input pipeline"
        ) from None


def adapt_to_tpu(module: str) -> str:
    """Turns an MLIR module that TensorFlow made for the CPU into the one it makes for a TPU.

    - Copies between variables become identities, since the TPU's dialect has no copies.
    - The TPU's own generator replaces Philox, whose state is one word longer and whose blocks of 4
      random numbers a TPU would pad to 128.
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


def _user_error(error: Exception) -> Exception:
    """Turns an error of the compiler into one for the user."""
    size = r"\(?([\d.]+)([KMGT]?)B?\)?"
    found = re.search(rf"(?:required.*?|Used ){size} (?:exceeds.*?|of ){size}", str(error))
    if "RESOURCE_EXHAUSTED" in str(error) and found:
        needed, available = (
            int(float(number) * _UNITS[unit])
            for number, unit in (found.groups()[:2], found.groups()[2:])
        )
        return DoesNotFit(needed, available)
    return ValueError(f"the TPU compiler rejects the step: {_reason(error)}")


def _reason(error: Exception) -> str:
    return str(error).split("\nSee ")[0][:300]
