"""Runs the LiteRT models that export.lite writes."""

import io
import os
import warnings
import zipfile
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.inference.runners import CLASSIFIER, Runner, RunnerModel, outputs_of
from tfrecords.process import silent

# Far more than any vocabulary takes.
_MOST_BYTES = 1 << 26


class LiteFile:
    """A LiteRT model and the texts behind it.

    Attributes:
        texts: the vocabulary, tokenizer_config.json and classifier.json, by name.
    """

    def __init__(self, data: bytes):
        self._data = data
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise ValueError("its archive is too large")
            names = {"vocab.txt", "tokenizer_config.json", CLASSIFIER} & set(archive.namelist())
            self.texts = {name: archive.read(name).decode() for name in names}

    def model(self, head: Head, length: int, pad_id: int) -> RunnerModel:
        """Returns the classifier. It computes one example at a time.

        Args:
            length: the tokens of its inputs.
            pad_id: the id of [PAD].
        """
        run = runner(self._data)

        def compute(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
            found = []
            for row in zip(*inputs.values(), strict=True):
                padded = np.zeros((len(row), 1, length), np.int32)
                named = dict(zip(inputs, padded, strict=True))
                named["input_word_ids"][:] = pad_id
                padded[:, 0, : len(row[0])] = row
                found.append(outputs_of(run(**named), head))
            return np.concatenate(found)

        return RunnerModel(compute, head)


def runner(data: bytes) -> Runner:
    """Returns a function that runs a LiteRT model: its inputs by name -> its outputs by name."""
    with silent(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a package of its own will replace tf.lite
        interpreter = tf.lite.Interpreter(model_content=data, num_threads=os.cpu_count())
        interpreter.allocate_tensors()
    return interpreter.get_signature_runner()
