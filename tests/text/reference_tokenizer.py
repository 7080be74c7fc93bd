"""A reimplementation of google-research/bert's `FullTokenizer`: the oracle of the tests.

It works on one character and one word at a time, following the definitions in `tokenization.py`,
with Python's own `unicodedata`. It is slow and simple on purpose, and shares no code with the
tokenizer under test.
"""

import unicodedata

# "CJK Unified Ideographs" and their compatibility forms, as listed in the original.
CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def reference_words(text: str | bytes, lower_case: bool = True) -> list[str]:
    """Returns the normalized words of a text (`BasicTokenizer`)."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "ignore")
    cleaned = "".join(_clean(character) for character in text)
    words = []
    for word in cleaned.split():
        if lower_case:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if _is_punctuation(c) else c for c in word).split()
    return words


def reference_pieces(
    text: str | bytes, ids: dict[str, int], lower_case: bool = True
) -> list[list[str]]:
    """Returns the word pieces of a text (`FullTokenizer`), grouped by word."""
    return [_spell(word, ids) for word in reference_words(text, lower_case)]


def _clean(character: str) -> str:
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return ""
    if any(first <= ord(character) <= last for first, last in CJK):
        return f" {character} "
    return character


def _is_punctuation(character: str) -> bool:
    ascii_symbol = "!" <= character <= "~" and not character.isalnum()
    return ascii_symbol or unicodedata.category(character).startswith("P")


def _spell(word: str, ids: dict[str, int]) -> list[str]:
    if len(word) > 200:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        candidates = (word[start:end] for end in range(len(word), start, -1))
        found = next((part for part in candidates if prefix + part in ids), None)
        if found is None:
            return ["[UNK]"]
        pieces.append(prefix + found)
        start += len(found)
    return pieces
