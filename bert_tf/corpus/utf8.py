"""Checks and decodes UTF-8."""


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
