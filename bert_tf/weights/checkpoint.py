"""A checkpoint of any format, with this project's names for the weights."""

import dataclasses
import fnmatch
from collections.abc import Collection, Mapping

from bert_tf.config import Head, ModelSpec
from bert_tf.training.checkpoints import Tensor


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The weights of a model, and what is known about the model.

    Attributes:
        path: the path that messages name.
        format: the name of a foreign format; "" for our own.
        spec: configuration, vocabulary and casing.
        tensors: the weights by the paths of our models; see `weights.names`.
        head: what `task_model/head` predicts, if the checkpoint has such a head.
        config_file, vocab_file: the files of configuration and vocabulary, if there are any.
        sentencepiece_file: a vocabulary that came with the checkpoint but cannot be read.
        unused: the names in the file that stand for no weight, such as optimizer states.
    """

    path: str
    format: str
    spec: ModelSpec
    tensors: Mapping[str, Tensor]
    head: Head | None = None
    config_file: str | None = None
    vocab_file: str | None = None
    sentencepiece_file: str | None = None
    unused: tuple[str, ...] = ()


def matches(name: str, patterns: Collection[str]) -> bool:
    """Returns whether a name matches one of the patterns, in which * stands for any characters."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
