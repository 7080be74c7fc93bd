"""The compiler of TPUs, from the package libtpu."""

import os
import re
from typing import Any

from bert_tf.devices.compiler import DoesNotFit, Target, reason
from bert_tf.devices.topology import Topology

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
        needed, available = (
            int(float(number) * _UNITS[unit])
            for number, unit in (found.groups()[:2], found.groups()[2:])
        )
        return DoesNotFit(needed, available)
