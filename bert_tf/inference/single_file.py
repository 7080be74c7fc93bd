"""Classifiers in a single file, as export.lite and export.onnx write them, applied to text."""

import contextlib
import json
import zipfile
from collections.abc import Iterator, Mapping

from bert_tf.finetuning.fine_tuned import classifier_task
from bert_tf.finetuning.serving import TextModule
from bert_tf.inference.inference_options import LITE, ONNX
from bert_tf.inference.lite import LiteFile
from bert_tf.inference.runners import CLASSIFIER
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.files import read_file
from tfrecords.vocabulary import Vocabulary

# What reading a changed file raises.
_DAMAGE = (zipfile.BadZipFile, ValueError, TypeError, AttributeError, KeyError, RuntimeError)


def is_single_file(path: str) -> bool:
    """Returns whether a path ends like one of these files."""
    return path.endswith((LITE, ONNX))


def open_single_file(path: str) -> TextModule:
    """Returns what maps text to the predictions of a classifier in a file."""
    form, writer = _form(path)
    data = read_file(path)
    with _damage(path, writer):
        file = form(data)
        vocab, tokenizer, about = _read(file.texts)
        task = about and classifier_task(**about)
    if not task:
        raise ValueError(
            f"{path} is no classifier that this version of {writer} wrote: export it again, "
            "from a fine-tuned model"
        )
    if tokenizer.get("do_lower_case") is None:
        raise ValueError(
            f"{path} lacks its vocabulary or casing, as the checkpoint does: put vocab.txt and a "
            "tokenizer_config.json with do_lower_case beside the checkpoint, and export it again"
        )
    with _damage(path, writer):
        length = tokenizer["model_max_length"]
        model = file.model(task.head, length, vocab.pad_id)
        wordpiece = WordPieceTokenizer(vocab, tokenizer["do_lower_case"])
        module = task.serving(model, wordpiece, length)
    module.truncates = ("example", f"{writer} --max_seq_length")
    return module


def _form(path: str) -> tuple[type, str]:
    """Returns the class for a file, and the command that writes such files."""
    if path.endswith(LITE):
        return LiteFile, "export.lite"
    # Needs a package that is not always there.
    from bert_tf.inference.onnx import OnnxFile

    return OnnxFile, "export.onnx"


@contextlib.contextmanager
def _damage(path: str, writer: str) -> Iterator[None]:
    """Turns what a changed file causes into a ValueError that names the file."""
    try:
        yield
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is damaged, or {writer} did not write it ({reason}): export it again"
        ) from None


def _read(texts: Mapping[str, str]) -> tuple[Vocabulary | None, dict, dict]:
    """Returns the vocabulary, tokenizer_config.json and classifier.json beside a model."""
    lines = texts.get("vocab.txt", "").split("\n")[:-1]
    tokenizer = json.loads(texts.get("tokenizer_config.json", "{}"))
    return (
        Vocabulary.from_values(lines, tokenizer) if lines else None,
        tokenizer,
        json.loads(texts.get(CLASSIFIER, "{}")),
    )
