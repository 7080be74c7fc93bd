"""What exported classifiers hold for TensorFlow Serving: warm-up requests, batching parameters."""

import tensorflow as tf

from export.text_models import (
    BATCHING,
    batching_files,
    parse_warmup_request,
    warmup_request,
    warmup_requests,
)

PAIR = [tf.TensorSpec([None], tf.string, name) for name in ("text", "text_b")]
# What tensorflow-serving-api 2.21 writes for a PredictionLog with predict_log.request:
#   request.model_spec.signature_name = "serving_default"
#   request.inputs[name].CopyFrom(tf.make_tensor_proto(["a text"]))  # for "text" and "text_b"
# with SerializeToString(deterministic=True).
GOLDEN = bytes.fromhex(
    "324b0a490a111a0f73657276696e675f64656661756c74121a0a06746578745f62121008071204120208014206"
    "612074657874"
    "12180a0474657874121008071204120208014206612074657874"
)


def test_requests_are_those_of_tensorflow_serving():
    """Oracle: bytes written with tensorflow-serving-api."""
    inputs = {name: tf.constant(["a text"]) for name in ("text", "text_b")}
    assert warmup_request(inputs) == GOLDEN
    short, long = warmup_requests(PAIR)
    assert short == GOLDEN
    signature, tensors = parse_warmup_request(long)
    assert signature == "serving_default"
    assert all(tensors[name].shape == [1] and tensors[name].dtype == tf.string for name in inputs)


def test_batching_parameters():
    """Oracle: the fields of `BatchingParameters` in tensorflow_serving's
    session_bundle_config.proto, each an Int64Value in text format."""
    lines = batching_files(PAIR)[BATCHING].splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "max_batch_size { value: 128 }",
        "batch_timeout_micros { value: 1000 }",
        "max_enqueued_batches { value: 100 }",
    ]
    # Requests with two and with three choices cannot be joined.
    choices = tf.TensorSpec([None, None], tf.string, "choices")
    assert batching_files([PAIR[0], choices]) == {}
