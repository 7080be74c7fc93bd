"""As much of a vocab.txt as it takes to show and check records."""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Tokens:
    """The tokens in the order of their ids, and the ids of the special ones."""

    tokens: tuple[str, ...]
    cls_id: int
    sep_id: int
    mask_id: int

    def __len__(self) -> int:
        return len(self.tokens)


def load_tokens(path: str) -> Tokens:
    """Reads a vocab.txt.

    Raises:
        ValueError: it is not UTF-8, or lacks [CLS], [SEP] or [MASK]; names the file.
        OSError: it cannot be read.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except tf.errors.OpError as error:
        raise OSError(f"cannot read the vocabulary {path}: {error.message}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a BERT vocabulary: no UTF-8 text") from None
    tokens = [line.strip(" \t\r") for line in text.rstrip().split("\n")]
    for token in ("[CLS]", "[SEP]", "[MASK]"):
        if token not in tokens:
            raise ValueError(f"{path} is not a BERT vocabulary: it lacks {token}")
    return Tokens(tuple(tokens), *map(tokens.index, ("[CLS]", "[SEP]", "[MASK]")))
