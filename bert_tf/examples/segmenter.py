"""Words as something other than the tokenizer sees them: for Chinese, above all."""

import functools
import importlib
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.text.tokenizer import WordPieceTokenizer

Segmenter = Callable[[str], Sequence[str]]


@functools.lru_cache(maxsize=1)
def load_segmenter(name: str) -> Segmenter:
    """What splits a string into words.

    Args:
        name: "whitespace", for text segmented before, or "module:function", such as "jieba:lcut".

    Raises:
        ValueError: there is no such module or function.
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
            f"no segmenter {name!r} ({error}): give 'whitespace' or MODULE:FUNCTION, such as "
            "jieba:lcut, of an installed module"
        ) from None
    return segmenter


def tokenize_words(
    lines: Sequence[bytes], tokenizer: WordPieceTokenizer, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes as ever, and marks the pieces that begin a word of the segmenter.

    A word may begin inside a WordPiece; then the next piece begins the unit.

    Returns:
        ids [pieces] int32, where in them each line begins [B + 1] int64, unit starts [pieces] bool.

    Raises:
        ValueError: the segmenter fails, or gives no words or some that are not in the text.
    """
    segmenter = load_segmenter(name)
    ids, piece_starts, _ = tokenizer.tokenize_with_offsets(lines)
    ids, piece_starts = ids.merge_dims(1, 2), piece_starts.merge_dims(1, 2)
    splits = ids.row_splits.numpy()
    # Offsets in all lines put together.
    line_starts = np.cumsum([0] + [len(line) for line in lines])
    places = piece_starts.values.numpy() + np.repeat(line_starts[:-1], np.diff(splits))
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
                f"segmenter {name!r} gives {word.decode('utf-8')!r}, which is not in the text (any "
                f"more): {line.decode('utf-8')[:80]!r}"
            )
        offsets.append(start)
        end = start + len(word)
    return offsets


def _words(line: bytes, segmenter: Segmenter, name: str) -> list[bytes]:
    text = line.decode("utf-8")
    try:
        words = [word.strip().encode("utf-8") for word in segmenter(text)]
    except Exception as error:  # a user's function may raise anything
        raise ValueError(
            f"segmenter {name!r} fails on {text[:80]!r}: {type(error).__name__}: {error}"
        ) from error
    if text.strip() and not any(words):
        raise ValueError(f"segmenter {name!r} finds no words in {text[:80]!r}")
    return [word for word in words if word]
