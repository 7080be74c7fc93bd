"""Scores of several runs, and tables of them as text and Markdown."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np


class Score(NamedTuple):
    """The mean of some runs, and its standard deviation (n - 1) if there are several."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Returns the score of runs with these values."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), deviation)

    def text(self, factor: float = 1.0, form: str = ".4f") -> str:
        """Returns the score times `factor`, as in "0.8234 ± 0.0102"."""
        return " ± ".join(format(factor * x, form) for x in self if x is not None)

    def to_dict(self) -> dict[str, float]:
        """Returns the values that are known, by name."""
        return {name: x for name, x in self._asdict().items() if x is not None}


class ScoreTable(NamedTuple):
    """A table: its title, the names of its columns, and its rows of names and scores.

    `factor` and `form` are those of the scores as text.
    """

    title: str
    header: list[str]
    rows: list[list[str | Score | None]]
    factor: float = 1.0
    form: str = ".4f"

    def cells(self) -> list[list[str]]:
        """Returns header and rows as text."""

        def text(cell: str | Score | None) -> str:
            if isinstance(cell, Score):
                return cell.text(self.factor, self.form)
            return "-" if cell is None else cell

        return [self.header, *(list(map(text, row)) for row in self.rows)]

    def text(self) -> str:
        """Returns the title, and lines of aligned cells."""
        return f"{self.title}\n{aligned(self.cells())}"

    def markdown(self) -> str:
        """Returns the table in Markdown."""
        first, *others = (
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in self.cells()
        )
        return "\n".join([f"**{self.title}**\n", first, "|" + "---|" * len(self.header), *others])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns lines with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
