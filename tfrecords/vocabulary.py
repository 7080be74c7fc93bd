"""Reads vocab.txt, the WordPiece vocabulary: one token per line, the line number is the id."""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import tensorflow as tf

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids.

    Raises:
      ValueError: a special token is missing, a token is empty or occurs twice.
    """

    tokens: tuple[str, ...]

    def __post_init__(self):
        if problem := _problem(self.tokens):
            raise ValueError(f"not a BERT vocabulary: {problem}")

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum of the tokens, whatever ends their lines in a file."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()

    @property
    def pad_id(self) -> int:
        return self.ids[PAD]

    @property
    def unk_id(self) -> int:
        return self.ids[UNK]

    @property
    def cls_id(self) -> int:
        return self.ids[CLS]

    @property
    def sep_id(self) -> int:
        return self.ids[SEP]

    @property
    def mask_id(self) -> int:
        return self.ids[MASK]


def load_vocab(path: str) -> Vocabulary:
    """Reads a vocab.txt (google-research/bert `tokenization.load_vocab`).

    Lines end with LF or CRLF; a byte order mark and blank lines at the end are dropped. Where the
    original strips all Unicode white space around a token, this strips spaces and tabs only:
    bert-base-chinese holds U+2028 as a token, which must not become an empty one. No text gets
    other ids by that, for white space is never part of a word.

    Raises:
      ValueError: not UTF-8, no tokens, a special token missing, a token empty or twice.
      OSError: there is no such file.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
    except tf.errors.OpError as error:
        raise OSError(f"cannot read the vocabulary {path}: {error.message}") from None
    try:
        # Never str.splitlines: U+2028, U+0085 and the like are tokens, not line ends.
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None
    tokens = [line.strip(" \t\r") for line in lines]
    while tokens and not tokens[-1]:
        tokens.pop()
    if problem := _problem(tokens):
        raise ValueError(f"{path} is not a BERT vocabulary: {problem}")
    return Vocabulary(tuple(tokens))


def _problem(tokens: Sequence[str]) -> str | None:
    """What is wrong with a vocabulary and how to mend it; None where nothing is."""
    if not tokens:
        return "it holds no tokens; it needs one token a line"
    lines: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if not token:
            return f"line {line} is empty; remove it (the ids after it change by one)"
        if token in lines:
            return f"token {token!r} is on lines {lines[token]} and {line}; keep one of them"
        lines[token] = line
    if missing := [token for token in SPECIAL_TOKENS if token not in lines]:
        return f"it lacks {' '.join(missing)}; add each on a line of its own"
    return None
