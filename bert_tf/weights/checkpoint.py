"""A checkpoint of any format, with this project's names for the weights."""

import dataclasses
import fnmatch
from collections.abc import Callable, Collection, Mapping

from bert_tf.config import Head, ModelSpec
from bert_tf.runs.run import Run
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
        run: the run that the checkpoint is part of; None for another program's.
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
    run: Run | None = None
    unused: tuple[str, ...] = ()

    @property
    def stated_casing(self) -> bool | None:
        """Whether text is lower-cased; None if no file states it."""
        return None if self.casing_is_guess else self.spec.lower_case


def with_vocab(
    checkpoint: Checkpoint, file: str | None, read: Callable[[], Vocabulary | None]
) -> Checkpoint:
    """Returns a checkpoint with the vocabulary that came with it.

    A vocabulary that cannot be used is not an error yet, because a flag may replace it; see
    `Checkpoint.vocab_problem`.

    Args:
        file: the vocabulary's file, for messages.
        read: reads it; returns None if there is none.
    """
    vocab, problem, spec = None, None, checkpoint.spec
    try:
        vocab = read()
    except (ValueError, OSError) as error:
        problem = str(error)
    if vocab and len(vocab) > spec.config.vocab_size:
        problem = (
            f"{file} has {len(vocab)} tokens, more than the vocab_size {spec.config.vocab_size} of "
            "the configuration: use files that belong together"
        )
        vocab = None
    return dataclasses.replace(
        checkpoint,
        spec=dataclasses.replace(spec, vocab=vocab),
        vocab_file=file if vocab else None,
        vocab_problem=problem,
        sentencepiece_file=None if vocab else checkpoint.sentencepiece_file,
    )


def matches(name: str, patterns: Collection[str]) -> bool:
    """Returns whether a name matches one of the patterns, in which * stands for any characters."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
