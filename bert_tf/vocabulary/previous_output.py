"""Recognizes a vocabulary that the same command wrote before, so that no other is replaced.

The manifest beside a vocabulary records its checksum, and the flags and the text it was built from.
Files of text are compared by size and modification time, because reading them may take minutes.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable

import tensorflow as tf

from bert_tf import __version__
from bert_tf.vocabulary.options import VocabularyOptions
from tfrecords.files import read_file
from tfrecords.manifest import MANIFEST_END, file_sha256
from tfrecords.vocabulary import Vocabulary
from tfrecords.writer import atomic_write

# These change where and how fast the vocabulary is written, but not its tokens.
_IRRELEVANT = ("input_file", "output_file", "report_vocab", "num_workers", "overwrite")


class Provenance:
    """The flags and the text of a vocabulary, as they are before it is built."""

    def __init__(self, options: VocabularyOptions, files: Iterable[str]) -> None:
        self._output_file = options.output_file
        self._manifest_file = options.output_file + MANIFEST_END
        self._overwrite = options.overwrite
        settings = dataclasses.asdict(options)
        self._manifest = {
            "bert_tf": __version__,
            "settings": {name: settings[name] for name in settings if name not in _IRRELEVANT},
            "inputs": [_describe(file) for file in files],
        }
        if options.extend_vocab:
            self._manifest["extend_vocab"] = file_sha256(options.extend_vocab)

    def is_complete(self) -> bool:
        """Returns whether the vocabulary exists and was built with these flags from this text.

        Raises:
            ValueError: it exists and has another origin, and --overwrite is not given.
        """
        if not tf.io.gfile.exists(self._output_file):
            return False
        expected = self._manifest | {"sha256": file_sha256(self._output_file)}
        if self._recorded() == expected:
            return True
        if self._overwrite:
            return False
        raise ValueError(
            f"{self._output_file} exists, and this command did not write it from this text: name "
            "another --output_file, or replace it with --overwrite"
        )

    def write(self, vocab: Vocabulary) -> None:
        """Writes the manifest that describes the finished vocabulary."""
        content = vocab.text.encode()
        manifest = self._manifest | {"sha256": hashlib.sha256(content).hexdigest()}
        atomic_write(self._manifest_file, json.dumps(manifest, indent=2) + "\n")

    def _recorded(self) -> object:
        try:
            return json.loads(read_file(self._manifest_file))
        except (OSError, ValueError):
            return None


def _describe(file: str) -> dict:
    stat = tf.io.gfile.stat(file)
    return {"file": file, "bytes": stat.length, "modified": stat.mtime_nsec}
