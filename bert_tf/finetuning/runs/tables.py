"""Tables of strings as text, Markdown and CSV."""

import csv
import io
from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def aligned(rows: Rows) -> str:
    """Returns lines with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: Rows) -> str:
    """Returns a Markdown table whose first row is the header."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def as_csv(rows: Rows) -> str:
    """Returns the rows as comma-separated values."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().rstrip("\n")
