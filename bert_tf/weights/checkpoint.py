"""A checkpoint of any format, with this project's names for the weights."""

import dataclasses
import fnmatch
from collections.abc import Callable, Collection, Mapping

from bert_tf.config import Head, ModelSpec
from bert_tf.training.checkpoints import Tensor
from tfrecords.vocabulary import Vocabulary


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
        sentencepiece_file: a vocabulary that came with the checkpoint but is not WordPiece.
        vocab_problem: why another vocabulary that came with the checkpoint cannot be used.
        casing_is_guess: whether no file states `spec.lower_case`.
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
    vocab_problem: str | None = None
    casing_is_guess: bool = False
    unused: tuple[str, ...] = ()

    @property
    def stated_casing(self) -> bool | None:
        """Whether text is lower-cased; None if no file states it."""
        return None if self.casing_is_guess else self.spec.lower_case


def usable_vocab(
    read: Callable[[], Vocabulary | None], source: str, vocab_size: int
) -> tuple[Vocabulary | None, str | None]:
    """Reads the vocabulary of a checkpoint, which a flag may replace.

    Args:
        read: reads it.
        source: its file or folder.
        vocab_size: that of the configuration.

    Returns:
        the vocabulary, or None if there is none that can be used; and why it cannot be used.
    """
    try:
        vocab = read()
    except (ValueError, OSError) as error:
        return None, str(error)
    if vocab and len(vocab) > vocab_size:
        return None, (
            f"{source} has {len(vocab)} tokens, more than the vocab_size {vocab_size} of the "
            "configuration: use files that belong together"
        )
    return vocab, None


def matches(name: str, patterns: Collection[str]) -> bool:
    """Returns whether a name matches one of the patterns, in which * stands for any characters."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
