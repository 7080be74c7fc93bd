"""Tells TensorFlow Serving how to batch the requests of concurrent clients.

Source: tensorflow/serving batching/README.md; session_bundle_config.proto `BatchingParameters`.
"""

from collections.abc import Sequence

import tensorflow as tf

BATCHING = "batching_params.pbtxt"

# benchmarks/serving.py compares sizes of batches and waiting times.
_PARAMETERS = """\
# TensorFlow Serving reads this file if it is started with
#   --enable_batching --enable_per_model_batching_parameters
# The most examples in a batch. The server refuses a request with more.
max_batch_size { value: 128 }
# How long an example waits for others, in microseconds:
batch_timeout_micros { value: 1000 }
# The most batches that wait. With more, requests fail at once instead of late.
max_enqueued_batches { value: 100 }
"""


def batching_files(inputs: Sequence[tf.TensorSpec]) -> dict[str, str]:
    """Returns the file of a SavedModel's folder, by name, or none if requests cannot be joined.

    Args:
        inputs: the specifications of the signature's inputs. Requests are joined along the first
            axis, so all other axes must have the same size in every request.
    """
    return {BATCHING: _PARAMETERS} if all(spec.shape.rank == 1 for spec in inputs) else {}
