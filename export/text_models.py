"""Writes SavedModels that read text: what classifiers and embedders share.

TensorFlow Serving replays warm-up requests when it loads a model; without them, its first requests
are slow. A request is a PredictionLog of tensorflow-serving-api, written here without that package.

Source: tensorflow/serving docs saved_model_warmup.md; apis/prediction_log.proto, predict.proto,
model.proto.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from bert_tf.finetuning.serving import ServingModule
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import Checkpoint
from export.encoder_module import Int8Model
from export.export_options import ModelOptions
from export.saved_models import add_vocab, license_of, save_model
from tfrecords.features import length_delimited

WARMUP = "assets.extra/tf_serving_warmup_requests"


def warmup_requests(inputs: Sequence[tf.TensorSpec]) -> list[bytes]:
    """Returns requests for strings [B] or [B, K]: a short text, and one to be truncated."""
    texts = ("a text", "many words " * 512)
    return [
        warmup_request({spec.name: tf.fill([1, 2][: spec.shape.rank], text) for spec in inputs})
        for text in texts
    ]


def warmup_request(inputs: dict[str, tf.Tensor]) -> bytes:
    """Returns a request as a serialized PredictionLog."""
    tensors = {name: tf.make_tensor_proto(x).SerializeToString() for name, x in inputs.items()}
    entries = (_field(1, name.encode()) + _field(2, data) for name, data in tensors.items())
    request = _field(1, _field(3, b"serving_default"))  # its model_spec, with a signature_name
    request += b"".join(_field(2, entry) for entry in entries)
    return _field(6, _field(1, request))


def _field(number: int, data: bytes) -> bytes:
    """Returns a field of a message: a string, or another serialized message."""
    return length_delimited(number, len(data)) + data


BATCHING = "batching_params.pbtxt"
# Source: tensorflow/serving batching/README.md; session_bundle_config.proto `BatchingParameters`.
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
_EXAMPLE = """
import tensorflow as tf
import tensorflow_text  # registers the tokenizer's operations

model = tf.saved_model.load("FOLDER")
outputs = model{call}
"""


def write_text_model(
    options: ModelOptions,
    checkpoint: Checkpoint,
    tokenizer: WordPieceTokenizer,
    build_model: Callable[[], keras.Model],
    make_module: Callable[[keras.Model | Int8Model], ServingModule],
    *,
    kind: str,
    about: str,
    call: str,
) -> None:
    """Writes a SavedModel with its vocabulary, model card, warm-up requests and batching advice.

    `build_model` is called under the policy of the precision. `kind` and `about` are those of the
    model card, and `call` is the arguments of an example call.
    """
    precision, source = options.precision, options.checkpoint
    int8 = precision == "int8"
    # The precision of the export does not depend on that of training.
    with _policy("float32" if int8 else precision):
        model = build_model()
    skip_padding(model)
    served = Int8Model(model) if int8 else model
    module = make_module(served)
    if int8:
        module.stored = served.stored
        about += " Its matrices are in 8 bits."
    elif precision != "float32":
        about += f" It computes in {precision}; its outputs are float32."
    add_vocab(module, tokenizer.vocab, tokenizer.lower_case)
    inputs = module.serving.input_signature
    save_model(
        module,
        module.serving,
        options.output_dir,
        kind,
        about,
        _EXAMPLE.format(call=call),
        tokenizer.vocab,
        tokenizer.lower_case,
        license=license_of(options.license, checkpoint),
        config=checkpoint.spec.config,
        run=checkpoint.run,
        converted_from=f"{source} ({checkpoint.format})" if checkpoint.format else None,
        files={WARMUP: warmup_requests(inputs)} | batching_files(inputs),
    )


@contextlib.contextmanager
def _policy(name: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def batching_files(inputs: Sequence[tf.TensorSpec]) -> dict[str, str]:
    """Returns the file of a SavedModel's folder, by name, or none if requests cannot be joined.

    They are joined along the first axis, so all other axes must have fixed sizes.
    """
    return {BATCHING: _PARAMETERS} if all(spec.shape.rank == 1 for spec in inputs) else {}
