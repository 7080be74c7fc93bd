"""Runs the ONNX models that export.onnx writes."""

from collections.abc import Mapping

import numpy as np

from bert_tf.config import Head
from bert_tf.inference.runners import Runner, RunnerModel, outputs_of
from bert_tf.models.inputs import INPUTS

try:
    import onnxruntime
except ImportError:
    raise ValueError("ONNX models need onnxruntime: pip install onnxruntime") from None

# The names that programs for ONNX models of BERT expect, in the order of `INPUTS`.
NAMES = ("input_ids", "attention_mask", "token_type_ids")
# Ours, for the outputs of an encoder.
_OUTPUTS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}


class OnnxFile:
    """An ONNX model and the texts in its metadata.

    Attributes:
        texts: the vocabulary, tokenizer_config.json and classifier.json, by name.
    """

    def __init__(self, data: bytes):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        try:
            self._session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors have no base class of their own
            raise ValueError(str(error).partition("\n")[0]) from None
        self.texts = dict(self._session.get_modelmeta().custom_metadata_map)

    def model(self, head: Head, length: int, pad_id: int) -> RunnerModel:
        """Returns the classifier, for batches of any size and length."""
        return RunnerModel(lambda inputs: outputs_of(self.run(**inputs), head), head)

    def run(self, **inputs: np.ndarray) -> Mapping[str, np.ndarray]:
        """Maps the encoder's inputs to the outputs under our names; a `Runner`."""
        names = [output.name for output in self._session.get_outputs() if output.name != "logits"]
        theirs = {
            name: np.asarray(inputs[ours], np.int64)
            for name, ours in zip(NAMES, INPUTS, strict=True)
        }
        found = zip(names, self._session.run(names, theirs), strict=True)
        return {_OUTPUTS.get(name, name): values for name, values in found}


def runner(data: bytes) -> Runner:
    """Returns a function that runs an ONNX model."""
    return OnnxFile(data).run
