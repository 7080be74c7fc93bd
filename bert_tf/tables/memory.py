"""Tables in memory: what Python code passes in place of a file."""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

_FORMS = (
    "give the path of a file, a data frame, a dict of lists, a list of dicts, or a pair: "
    "(texts, labels)"
)
# What missing values of pandas are called; its import takes a second.
_MISSING = ("NAType", "NaTType")
# How the containers of NumPy, pandas, polars, PyArrow, TensorFlow and PyTorch give Python's values.
_CONVERSIONS = ("to_list", "tolist", "as_py", "numpy")


class TableInMemory:
    """A table that stands for a file. As a string, it is its name in messages.

    Attributes:
        name: what the user calls it, such as "train".
        columns: the cells of each column, with the types of JSON; None if they are missing. Bytes
            that are not UTF-8 are lone surrogates, as in files. Infinity and other objects stay as
            they are, and whoever reads their column refuses them.
    """

    def __init__(self, name: str, columns: dict[str, list[Any]]):
        self.name, self.columns = name, columns

    def __repr__(self) -> str:
        return self.name

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the numbers of rows, counted from 1, and their cells by the name of the column."""
        for number, cells in enumerate(zip(*self.columns.values(), strict=True), 1):
            yield number, dict(zip(self.columns, cells, strict=True))


def table_in_memory(data: Any, name: str) -> TableInMemory:
    """Reads a table from what Python code passes.

    It may be a data frame of pandas or polars, a table of PyArrow, a dataset of Hugging Face, whose
    numbers of classes become their names, or null if unknown, or of tf.data; a dict of columns; an
    iterable of rows as dicts; a list of texts; or the texts and their labels, as a pair.

    Raises:
        ValueError: it is something else, or has columns of different lengths or the number of a
            class that has no name.
    """
    columns = {}
    for key, cells in _columns_of(data, name).items():
        if not isinstance(key, str | int):
            raise ValueError(f"{name} has a column called {key!r}: rename it to a string")
        if str(key) in columns:
            raise ValueError(f"{name} has several columns called {str(key)!r}: rename them")
        columns[str(key)] = _cells(cells, f"column {str(key)!r} of {name}")
    if len({*map(len, columns.values())}) > 1:
        lengths = ", ".join(f"{key!r} {len(cells):,}" for key, cells in columns.items())
        raise ValueError(f"the columns of {name} have different lengths: {lengths}")
    features = getattr(data, "features", None)
    for key, feature in features.items() if isinstance(features, Mapping) else ():
        if key in columns and (names := _names_in(feature)):
            numbered = enumerate(columns[key], 1)
            at = "row {} of " + f"{name}, column {key!r}"
            columns[key] = [_class_name(cell, names, at.format(row)) for row, cell in numbered]
    return TableInMemory(name, columns)


def is_table(data: Any) -> bool:
    """Returns whether data are rows with columns, or several such tables in a dict."""
    if isinstance(data, Mapping):
        return any(map(is_table, data.values()))
    methods = ("with_format", "as_numpy_iterator", "to_pydict", "iter_columns", "itertuples")
    return any(hasattr(data, name) for name in methods)


def _columns_of(data: Any, name: str) -> Mapping[Any, Any]:
    """Returns the columns by their names."""
    if isinstance(data, Mapping):
        if splits := [key for key, part in data.items() if is_table(part)]:
            one = f"data[{splits[0]!r}]"
            raise ValueError(f"{name} holds several data sets: give one of them, such as {one}")
        return _aligned(data, name)
    if hasattr(data, "with_format"):  # a dataset of Hugging Face; Arrow decodes no images
        data = [
            {key: cells[0] for key, cells in zip(row.column_names, row.columns, strict=True)}
            for row in data.with_format("arrow")
        ]
    elif hasattr(data, "as_numpy_iterator"):  # of tf.data
        if data.cardinality() == -1:
            raise ValueError(f"{name} never ends: leave out repeat()")
        data = list(data.as_numpy_iterator())
        if data and isinstance(data[0], tuple) and len(data[0]) == 2:
            data = tuple(map(list, zip(*data, strict=True)))
    elif hasattr(data, "to_pydict"):  # PyArrow
        _check_unique(data.column_names, name)
        return dict(zip(data.column_names, map(list, data.columns), strict=True))
    elif hasattr(data, "iter_columns"):  # polars
        return data.to_dict()
    elif hasattr(data, "itertuples"):  # pandas
        _check_unique(data.columns, name)
        return data.astype(object).where(data.notna(), None).to_dict("list")
    if _is_pair(data):
        return _aligned(dict(zip(("text", "label"), data, strict=True)), name)
    data = opened(data)
    if isinstance(data, str | bytes | Set) or not isinstance(data, Iterable):
        raise ValueError(f"{name} is {_shown(data)}: {_FORMS}")
    data = [*data]
    rows = [row if isinstance(row, Mapping | list | tuple) else plain(row) for row in data]
    if rows and isinstance(rows[0], str) and os.path.isfile(rows[0]):
        raise ValueError(f"{name} is a list with the path {rows[0]}: {_FORMS}")
    if any(isinstance(row, str) for row in rows):
        rows = [{"text": row} if isinstance(row, str | None) else row for row in rows]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise ValueError(f"row {number:,} of {name} is {_shown(data[number - 1])}: {_FORMS}")
    keys = dict.fromkeys(itertools.chain.from_iterable(rows))
    return {key: [row.get(key) for row in rows] for key in keys}


def _is_pair(data: Any) -> bool:
    """Returns whether data are texts and their labels, and not two rows."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    rows = (str, bytes, Mapping, Set, tuple)
    if any(isinstance(x, rows) or not isinstance(x, Iterable) for x in data):
        return False
    return isinstance(data, tuple) or [*map(len, data)] != [2, 2]


def _check_unique(names: Iterable[Any], name: str) -> None:
    if len({*names}) < len([*names]):
        raise ValueError(f"{name} has several columns of the same name: rename them")


def _aligned(columns: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    """Returns columns; raises a ValueError for Series of pandas whose rows are not the same."""
    indexes = [cells.index for cells in columns.values() if hasattr(cells, "iloc")]
    if not all(indexes[0].equals(index) for index in indexes[1:]):
        raise ValueError(f"the Series of {name} have different indexes: give a data frame or lists")
    return columns


def _cells(column: Any, name: str) -> list[Any]:
    if is_table(column):
        raise ValueError(f"{name} is {_shown(column)}: a column is a list of cells")
    column = opened(column)
    if isinstance(column, str | bytes | Mapping | Set) or not isinstance(column, Iterable):
        raise ValueError(f"{name} is {_shown(column)}: a column is a list of cells")
    return plain_cells(column, name)


def plain_cells(cells: Iterable[Any], name: str) -> list[Any]:
    """Returns cells as `plain` does.

    Raises:
        ValueError: a list holds itself, or lists in a thousand lists; the message says in which row
            of `name`.
    """
    found = []
    try:
        for cell in cells:
            found.append(plain(cell))
    except RecursionError:
        problem = "holds itself, or too many lists in lists"
        raise ValueError(f"row {len(found) + 1:,} of {name} {problem}") from None
    return found


def plain(value: Any) -> Any:
    """Returns a value of Python, NumPy, pandas, Arrow or tensors with a type of JSON, or infinity.

    NaN and what pandas calls missing are None. Objects of other types stay as they are.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if type(value).__name__ in _MISSING:
        return None
    found = opened(value)
    # NumPy converts some of its numbers to themselves.
    return value if type(found) is type(value) else plain(found)


def opened(value: Any) -> Any:
    """Returns what an object of NumPy, pandas, Arrow or tensors holds, and others as they are."""
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        return [*value] if getattr(value, "shape", ()) else value  # NumPy makes times numbers
    for name in _CONVERSIONS:
        if convert := getattr(value, name, None):
            try:
                return convert()
            except (ValueError, OverflowError):  # bytes in Arrow's strings, the year 10000
                return value
    return value


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str | bytes | int | float):
        return f"{value!r:.40}"
    return f"of the type {type(value).__name__}"


def _names_in(feature: Any) -> Sequence[str] | None:
    """Returns the names of the classes whose numbers, or lists of these, a column holds."""
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    return getattr(feature, "names", None) if inner is None else _names_in(inner)


def _class_name(value: Any, names: Sequence[str], at: str) -> Any:
    if isinstance(value, list):
        return [_class_name(item, names, at) for item in value]
    if value is None or value == -1:
        return None
    if type(value) is not int or not 0 <= value < len(names):
        raise ValueError(f"{at}: {value!r} is not the number of a class, 0 to {len(names) - 1}")
    return names[value]
