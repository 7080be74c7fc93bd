"""Reads and writes vocab.txt, the WordPiece vocabulary.

It has one token per line; the line number is the id.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import tensorflow as tf

from tfrecords.writer import atomic_write

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)


def continues_word(token: str) -> bool:
    """Returns whether a token continues a word; "##" does not, because "#" is punctuation."""
    return len(token) > 2 and token.startswith("##")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids.

    Attributes:
        tokens: all tokens; the position of a token is its id.
        pad_id: the id of [PAD].
        unk_id: the id of [UNK].
        cls_id: the id of [CLS].
        sep_id: the id of [SEP].
        mask_id: the id of [MASK].

    Raises:
        ValueError: a special token is missing, or a token is empty or occurs twice.
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if problem := _problem(self.tokens):
            raise ValueError(f"not a BERT vocabulary: {problem}")

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Maps each token to its id."""
        return {token: index for index, token in enumerate(self.tokens)}

    @functools.cached_property
    def sha256(self) -> str:
        """The checksum by which manifests identify a vocabulary, whatever its line endings."""
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
    """Reads a vocab.txt, like `tokenization.load_vocab` of google-research/bert.

    Lines end with LF or CRLF. A byte order mark and trailing blank lines are dropped. The original
    strips all Unicode whitespace around a token; this function strips only spaces and tabs,
    because bert-base-chinese has U+2028 as a token, which must not become empty. The ids of a text
    stay the same, since words never contain whitespace.

    Raises:
        ValueError: the file is not UTF-8 or has no tokens, a special token is missing, or a token
            is empty or occurs twice.
        OSError: the file cannot be read.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
    except tf.errors.OpError as error:
        raise OSError(f"cannot read the vocabulary {path}: {error.message}") from None
    try:
        # Not str.splitlines, which would also split at U+2028 and U+0085, which are tokens.
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text: save the file as UTF-8") from None
    tokens = [line.strip(" \t\r") for line in lines]
    while tokens and not tokens[-1]:
        tokens.pop()
    if problem := _problem(tokens):
        raise ValueError(f"{path} is not a BERT vocabulary: {problem}")
    return Vocabulary(tuple(tokens))


def write_vocab(path: str, vocab: Vocabulary) -> None:
    """Writes a vocab.txt atomically.

    Raises:
        OSError: the file cannot be written.
    """
    atomic_write(path, "".join(f"{token}\n" for token in vocab.tokens))


def _problem(tokens: Sequence[str]) -> str | None:
    """Returns what is wrong with a vocabulary and how to fix it, or None."""
    if not tokens:
        return "it has no tokens: write one token per line"
    lines: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if not token:
            return f"line {line} is empty: remove it (all later ids shift by one)"
        if token in lines:
            return f"token {token!r} is on lines {lines[token]} and {line}: keep one of them"
        lines[token] = line
    if missing := [token for token in SPECIAL_TOKENS if token not in lines]:
        return f"it lacks {' '.join(missing)}: add each on its own line"
    return None
