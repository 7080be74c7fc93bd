"""Models in single files, as export.lite and export.onnx write them, and classifiers among them."""

import io
import os
import threading
import warnings
import zipfile
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.files import parse_json, read_file
from bert_tf.base.process import needed, silent
from bert_tf.config import EMBEDDING, Head
from bert_tf.finetuning.fine_tuned import classifier_task
from bert_tf.finetuning.serving import ServingModule
from bert_tf.finetuning.tasks.tagging import TaggingTask
from bert_tf.inference.inference_options import LITE, ONNX
from bert_tf.inference.text_embedder import embedding_module
from bert_tf.jobs.workers import available_cores
from bert_tf.models.inputs import INPUTS
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.text.tokenizer_files import TOKENIZER, VOCAB
from tfrecords.vocabulary import Vocabulary

# What a classifier, a tagger or an embedder reads and predicts, in its file.
CLASSIFIER = "classifier.json"
# The names that programs for ONNX models of BERT expect, in the order of `INPUTS`.
ONNX_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Ours, for the outputs of an encoder.
_OUTPUTS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
# Far more than any vocabulary takes.
_MOST_BYTES = 1 << 26
Arrays = Mapping[str, np.ndarray]
# The kind of classifier.json: the kind of head, and the arguments of `classifier_task`.
_CLASSIFIER = {"labels": list[str], "pairs?": bool, "multi_label?": bool, "label_separator?": str}
_CLASSIFIER |= {"kind?": str}
_TOKENIZER = {"model_max_length": int, "do_lower_case?": bool | None}


class LiteFile:
    """A LiteRT model and the texts behind it: vocabulary and JSON files, by name."""

    def __init__(self, data: bytes):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise ValueError("its archive is too large")
            self.texts = {name: archive.read(name).decode() for name in archive.namelist()}
        # It warns that a package of its own will replace tf.lite.
        with silent(), warnings.catch_warnings(action="ignore"):
            interpreter = tf.lite.Interpreter(model_content=data, num_threads=available_cores())
            interpreter.allocate_tensors()
        self._run = interpreter.get_signature_runner()
        # Inputs and outputs are places in the interpreter, which threads would overwrite.
        self._lock = threading.Lock()

    def run(self, inputs: Arrays, pad_id: int = 0) -> Arrays:
        """Maps the encoder's inputs by name, int32 [B, S], to the model's outputs by name.

        The model computes one example at a time, padded with `pad_id` to the length that it has;
        outputs of tokens, [B, S, ...], are cut to S.
        """
        own = inputs[INPUTS[0]].shape[1]
        length = self._run.get_input_details()[INPUTS[0]]["shape"][1]
        padding = dict.fromkeys(INPUTS, 0) | {INPUTS[0]: pad_id}
        padded = {
            name: np.pad(x, [(0, 0), (0, length - own)], constant_values=padding[name])
            for name, x in inputs.items()
        }
        with self._lock:
            rows = [
                self._run(**{name: x[row : row + 1] for name, x in padded.items()})
                for row in range(len(padded[INPUTS[0]]))
            ]
        found = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        return {name: x[:, :own] if x.ndim == 3 else x for name, x in found.items()}


class OnnxFile:
    """An ONNX model and the texts in its metadata, like a `LiteFile`."""

    def __init__(self, data: bytes):
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only
        self._session = onnxruntime.InferenceSession(
            data, options, providers=["CPUExecutionProvider"]
        )
        self.texts = self._session.get_modelmeta().custom_metadata_map

    def run(self, inputs: Arrays, pad_id: int = 0) -> Arrays:
        """Does the same for the whole batch at once, without more padding."""
        names = [output.name for output in self._session.get_outputs() if output.name != "logits"]
        columns = [np.asarray(inputs[name], np.int64) for name in INPUTS]
        found = self._session.run(names, dict(zip(ONNX_INPUTS, columns, strict=True)))
        return {_OUTPUTS.get(n, n): values for n, values in zip(names, found, strict=True)}


# By the ends of their names; also the commands that write them.
FILE_FORMS = {LITE: (LiteFile, "export.lite"), ONNX: (OnnxFile, "export.onnx")}


def import_onnxruntime() -> ModuleType:
    """Returns onnxruntime; raises a ValueError if it is not installed."""
    with needed("onnxruntime", "ONNX models need"):
        import onnxruntime
    return onnxruntime


class FileModel:
    """A model in a file that is called like a `BertTaskModel`, or like a `BertEmbedder`.

    Call: the encoder's inputs, int32 [B, S] -> what `outputs_of` returns.
    """

    variables = ()

    def __init__(self, file: LiteFile | OnnxFile, head: Head, pad_id: int):
        self._file, self._head, self._pad_id = file, head, pad_id

    def __call__(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        def compute(*columns):
            found = self._file.run(dict(zip(inputs, columns, strict=True)), self._pad_id)
            return outputs_of(found, self._head)

        head, outputs = self._head, tf.numpy_function(compute, [*inputs.values()], tf.float32)
        if head.kind == EMBEDDING:
            return tf.ensure_shape(outputs, [None, None])
        axes = [None, None] if head.kind == "tagger" else [None]
        return tf.ensure_shape(outputs, [*axes, len(head.labels)] if head.labels else axes)


def outputs_of(found: Arrays, head: Head) -> np.ndarray:
    """Returns the vectors, the values, or the logits from which a model made its outputs."""
    if not head.labels:
        return found["embedding" if head.kind == EMBEDDING else "value"]
    # Logits of classes that exclude each other are known only up to a constant.
    tiny = np.finfo(np.float32).tiny
    logits = np.log(np.maximum(found["probabilities"], tiny))
    if head.multi_label:
        logits -= np.log(np.maximum(1.0 - found["probabilities"], tiny))
    return logits


def _reader(
    labels: list[str], kind: str = "", **about: Any
) -> tuple[Head, Callable[..., ServingModule]]:
    """Returns the head that the content of `CLASSIFIER` describes, and what builds its module."""
    if kind == EMBEDDING:
        return Head(EMBEDDING), embedding_module
    task = TaggingTask(labels=labels) if kind == "tagger" else classifier_task(labels, **about)
    return task.head, task.serving


def open_single_file(path: str) -> ServingModule:
    """Returns what maps text to the predictions of a classifier, tagger or embedder in a file."""
    form, writer = FILE_FORMS[os.path.splitext(path)[1]]
    if form is OnnxFile:
        import_onnxruntime()
    data = read_file(path)
    try:
        file = form(data)
        texts = file.texts
        about = CLASSIFIER in texts and parse_json(texts[CLASSIFIER], _CLASSIFIER)
        reader = about and _reader(**about)
        tokenizer = parse_json(texts[TOKENIZER], _TOKENIZER) if TOKENIZER in texts else {}
        tokens = texts.get(VOCAB, "").split("\n")[:-1]
        vocab = Vocabulary.from_values(tokens, tokenizer) if tokens else None
    except Exception as error:  # The libraries raise many types for files that were changed.
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is damaged, or {writer} did not write it ({reason}): export it again"
        ) from None
    if not reader:
        raise ValueError(
            f"{path} is not a classifier, tagger or embedder of this version of {writer}: export "
            "it again, from a fine-tuned model"
        )
    if not vocab or tokenizer.get("do_lower_case") is None:
        raise ValueError(
            f"{path} lacks its vocabulary or casing, as the checkpoint does: put vocab.txt and a "
            "tokenizer_config.json with do_lower_case beside the checkpoint, and export it again"
        )
    reads = make_tokenizer(vocab, tokenizer["do_lower_case"])
    model = FileModel(file, reader[0], vocab.pad_id)
    module = reader[1](model, reads, tokenizer["model_max_length"])
    if module.truncates:
        module.truncates = ("example", f"{writer} --max_seq_length")
    return module
