"""Grows the tables of a checkpoint with its vocabulary."""

import dataclasses
import json
import re
from collections.abc import Mapping

import numpy as np

from bert_tf.base.files import parse_json, read_file
from bert_tf.config import BertConfig
from tfrecords.vocabulary import Vocabulary

# The weights that have one row per token.
_ROWS_ARE_TOKENS = re.compile(r".*/(word_embeddings|masked_lm/(output_bias|own_embeddings))")
_NEW_TOKEN = {"id": int, "old_ids": list[int], "token?": str}
_MAPPING = {"old_size": int, "new_size": int, "new_tokens": list[_NEW_TOKEN]}


@dataclasses.dataclass(frozen=True)
class VocabularyMapping:
    """Maps each new row to the old rows whose mean it starts from; from build_vocab --extend_vocab.

    Attributes:
        old_size, new_size: the numbers of tokens.
        starts_from: new id -> the old ids whose rows are averaged. Ids below `old_size` that are
            not among the keys keep their rows.
        tokens: new id -> its token.
    """

    old_size: int
    new_size: int
    starts_from: Mapping[int, tuple[int, ...]]
    tokens: Mapping[int, str] = dataclasses.field(default_factory=dict)

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
        lines = [
            json.dumps(
                {"id": new, "token": self.tokens.get(new), "old_ids": list(old)}, ensure_ascii=False
            )
            for new, old in sorted(self.starts_from.items())
        ]
        rows = ",\n    ".join(lines)
        return (
            f'{{\n  "old_size": {self.old_size},\n  "new_size": {self.new_size},\n'
            f'  "new_tokens": [\n    {rows}\n  ]\n}}\n'
        )


def load_mapping(path: str) -> VocabularyMapping:
    """Reads a mapping."""
    try:
        data = parse_json(read_file(path), _MAPPING)
        starts_from = {new["id"]: tuple(new["old_ids"]) for new in data["new_tokens"]}
        tokens = {new["id"]: new["token"] for new in data["new_tokens"] if "token" in new}
        return VocabularyMapping(data["old_size"], data["new_size"], starts_from, tokens)
    except ValueError as error:
        raise ValueError(f"{path} is not a mapping that build_vocab wrote ({error})") from None
