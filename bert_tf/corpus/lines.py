"""Splits text into documents, each a list of lines."""

import json
import re
from collections.abc import Iterator

from bert_tf.corpus.layout import Layout
from bert_tf.corpus.wrapping import unwrap, wrap_width


def read_documents(text: str, kind: str, file: str, layout: Layout) -> Iterator[list[str]]:
    """Yields the lines of each document, without blank lines and surrounding whitespace.

    With `layout.unwrap`, lines are paragraphs.

    Args:
        text: a file, or a part of one that consists of whole documents.
        kind: "text" or "json", as in a `Block`.
        file: the name of the file, for errors.
        layout: what a document is.
    """
    if kind == "json":
        for line in filter(None, map(str.strip, text.split("\n"))):
            lines = _lines(_json_text(line, layout.json_field, file))
            yield unwrap(lines, wrap_width(lines)) if layout.unwrap else list(filter(None, lines))
        return
    lines = _lines(text)
    # One paragraph alone would not show the width.
    width = wrap_width(lines) if layout.unwrap else 0
    for document in _split(lines, layout):
        if any(document):
            yield unwrap(document, width) if layout.unwrap else list(filter(None, document))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _split(lines: list[str], layout: Layout) -> Iterator[list[str]]:
    """Yields the lines of each document of plain text, blank ones included."""
    if layout.document_separator == "file":
        yield lines
        return
    document: list[str] = []
    for line in lines:
        if layout.document_separator == "blank_line":
            separates = only_separates = not line
        else:
            separates, only_separates = layout.separates(line), layout.only_separates(line)
        if separates:
            yield document
            document = []
        if not only_separates:
            document.append(line)
    yield document


def _json_text(line: str, json_field: str, file: str) -> str:
    def error(problem: str) -> ValueError:
        return ValueError(f"{file}: {problem}: {line[:80]!r}")

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
