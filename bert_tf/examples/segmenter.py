"""Word boundaries from a segmenter, for text without spaces, such as Chinese."""

import functools
import importlib
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.text.tokenizer import WordPieceTokenizer

Segmenter = Callable[[str], Sequence[str]]


@functools.lru_cache(maxsize=1)
def load_segmenter(name: str) -> Segmenter:
    """Returns the function that splits a string into words.

    Args:
        name: "whitespace" for text that is already segmented, or "module:function", such as
            "jieba:lcut".
    """
    if name == "whitespace":
        return str.split
    module, _, function = name.partition(":")
    try:
        segmenter = importlib.import_module(module)
        for part in function.split("."):
            segmenter = getattr(segmenter, part)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"no segmenter {name!r} ({error}): give 'whitespace' or MODULE:FUNCTION of an "
            "installed module, such as jieba:lcut"
        ) from None
    return segmenter


def tokenize_words(
    lines: Sequence[bytes], tokenizer: WordPieceTokenizer, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes lines as usual, and marks the tokens that begin a word of the segmenter.

    If a word begins inside a token, the next token begins the unit.

    Args:
        lines: [B] UTF-8.
        name: the segmenter, as for `load_segmenter`.

    Returns:
        ids [T] int32, the first token of each line [B + 1] int64, unit starts [T] bool.
    """
    segmenter = load_segmenter(name)
    ids, token_starts, _ = tokenizer.tokenize_with_offsets(lines)
    ids, token_starts = ids.merge_dims(1, 2), token_starts.merge_dims(1, 2)
    splits = ids.row_splits.numpy()
    # Offsets into all lines joined together.
    line_starts = np.cumsum([0] + [len(line) for line in lines])
    places = token_starts.values.numpy() + np.repeat(line_starts[:-1], np.diff(splits))
    word_starts = np.array(
        [
            start + offset
            for start, line in zip(line_starts.tolist(), lines, strict=False)
            for offset in _word_offsets(line, segmenter, name)
        ],
        np.int64,
    )
    word = np.searchsorted(word_starts, places, side="right")
    unit_starts = np.diff(word, prepend=-1) != 0
    unit_starts[splits[:-1][np.diff(splits) > 0]] = True
    return ids.values.numpy(), splits, unit_starts


def _word_offsets(line: bytes, segmenter: Segmenter, name: str) -> list[int]:
    offsets, end = [], 0
    for word in _words(line, segmenter, name):
        start = line.find(word, end)
        if start < 0:
            raise ValueError(
                f"the segmenter {name!r} returns {word.decode('utf-8')!r}, which is not in the "
                f"rest of the text {line.decode('utf-8')[:80]!r}"
            )
        offsets.append(start)
        end = start + len(word)
    return offsets


def _words(line: bytes, segmenter: Segmenter, name: str) -> list[bytes]:
    text = line.decode("utf-8")
    try:
        words = [word.strip().encode("utf-8") for word in segmenter(text)]
    except Exception as error:  # The user's function may raise anything.
        raise ValueError(
            f"the segmenter {name!r} fails on {text[:80]!r}: {type(error).__name__}: {error}"
        ) from error
    if text.strip() and not any(words):
        raise ValueError(f"the segmenter {name!r} finds no words in {text[:80]!r}")
    return [word for word in words if word]
