"""Splits a block of bytes into documents, each a list of lines."""

import json
import re
from collections.abc import Iterator

from bert_tf.corpus.sources import Block


def decode(data: bytes) -> tuple[str, int]:
    """Returns the text and the number of lines that are not valid UTF-8.

    Invalid bytes become U+FFFD, which the tokenizer drops.
    """
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        invalid = sum(not _is_utf8(line) for line in data.split(b"\n"))
        return data.decode("utf-8", "replace"), invalid


def read_documents(block: Block, text: str, json_field: str) -> Iterator[list[str]]:
    """Yields the lines of each document of a block, without blank lines and surrounding whitespace.

    Args:
        block: its `kind` determines how documents are separated; its `name` appears in errors.
        text: the decoded data of the block.
        json_field: the field of a JSON line that holds a document.

    Raises:
        ValueError: a JSON line has no such field, or the field is not a string.
    """
    if block.kind == "json":
        for line in text.split("\n"):
            if line := line.strip():
                yield _nonblank_lines(_json_text(line, json_field, block.name))
        return
    document: list[str] = []
    for line in text.split("\n"):
        if line := line.strip():
            document.append(line)
        elif document:
            yield document
            document = []
    if document:
        yield document


def _nonblank_lines(text: str) -> list[str]:
    return [stripped for line in text.split("\n") if (stripped := line.strip())]


def _json_text(line: str, json_field: str, name: str) -> str:
    def error(problem: str) -> ValueError:
        return ValueError(f"{name}: {problem}: {line[:80]!r}")

    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise error(f"a line is not JSON ({problem})") from None
    if not isinstance(value, dict):
        raise error("a line is not a JSON object")
    if json_field not in value:
        raise error(
            f"a line has no field {json_field!r} (--json_field names the field with the text)"
        )
    if not isinstance(value[json_field], str):
        raise error(f"the field {json_field!r} of a line is not a string")
    # A lone half of a surrogate pair is not a character.
    return re.sub("[\ud800-\udfff]", "\ufffd", value[json_field])


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
