"""Warm-up requests, which TensorFlow Serving replays when it loads a model.

Without them, the first requests of a server are slow. A request is a PredictionLog of
tensorflow-serving-api. To do without that package, its few messages are described below, with the
tensors of a request as bytes, which have the same form on disk.

Source: tensorflow/serving docs saved_model_warmup.md; apis/prediction_log.proto, predict.proto,
model.proto.
"""

from collections.abc import Sequence

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow.core.framework import tensor_pb2

WARMUP = "assets.extra/tf_serving_warmup_requests"

_MESSAGES = """
name: "warmup.proto" package: "warmup" syntax: "proto3"
message_type { name: "ModelSpec" field { name: "signature_name" number: 3 type: TYPE_STRING } }
message_type { name: "PredictRequest"
  field { name: "model_spec" number: 1 type: TYPE_MESSAGE type_name: ".warmup.ModelSpec" }
  field { name: "inputs" number: 2 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".warmup.PredictRequest.InputsEntry" }
  nested_type { name: "InputsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_BYTES } } }
message_type { name: "PredictLog"
  field { name: "request" number: 1 type: TYPE_MESSAGE type_name: ".warmup.PredictRequest" } }
message_type { name: "PredictionLog"
  field { name: "predict_log" number: 6 type: TYPE_MESSAGE type_name: ".warmup.PredictLog" } }
"""


_POOL = descriptor_pool.DescriptorPool()
_FILE = text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto())
_POOL.AddSerializedFile(_FILE.SerializeToString())
_PredictionLog = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("warmup.PredictionLog")
)


def warmup_requests(inputs: Sequence[tf.TensorSpec]) -> list[bytes]:
    """Returns requests for strings [B] or [B, K]: a short text, and one to be truncated."""
    texts = ("a text", "many words " * 512)
    return [
        warmup_request({spec.name: tf.fill([1, 2][: spec.shape.rank], text) for spec in inputs})
        for text in texts
    ]


def warmup_request(inputs: dict[str, tf.Tensor]) -> bytes:
    """Returns a request as a serialized PredictionLog."""
    log = _PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = "serving_default"
    for name, tensor in inputs.items():
        request.inputs[name] = tf.make_tensor_proto(tensor).SerializeToString()
    return log.SerializeToString(deterministic=True)


def parse_warmup_request(record: bytes) -> tuple[str, dict[str, tf.Tensor]]:
    """Returns the signature and the inputs of a request."""
    request = _PredictionLog.FromString(record).predict_log.request
    inputs = {
        name: tf.constant(tf.make_ndarray(tensor_pb2.TensorProto.FromString(value)))
        for name, value in request.inputs.items()
    }
    return request.model_spec.signature_name or "serving_default", inputs
