"""How TensorFlow Serving shall batch the requests of concurrent clients.

Source: tensorflow/serving batching/README.md; session_bundle_config.proto `BatchingParameters`.
"""

from collections.abc import Sequence

import tensorflow as tf

BATCHING = "batching_params.pbtxt"

# benchmarks/serving.py measures them.
_PARAMETERS = """\
# TensorFlow Serving reads this file if it is started with
#   --enable_batching --enable_per_model_batching_parameters
# The most examples of a batch:
max_batch_size { value: 32 }
# How long an example waits for others, in microseconds:
batch_timeout_micros { value: 1000 }
# The most batches that wait. With more, requests fail at once instead of late.
max_enqueued_batches { value: 100 }
"""


def batching_files(inputs: Sequence[tf.TensorSpec]) -> dict[str, str]:
    """Returns the file of a SavedModel's folder, by name, or none if requests cannot be joined.

    Args:
        inputs: the specifications of the signature's inputs. Requests are joined along the first
            axis, so any other axes would have to be of one size.
    """
    return {BATCHING: _PARAMETERS} if all(spec.shape.rank == 1 for spec in inputs) else {}
