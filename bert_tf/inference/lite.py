"""LiteRT models of classifiers, as export.lite writes them, applied to text."""

import contextlib
import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.fine_tuned import classifier_task
from bert_tf.finetuning.serving import TextModule
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.files import read_file
from tfrecords.vocabulary import Vocabulary

# What a classifier reads and predicts, in the zip archive behind the model.
CLASSIFIER = "classifier.json"
# Far more than any vocabulary takes.
_MOST_BYTES = 1 << 26
# What reading a changed file raises.
_DAMAGE = (zipfile.BadZipFile, ValueError, TypeError, AttributeError, KeyError, RuntimeError)


def open_lite(path: str) -> TextModule:
    """Returns what maps text to the predictions of a LiteRT classifier."""
    data = read_file(path)
    with _damage(path):
        vocab, tokenizer, about = _read(data)
        task = about and classifier_task(**about)
    if not task:
        raise ValueError(
            f"{path} is no classifier that this version of export.lite wrote: export it again, "
            "from a fine-tuned model"
        )
    if tokenizer.get("do_lower_case") is None:
        raise ValueError(
            f"{path} lacks its vocabulary or casing, as the checkpoint does: put vocab.txt and a "
            "tokenizer_config.json with do_lower_case beside the checkpoint, and export it again"
        )
    with _damage(path):
        length = tokenizer["model_max_length"]
        model = LiteModel(data, task.head, length, vocab.pad_id)
        wordpiece = WordPieceTokenizer(vocab, tokenizer["do_lower_case"])
        module = task.serving(model, wordpiece, length)
    module.truncates = ("example", "export.lite --max_seq_length")
    return module


@contextlib.contextmanager
def _damage(path: str) -> Iterator[None]:
    """Turns what a changed file causes into a ValueError that names the file."""
    try:
        yield
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is damaged, or export.lite did not write it ({reason}): export it again"
        ) from None


def _read(data: bytes) -> tuple[Vocabulary | None, dict, dict]:
    """Returns the vocabulary, tokenizer_config.json and classifier.json behind a model."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
            raise ValueError("its archive is too large")
        names = {"vocab.txt", "tokenizer_config.json", CLASSIFIER} & set(archive.namelist())
        files = {name: archive.read(name).decode() for name in names}
    lines = files.get("vocab.txt", "").split("\n")[:-1]
    tokenizer = json.loads(files.get("tokenizer_config.json", "{}"))
    return (
        Vocabulary.from_values(lines, tokenizer) if lines else None,
        tokenizer,
        json.loads(files.get(CLASSIFIER, "{}")),
    )


class LiteModel:
    """A LiteRT classifier that is called like a `BertTaskModel`.

    Args:
        data: what export.lite wrote.
        head: what the model predicts.
        length: the tokens of its inputs.
        pad_id: the id of [PAD].

    Call: the encoder's inputs, int32 [B, up to `length`] -> logits [B, C], or values [B] if there
    are no labels. The model computes one example at a time.
    """

    variables = ()

    def __init__(self, data: bytes, head: Head, length: int, pad_id: int):
        self._run, self._head = runner(data), head
        self._length, self._pad_id = length, pad_id

    def __call__(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        def compute(*columns):
            found = []
            for row in zip(*columns, strict=True):
                padded = np.zeros((len(row), 1, self._length), np.int32)
                named = dict(zip(inputs, padded, strict=True))
                named["input_word_ids"][:] = self._pad_id
                padded[:, 0, : len(row[0])] = row
                found.append(outputs_of(self._run(**named), self._head))
            return np.concatenate(found)

        outputs = tf.numpy_function(compute, [*inputs.values()], tf.float32)
        labels = self._head.labels
        return tf.ensure_shape(outputs, [None, len(labels)] if labels else [None])


def runner(model: bytes) -> Callable[..., dict[str, np.ndarray]]:
    """Returns a function that runs a LiteRT model: its inputs by name -> its outputs by name."""
    with silent(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a package of its own will replace tf.lite
        interpreter = tf.lite.Interpreter(model_content=model, num_threads=os.cpu_count())
        interpreter.allocate_tensors()
    return interpreter.get_signature_runner()


def outputs_of(found: Mapping[str, np.ndarray], head: Head) -> np.ndarray:
    """Returns the logits, or the values, from which a LiteRT classifier made its outputs.

    Logits of classes that exclude each other are known only up to a constant.
    """
    if not head.labels:
        return np.asarray(found["value"])
    probabilities = np.asarray(found["probabilities"])
    tiny = np.finfo(np.float32).tiny
    logits = np.log(np.maximum(probabilities, tiny))
    if head.multi_label:
        logits -= np.log(np.maximum(1.0 - probabilities, tiny))
    return logits


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Hides what LiteRT's C++ code writes to standard error."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
