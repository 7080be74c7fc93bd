"""Converts classifiers and encoders to ONNX."""

import logging
import os
import tempfile
from collections.abc import Mapping

from bert_tf.inference.onnx import NAMES, runner
from export import portable
from export.onnx import Options
from export.portable import Source


def export(options: Options) -> None:
    """Exports a model, compares it with the original, and prints what was written."""
    portable.export(
        options,
        lambda source, texts: convert(source, texts, options.quantize),
        runner,
        _how_to_run,
    )


def convert(source: Source, texts: Mapping[str, str], quantize: str = "none") -> bytes:
    """Returns the ONNX model of a classifier or an encoder.

    Args:
        texts: what to store in its metadata, by name.
        quantize: how the weights are stored: "none" (float32), or "int8", ONNX Runtime's dynamic
            quantization, which also computes in 8 bits and quantizes the inputs of matrix products
            as it runs.
    """
    try:
        import onnx
        from onnxruntime import quantization
    except ImportError:
        raise ValueError(
            "ONNX models need onnx and onnxruntime: pip install onnx onnxruntime"
        ) from None
    from export.onnx_graph import make_model

    model = make_model(source.model, source.task and source.task.head)
    if quantize == "int8":
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "int8.onnx")
            # It advises to simplify the graph first, which changes nothing here.
            logging.disable(logging.WARNING)
            try:
                quantization.quantize_dynamic(model, path, per_channel=True)
            finally:
                logging.disable(logging.NOTSET)
            model = onnx.load(path)
    onnx.helper.set_model_props(model, dict(texts))
    return model.SerializeToString()


def _how_to_run(path: str, source: Source) -> str:
    names = ", ".join(f'"{name}": ...' for name in NAMES)
    return (
        "To run it:\n  import onnxruntime\n"
        f"  session = onnxruntime.InferenceSession({path!r})\n"
        f"  session.run(None, {{{names}}})  # int64 [batch, sequence]"
    )
