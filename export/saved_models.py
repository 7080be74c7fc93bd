"""Saves folders with a SavedModel, also as .tar.gz with the same bytes every time."""

import atexit
import gzip
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.base.output_files import atomic_write, check_new_folder, whole_file, whole_folder
from bert_tf.runs.run import TOKENIZER, VOCAB, Run
from bert_tf.training.checkpoints import check_name
from tfrecords.vocabulary import Vocabulary, write_vocab
from tfrecords.writer import write_records


def write_archive(folder: str, path: str) -> None:
    """Writes the content of a folder to a .tar.gz, whole or not at all.

    Names in the archive are relative to the folder, which is its root, and sorted. There are no
    times, owners or links.
    """
    with (
        whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|") as archive,
    ):
        for parent, folders, names in tf.io.gfile.walk(folder):
            folders.sort()
            if parent.rstrip("/") != folder.rstrip("/"):
                entry = tarfile.TarInfo(os.path.relpath(parent, folder))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            for path in (os.path.join(parent, name) for name in sorted(names)):
                entry = tarfile.TarInfo(os.path.relpath(path, folder))
                entry.size = tf.io.gfile.stat(path).length
                with tf.io.gfile.GFile(path, "rb") as content:
                    archive.addfile(entry, content)


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
