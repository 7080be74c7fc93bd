"""A checkpoint of any format, with this project's names, and how a model gets its weights."""

import dataclasses
import fnmatch
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import keras
import numpy as np

from bert_tf.base.files import parse_json, read_file, shortened
from bert_tf.base.finite import note_non_finite
from bert_tf.base.made import Inputs
from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.runs.run import Run
from bert_tf.training.checkpoints import Tensor, check_shapes
from bert_tf.weights.names import part_of
from tfrecords.vocabulary import Vocabulary

# The weights that have one row per token.
_ROWS_ARE_TOKENS = re.compile(r".*/(word_embeddings|masked_lm/(output_bias|own_embeddings))")
_NEW_TOKEN = {"id": int, "old_ids": list[int], "token?": str}
_MAPPING = {"old_size": int, "new_size": int, "new_tokens": list[_NEW_TOKEN]}


@dataclasses.dataclass(frozen=True)
class VocabularyMapping:
    """Maps each new row to the old rows whose mean it starts from; from build_vocab --extend_vocab.

    Ids below `old_size` that are not among the keys of `starts_from` keep their rows.
    """

    old_size: int
    new_size: int
    starts_from: Mapping[int, tuple[int, ...]]  # new id -> the old ids whose rows are averaged
    tokens: Mapping[int, str] = dataclasses.field(default_factory=dict)  # new id -> its token

    def grows(self, path: str) -> bool:
        """Returns whether the weight with this path has one row per token."""
        return _ROWS_ARE_TOKENS.fullmatch(path) is not None

    def grow(self, rows: np.ndarray) -> np.ndarray:
        """Grows a table [old_size, ...] to [new_size, ...] of the same type."""
        grown = np.zeros((self.new_size, *rows.shape[1:]), rows.dtype)
        grown[: self.old_size] = rows
        for new, old in self.starts_from.items():
            grown[new] = np.mean(rows[list(old)], axis=0, dtype=np.float64)
        return grown

    def grow_config(self, config: BertConfig) -> BertConfig:
        """Returns `config` for the new vocabulary, or unchanged if it is not for the old one."""
        if config.vocab_size != self.old_size:
            return config
        return dataclasses.replace(config, vocab_size=self.new_size)

    def check_size(self, owner: str, size: int, expected: int) -> None:
        """Raises a ValueError unless the owner's vocabulary has the expected size."""
        if size != expected:
            raise ValueError(
                f"{owner} has a vocabulary of {size} tokens, but the mapping leads from "
                f"{self.old_size} to {self.new_size}: use the mapping that belongs to it"
            )

    def check_vocabs(self, old: Vocabulary | None, new: Vocabulary | None) -> None:
        """Raises a ValueError unless the mapping leads from `old` to `new`; None is unknown."""
        if not new:
            return
        expected = dict(enumerate(old.tokens if old else ()))
        expected = {i: token for i, token in expected.items() if i not in self.starts_from}
        for index, token in (expected | dict(self.tokens)).items():
            found = new.tokens[index] if index < len(new) else None
            if found != token:
                raise ValueError(
                    f"--init_vocab_mapping leads to a vocabulary whose id {index} is {token!r}, "
                    f"but here it is {found!r}: use the mapping that was written with it"
                )

    def describe(self) -> str:
        """Describes the mapping in one line."""
        return (
            f"{len(self.starts_from):,} of {self.new_size:,} word embeddings start from the mean "
            "of those of their old word pieces."
        )

    def to_json(self) -> str:
        """Returns the mapping as JSON."""
        values = {"old_size": self.old_size, "new_size": self.new_size}
        values["new_tokens"] = [
            {"id": new, "token": self.tokens.get(new), "old_ids": [*old]}
            for new, old in sorted(self.starts_from.items())
        ]
        return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


def load_mapping(path: str) -> VocabularyMapping:
    """Reads a mapping."""
    try:
        data = parse_json(read_file(path), _MAPPING)
        starts_from = {new["id"]: tuple(new["old_ids"]) for new in data["new_tokens"]}
        tokens = {new["id"]: new["token"] for new in data["new_tokens"] if "token" in new}
        return VocabularyMapping(data["old_size"], data["new_size"], starts_from, tokens)
    except ValueError as error:
        raise ValueError(f"{path} is not a mapping that build_vocab wrote ({error})") from None


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The weights of a model, and what is known about the model."""

    path: str  # that messages name
    format: str  # the name of a foreign format; "" for our own
    spec: ModelSpec
    tensors: Mapping[str, Tensor]  # by the paths of our models; see `weights.names`
    head: Head | None = None  # what `task_model/head` predicts
    config_file: str | None = None
    vocab_file: str | None = None
    unread_vocab: str | None = None  # a vocabulary that came with it, which no tokenizer here reads
    vocab_problem: str | None = None  # why another vocabulary that came with it cannot be used
    casing_is_guess: bool = False  # whether no file states `spec.lower_case`
    run: Run | None = None  # that it is part of
    unused: tuple[str, ...] = ()  # names in the file that stand for no weight, as optimizer states
    others: tuple["Checkpoint", ...] = ()  # the other members, if it is the first of an ensemble

    @cached_property
    def parts(self) -> frozenset[str]:
        """Those of `names.PARTS` that it has."""
        return frozenset(part_of(path) for path in self.tensors)

    @property
    def stated_casing(self) -> bool | None:
        """Whether text is lower-cased; None if no file states it."""
        return None if self.casing_is_guess else self.spec.lower_case


def with_vocab(checkpoint: Checkpoint, read: Callable[[], Vocabulary | None]) -> Checkpoint:
    """Returns a checkpoint with the vocabulary that `read` reads from its `vocab_file`.

    `read` returns None if there is none. A vocabulary that cannot be used is not an error yet,
    because a flag may replace it; see `Checkpoint.vocab_problem`.
    """
    problem = None
    try:
        vocab = read()
        check_fits(checkpoint.vocab_file, vocab, checkpoint.spec.config)
    except (ValueError, OSError) as error:
        vocab, problem = None, str(error)
    return dataclasses.replace(
        checkpoint,
        spec=dataclasses.replace(checkpoint.spec, vocab=vocab),
        vocab_file=checkpoint.vocab_file if vocab else None,
        vocab_problem=problem,
    )


def check_fits(
    vocab_file: str, vocab: Vocabulary | None, config: BertConfig, owner: str = "the configuration"
) -> None:
    """Raises a ValueError if a vocabulary has more tokens than the configuration of its owner."""
    if vocab and len(vocab) > config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {len(vocab)} tokens, more than the vocab_size {config.vocab_size} "
            f"of {owner}: use the vocabulary that belongs to it"
        )


def fingerprint(checkpoint: Checkpoint) -> str:
    """Returns a checksum of weights, configuration, vocabulary, casing and head of all members."""
    spec = checkpoint.spec
    described = spec.config, spec.vocab and spec.vocab.sha256, spec.lower_case, checkpoint.head
    digest = hashlib.sha256(repr(described).encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.read()).tobytes())
    for other in checkpoint.others:
        digest.update(fingerprint(other).encode())
    return digest.hexdigest()


def describe_model(name: str, checkpoint: Checkpoint) -> Inputs:
    """Describes a model from which something is made."""
    return [{"name": name, "file": checkpoint.path, "sha256": fingerprint(checkpoint)}]


def matches(name: str, patterns: Collection[str]) -> bool:
    """Returns whether a name matches one of the patterns, in which * stands for any characters."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# The parts that a checkpoint may lack: the heads, and the pooler, which Hugging Face's models have
# only if they predict something per sequence.
OPTIONAL = ("pooler", "masked_lm", "next_sentence")


def load_weights(
    source: str,
    tensors: Mapping[str, Tensor],
    weights: Sequence[keras.Variable],
    mapping: VocabularyMapping | None = None,
    optional_parts: Sequence[str] = (),
    allow_non_finite: bool = False,
) -> list[str]:
    """Sets `weights` from the tensors of a checkpoint, the `source`, with the same paths.

    `optional_parts` of `names.PARTS` keep their values if the checkpoint has none of their weights.
    `allow_non_finite` prints a warning about NaN and infinity instead of raising.

    Returns the paths of the weights that kept their values.
    """
    found = {part_of(path) for path in tensors}
    absent = [part for part in optional_parts if part not in found]
    targets = {weight.path: weight for weight in weights}
    kept = [path for path in targets if part_of(path) in absent]
    targets = {path: target for path, target in targets.items() if path not in kept}
    shapes = {path: tensor.shape for path, tensor in tensors.items()}
    if mapping:
        for path in sorted(filter(mapping.grows, targets.keys() & shapes.keys())):
            mapping.check_size(source, shapes[path][0], mapping.old_size)
            mapping.check_size("this model", targets[path].shape[0], mapping.new_size)
            shapes[path] = (mapping.new_size, *shapes[path][1:])
    check_shapes(source, shapes, targets)
    bad: dict[str, str] = {}
    for path, target in targets.items():
        value = tensors[path].read()
        note_non_finite(bad, path, value, target.dtype)
        if bad and not allow_non_finite:
            raise ValueError(f"{describe_non_finite(source, bad)}: use another checkpoint")
        target.assign(mapping.grow(value) if mapping and mapping.grows(path) else value)
    if bad:
        print(f"WARNING: {describe_non_finite(source, bad)}.")
    return kept


def describe_non_finite(source: str, found: Mapping[str, str]) -> str:
    """Returns a message about weights, described by their paths."""
    return f"{source} holds NaN or infinity in {shortened([*found.values()])}"


def load_or_warn(checkpoint: Checkpoint, weights: Sequence[keras.Variable]) -> list[str]:
    """Sets weights; warns of NaN, infinity and missing `OPTIONAL` parts; returns the latter."""
    path, tensors = checkpoint.path, checkpoint.tensors
    kept = load_weights(path, tensors, weights, None, OPTIONAL, allow_non_finite=True)
    if random := sorted({part_of(path) for path in kept}):
        print(f"WARNING: {path} has no weights for {', '.join(random)}, which stay random.")
    return random
