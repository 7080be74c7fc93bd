"""Files with predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfrecords.writer import atomic_write


def write_table(folder: str, name: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """Writes a TSV file with a header, whole or not at all; returns its name.

    Numbers that are not whole have six significant digits. Tabs and line ends in strings become
    spaces.

    Args:
        columns: equally long columns by name.
    """
    rows = zip(*columns.values(), strict=True)
    lines = ["\t".join(columns), *("\t".join(map(_field, row)) for row in rows)]
    atomic_write(f"{folder}/{name}", "\n".join(lines) + "\n")
    return name


def _field(value: Any) -> str:
    if isinstance(value, str):
        return " ".join(value.replace("\t", " ").splitlines())
    return f"{value:.6g}"
