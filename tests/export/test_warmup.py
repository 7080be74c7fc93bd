"""Warm-up requests, against those of tensorflow-serving-api."""

import pytest
import tensorflow as tf

from export.warmup import parse_warmup_request, warmup_request, warmup_requests

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
    specs = [tf.TensorSpec([None], tf.string, name) for name in inputs]
    short, long = warmup_requests(specs)
    assert short == GOLDEN
    signature, tensors = parse_warmup_request(long)
    assert signature == "serving_default"
    assert all(tensors[name].shape == [1] and tensors[name].dtype == tf.string for name in inputs)


@pytest.mark.parametrize(
    "record, match", [(b"\xff\xff", "not a PredictionLog"), (b"", "not a request to predict")]
)
def test_other_records_are_refused(record, match):
    """Oracle: bytes that are no message; a message without a request."""
    with pytest.raises(ValueError, match=match):
        parse_warmup_request(record)
