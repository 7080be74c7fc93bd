"""What a pre-training run leaves in its folder about itself, so that it is gone on with rightly."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.weights.growing import VocabularyMapping
from tfrecords.writer import absolute_path, atomic_write

CONFIG = "bert_config.json"
FLAGS = "flags.json"
_SPLIT_FILES = "split_files"
# Where a run goes on, and on how many machines, changes nothing in what it learns.
_MAY_CHANGE = frozenset(["output_dir", "worker_hosts", "task_index", "strategy", "use_tpu"])


def save_flags(folder: str, flags: Mapping[str, Any], split_files: Sequence[str]) -> None:
    """Writes the flags of the training that begins, and the files it holds records out of."""
    split = {*files_split_by(folder), *map(absolute_path, split_files)}
    content = json.dumps({**flags, _SPLIT_FILES: sorted(split)}, indent=2)
    atomic_write(os.path.join(folder, FLAGS), content + "\n")


def changed_flags(folder: str, flags: Mapping[str, Any]) -> list[str]:
    """The flags that are not what they were at the last start, as "--name 1 -> 2"."""
    saved = _saved_flags(folder)
    return [
        f"--{name} {saved[name]} -> {flags[name]}"
        for name in sorted(saved.keys() & flags.keys() - _MAY_CHANGE)
        if saved[name] != flags[name]
    ]


def files_split_by(folder: str) -> list[str]:
    """The absolute paths of files of which the run in a folder trains on a part."""
    return _saved_flags(folder).get(_SPLIT_FILES, [])


def other_config(
    folder: str, config: BertConfig, mapping: VocabularyMapping | None = None
) -> str | None:
    """The path of the configuration of a folder's checkpoints, where it differs from `config`.

    With a mapping it may also differ by what the vocabulary grows.
    """
    path = os.path.join(folder, CONFIG)
    if not (tf.io.gfile.exists(path) and tf.io.gfile.glob(os.path.join(folder, "*.index"))):
        return None
    saved = BertConfig.from_json_file(path)
    return path if (mapping.grow_config(saved) if mapping else saved) != config else None


def _saved_flags(folder: str) -> dict[str, Any]:
    """The flags of the last training in a folder; {} without one.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(folder, FLAGS)
    if not tf.io.gfile.exists(path):
        return {}
    try:
        with tf.io.gfile.GFile(path) as file:
            return dict(json.load(file))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it") from None
