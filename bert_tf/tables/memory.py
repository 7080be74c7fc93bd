"""Tables that Python holds in memory, as JSON lines."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def json_lines(data: Any, name: str) -> str:
    """Returns a table as JSON lines, which `read_table` reads.

    The data are a pandas DataFrame, lists by the names of columns, or an iterable of rows by the
    names of columns, such as a Hugging Face dataset, whose classes become their names, or null if
    unknown. A missing value is null. Raises a ValueError if they are something else, or have no
    rows, or columns of different lengths; `name` is what it calls them.
    """
    classes = _classes(getattr(data, "features", None) or {})
    lines = []
    for row in rows_in_memory(data, name):
        row = {x: _named(y, classes.get(x)) for x, y in row.items()}
        lines.append(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")
    if not lines:
        raise ValueError(f"{name} holds no rows")
    return "".join(lines)


def rows_in_memory(data: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table; see `json_lines`. What pandas calls missing is None."""
    if hasattr(data, "notna") and hasattr(data, "columns"):  # pandas
        if not data.columns.is_unique:
            raise ValueError(f"{name} has several columns of the same name: rename them")
        data = data.astype(object).where(data.notna(), None).to_dict("list")
    if isinstance(data, Mapping):
        if text := next((x for x, cells in data.items() if isinstance(cells, str)), None):
            raise ValueError(f"{text!r} of {name} is a string: a column is a list of cells")
        if len({*map(len, data.values())}) > 1:
            lengths = ", ".join(f"{x!r} {len(cells):,}" for x, cells in data.items())
            raise ValueError(f"the columns of {name} have different lengths: {lengths}")
        data = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    for row in data if isinstance(data, Iterable) else [data]:
        if not isinstance(row, Mapping):
            raise ValueError(
                f"{name} is or holds {type(row).__name__}: give the path of a file, a DataFrame, "
                "a dict of lists, or rows as dicts"
            )
        yield {str(x): y for x, y in row.items()}


def _classes(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the names of classes by the columns that hold their numbers, or lists of these."""
    found = {}
    for column, feature in features.items():
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
        if names := getattr(inner, "names", None):
            found[column] = [*names]
    return found


def _named(value: Any, classes: list[str] | None) -> Any:
    value = _plain(value) if hasattr(value, "tolist") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not classes or value is None:
        return value
    if isinstance(value, list):
        return [_named(x, classes) for x in value]
    return classes[value] if value >= 0 else None


def _plain(value: Any) -> Any:
    """Returns a value with a type of JSON."""
    if hasattr(value, "tolist"):  # NumPy
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)
