"""How text is laid out in files: what a document is, and whether lines are wrapped."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How to find documents and lines in text.

    Attributes:
        document_separator: what separates documents in plain text: "blank_line"; "file", which
            makes each file one document; or a regular expression. Each line that contains a match
            begins a document. A line that matches as a whole only separates documents and is left
            out.
        unwrap: whether to join the lines of paragraphs, which are broken at a fixed width.
        json_field: the field of JSON lines that holds a document.
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


DEFAULT_LAYOUT = Layout()
