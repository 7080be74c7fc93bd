"""Writes SavedModels that read text: what classifiers and embedders share."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from bert_tf.finetuning.serving import ServingModule
from bert_tf.models.encoder import skip_padding
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import Checkpoint
from export.export_options import ModelOptions
from export.int8_weights import Int8Model
from export.saved_models import add_vocab, license_of, save_model
from export.warmup import WARMUP, warmup_requests

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
    int8, before = precision == "int8", keras.config.dtype_policy()
    # The precision of the export does not depend on that of training.
    keras.config.set_dtype_policy("float32" if int8 else precision)
    model = build_model()
    skip_padding(model)
    keras.config.set_dtype_policy(before)
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


def batching_files(inputs: Sequence[tf.TensorSpec]) -> dict[str, str]:
    """Returns the file of a SavedModel's folder, by name, or none if requests cannot be joined.

    They are joined along the first axis, so all other axes must have fixed sizes.
    """
    return {BATCHING: _PARAMETERS} if all(spec.shape.rank == 1 for spec in inputs) else {}
