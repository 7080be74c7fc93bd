"""The batching parameters of exported classifiers."""

import tensorflow as tf
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from export.text_models import BATCHING, batching_files

# Fields of tensorflow_serving/servables/tensorflow/session_bundle_config.proto.
_MESSAGE = """
name: "config.proto" package: "serving" syntax: "proto3"
dependency: "google/protobuf/wrappers.proto"
message_type { name: "BatchingParameters"
  field { name: "max_batch_size" number: 1 type: TYPE_MESSAGE
          type_name: ".google.protobuf.Int64Value" }
  field { name: "batch_timeout_micros" number: 2 type: TYPE_MESSAGE
          type_name: ".google.protobuf.Int64Value" }
  field { name: "max_enqueued_batches" number: 3 type: TYPE_MESSAGE
          type_name: ".google.protobuf.Int64Value" } }
"""


def test_tensorflow_serving_can_read_the_parameters():
    """Oracle: the message of tensorflow_serving's session_bundle_config.proto."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    file = text_format.Parse(_MESSAGE, descriptor_pb2.FileDescriptorProto())
    pool.AddSerializedFile(file.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("serving.BatchingParameters"))
    pair = [tf.TensorSpec([None], tf.string, name) for name in ("text", "text_b")]
    parameters = text_format.Parse(batching_files(pair)[BATCHING], kind())
    assert {field.name: value.value for field, value in parameters.ListFields()} == {
        "max_batch_size": 128,
        "batch_timeout_micros": 1000,
        "max_enqueued_batches": 100,
    }


def test_choices_have_no_parameters():
    """Oracle: requests with two and with three choices cannot be joined."""
    inputs = [tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.string)]
    assert batching_files(inputs) == {}
