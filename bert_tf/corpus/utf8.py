"""Checks and decodes UTF-8."""

import codecs
import unicodedata

# UTF-32 comes first, because its mark may begin with that of UTF-16.
_MARKS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_WITHOUT_MARK = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
# Enough of a text to show its encoding.
SAMPLE_BYTES = 4096
# A text with a larger share of unreadable characters is not UTF-8.
_MAX_UNREADABLE = 0.2
# Fewer, such as "a\0b\0", may as well be letters and NULs.
_FEWEST_CHARACTERS = 3


def decode(data: bytes) -> tuple[str, int]:
    """Returns the text and the number of lines that are not valid UTF-8.

    Invalid bytes become U+FFFD, which the tokenizer drops.
    """
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        invalid = sum(not is_utf8(line) for line in data.split(b"\n"))
        return data.decode("utf-8", "replace"), invalid


def is_utf8(text: bytes) -> bool:
    """Returns whether all bytes of a text are UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_unicode(text: str) -> bool:
    """Returns whether a string can be written as UTF-8: whether it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_encoding(data: bytes, name: str) -> None:
    """Raises a ValueError if a text is UTF-16 or UTF-32, with or without a byte order mark.

    Args:
        data: the text, or at least its first `SAMPLE_BYTES`.
        name: the name of the text, for the message.
    """
    if found := _wide_encoding(data[:SAMPLE_BYTES]):
        raise ValueError(
            f"{name} is {found}: save it as UTF-8, for example with iconv -f {found} -t UTF-8"
        )


def _wide_encoding(head: bytes) -> str | None:
    for encoding, marks in _MARKS.items():
        if head.startswith(marks):
            return encoding
    # Even text without Latin letters has NULs there, in its spaces and line ends.
    if b"\0" in head and _unreadable(head.decode("utf-8", "replace")) > _MAX_UNREADABLE:
        for encoding in _WITHOUT_MARK:
            text = head.decode(encoding, "ignore")
            # Only the last character may be incomplete.
            whole = len(text.encode(encoding)) > len(head) - 4
            enough = len(text) >= _FEWEST_CHARACTERS and text.strip()
            if enough and whole and _unreadable(text) < _MAX_UNREADABLE / 10:
                return encoding
    return None


def _unreadable(text: str) -> float:
    """Returns the share of characters that do not occur in text."""
    bad = sum(
        char == "\ufffd"
        or (unicodedata.category(char) in ("Cc", "Cn", "Co") and char not in "\t\n\f\r")
        for char in text
    )
    return bad / max(1, len(text))
