"""How text is laid out in files: what a document is, and whether lines are wrapped."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How to find documents and lines in text.

    Attributes:
        document_separator: what separates documents in plain text. "blank_line"; "file": each file
            is one document; or a regular expression: a line in which it is found begins a document.
            A line that it matches as a whole only separates and is left out.
        unwrap: whether paragraphs are broken into lines of a fixed width, to be joined.
        json_field: the field of JSON lines that holds a document.

    Raises:
        ValueError: `document_separator` is not a valid regular expression.
    """

    document_separator: str = "blank_line"
    unwrap: bool = False
    json_field: str = "text"

    def __post_init__(self) -> None:
        try:
            re.compile(self.document_separator)
        except re.error as error:
            raise ValueError(
                f"--document_separator={self.document_separator} is neither blank_line nor file "
                f"nor a regular expression: {error}"
            ) from None

    def separates(self, line: str) -> bool:
        """Returns whether a line, without surrounding whitespace, begins a document."""
        return bool(re.search(self.document_separator, line))

    def only_separates(self, line: str) -> bool:
        """Returns whether a line that begins a document does not belong to it."""
        return bool(re.fullmatch(self.document_separator, line))
