"""Writes SavedModel folders that appear complete or not at all."""

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.runs.run import TOKENIZER, VOCAB, Run
from bert_tf.training.checkpoints import check_name
from tfrecords.vocabulary import Vocabulary, write_vocab
from tfrecords.writer import atomic_write, check_new_folder, whole_folder, write_records


def check_output(path: str) -> None:
    """Raises a ValueError unless a SavedModel can be written to `path` and loaded from there."""
    check_new_folder(path)
    check_name(path)


def add_vocab(module: tf.Module, vocab: Vocabulary, lower_case: bool) -> None:
    """Gives a module its vocabulary as the asset `vocab_file`.

    If the vocabulary has added tokens, the asset tokenizer_config.json holds them.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = Run(folder)
    write_vocab(files.file(VOCAB), vocab)
    module.vocab_file = tf.saved_model.Asset(files.file(VOCAB))
    if vocab.tokenizer_values():
        files.write_tokenizer(vocab, lower_case)
        module.tokenizer_config = tf.saved_model.Asset(files.file(TOKENIZER))


def save_folder(
    trackable: Any,
    path: str,
    signatures: Any,
    files: Mapping[str, str | Sequence[bytes]] | None = None,
) -> None:
    """Writes a SavedModel beside `path`, then renames it. Creates parent folders.

    Args:
        files: what else the folder holds, by name: text, or the records of a TFRecord file.
    """
    with whole_folder(path) as temporary:
        tf.saved_model.save(trackable, temporary, signatures=signatures)
        for name, content in (files or {}).items():
            write = atomic_write if isinstance(content, str) else write_records
            write(f"{temporary}/{name}", content)
