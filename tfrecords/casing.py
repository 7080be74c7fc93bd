"""Tells from the tokens of a vocabulary whether it suits lower-cased text."""

import os
import re
import unicodedata
from collections.abc import Callable

import tensorflow as tf

from tfrecords.vocabulary import Vocabulary

# The share of tokens below which letters are a by-product. Lower-casing makes 0% of the tokens of
# bert-base-uncased unreachable and 0.01% of bert-base-chinese's (<S> and <T>), but 31% of
# bert-base-cased's and 33% of bert-base-multilingual-cased's.
_FEW = 0.01
# [MASK], [unused1], <S> and the like, which no text contains.
_MARKUP = re.compile(r"\[.+\]|<.+>")
# A vocabulary without capitals is uncased if it has this many tokens with lower-case letters.
# Smaller vocabularies, which are for trials, do not tell.
_MANY = 100
# Parts of folder names that state the casing; the first match decides.
_NAMES = ((r"uncased|lower", True), (r"cased", False), (r"(multilingual|chinese)_l-\d", True))


def is_cased(vocab: Vocabulary) -> bool:
    """Returns whether a vocabulary is for text that keeps its capitals and accents."""
    return len(_unreachable(vocab)) > _FEW * len(vocab)


def guess_casing(vocab: Vocabulary | None, path: str) -> bool | None:
    """Guesses from the vocabulary, or else from a folder's name, whether text is lower-cased.

    Returns None if neither tells.

    Args:
        path: a checkpoint, or the folder that holds it.
    """
    if vocab and is_cased(vocab):
        return False
    if vocab and len(_small(vocab)) >= _MANY:
        return True
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    name = os.path.basename(os.path.abspath(folder)).lower()
    named = next((value for pattern, value in _NAMES if re.search(pattern, name)), None)
    # Lower-casing loses no token of a vocabulary without capitals.
    return True if vocab and named is None else named


def warn_about_casing(
    vocab: Vocabulary | None,
    lower_case: bool | None,
    source: str = "the vocabulary",
    say: Callable[[str], None] = print,
) -> None:
    """Prints the warning of `casing_warning` if there is one."""
    if warning := casing_warning(vocab, lower_case, source):
        say(warning)


def casing_warning(vocab: Vocabulary | None, lower_case: bool | None, source: str) -> str | None:
    """Returns a line that says how the casing contradicts the vocabulary; None if it does not.

    Args:
        vocab, lower_case: nothing contradicts what is unknown (None).
        source: where the vocabulary comes from.
    """
    if vocab is None or lower_case is None:
        return None
    if lower_case:
        if not is_cased(vocab):
            return None
        lost = _unreachable(vocab)
        # The first tokens are often single letters, and those in the middle words.
        some = ", ".join(lost[len(lost) // 2 :][:3])
        return (
            f"WARNING: {source} is cased, but the text is lower-cased and loses its "
            f"accents: {len(lost):,} of {len(vocab):,} tokens, such as {some}, can never occur. "
            "Use --nodo_lower_case, from data creation on."
        )
    small = _small(vocab)
    capital = [token for token in _tokens_of_text(vocab) if token.lower() != token]
    if len(small) <= _FEW * len(vocab) or len(capital) > _FEW * len(small):
        return None
    return (
        f"WARNING: {source} is uncased, but the text is not lower-cased: of "
        f"{len(vocab):,} tokens, {len(small):,} have small letters and {len(capital):,} have "
        "capitals, so words with capitals become [UNK]. Use --do_lower_case, from data creation on."
    )


def _unreachable(vocab: Vocabulary) -> list[str]:
    """Returns the tokens that lower-cased text never contains."""
    keeps = vocab.strip_accents is False
    return [token for token in _tokens_of_text(vocab) if _lower_cased(token, keeps) != token]


def _small(vocab: Vocabulary) -> list[str]:
    """Returns the tokens with lower-case letters."""
    # Title case, because the letters of Georgian have capitals that no ordinary text uses.
    return [token for token in _tokens_of_text(vocab) if token.title() != token]


def _tokens_of_text(vocab: Vocabulary) -> list[str]:
    return [token for token in vocab.lines if not _MARKUP.fullmatch(token)]


def _lower_cased(token: str, keeps_accents: bool) -> str:
    if token.isascii() or keeps_accents:
        return token.lower()
    decomposed = unicodedata.normalize("NFD", token.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
