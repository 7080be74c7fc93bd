"""Runs the ONNX models that export.onnx writes."""

from collections.abc import Mapping

import numpy as np

from bert_tf.config import Head
from bert_tf.inference.runners import Runner, RunnerModel, outputs_of
from bert_tf.models.inputs import INPUTS

# The names that programs for ONNX models of BERT expect, in the order of `INPUTS`.
NAMES = ("input_ids", "attention_mask", "token_type_ids")
# Ours, for the outputs of an encoder.
_OUTPUTS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
INSTALL = "pip install 'bert-tf[onnx]'"


def read_texts(data: bytes) -> dict[str, str]:
    """Returns the texts in the metadata of a model, by name."""
    return dict(_session(data).get_modelmeta().custom_metadata_map)


def make_model(data: bytes, head: Head, length: int, pad_id: int) -> RunnerModel:
    """Returns the classifier in a file."""
    run = runner(data)
    return RunnerModel(lambda inputs: outputs_of(run(**inputs), head), head)


def runner(data: bytes) -> Runner:
    """Returns a function that runs an ONNX model: the encoder's inputs -> outputs by our names."""
    session = _session(data)
    names = [output.name for output in session.get_outputs() if output.name != "logits"]

    def run(**inputs: np.ndarray) -> Mapping[str, np.ndarray]:
        theirs = {
            name: np.asarray(inputs[ours], np.int64)
            for name, ours in zip(NAMES, INPUTS, strict=True)
        }
        found = zip(names, session.run(names, theirs), strict=True)
        return {_OUTPUTS.get(name, name): values for name, values in found}

    return run


def _session(data: bytes):
    try:
        import onnxruntime
    except ImportError:
        raise ValueError(f"ONNX models need onnxruntime: {INSTALL}") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no base class of their own
        raise ValueError(str(error).partition("\n")[0]) from None
