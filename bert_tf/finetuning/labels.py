"""Reads labels from the cells of the user's own tables: classes, numbers, or tags of words.

The classes of a row are a tuple of names, whether a row has one class or several.
"""

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from bert_tf.base.command_help import docs
from bert_tf.base.content import is_unicode
from bert_tf.base.files import shortened, similar
from bert_tf.base.progress import counted, say
from bert_tf.tables.table import (
    Table,
    as_number,
    class_name,
    fold,
    is_empty,
    other_separator,
    resembles_list,
    shown,
    split,
)

# What programs write for an empty cell.
_MISSING = {"nan", "null", "<na>"}
# Limits of the standard deviation, so that float32 can also hold sums of squares.
_SMALLEST, _LARGEST = 1e-15, 1e15
# The most standard deviations between 0 and the mean; files of predictions show six digits.
_MOST_DEVIATIONS = 1e4
_FLOAT32_MAX = float(np.finfo(np.float32).max)
# If there are more classes with numbers as names, the numbers are probably to be predicted.
_MANY = 10
# Programs write whole numbers as 1.0 in columns with empty cells.
_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


def check_no_spans(table: Table, row: int, value: Any) -> None:
    """Raises a ValueError for a list of spans, such as [0, 4, "PER"] or {"start": 0, "end": 4}."""
    item = value[0] if isinstance(value, list) and value else None
    is_span = isinstance(item, dict) and any("start" in key for key in item)
    if is_span or (isinstance(item, list) and {*map(type, item[:2])} == {int}):
        raise ValueError(
            f"{table.at(row)}: {shown(value)} seems to hold character spans, which are not "
            "supported: write a list of words and a list of their tags, for --label_type=tags; "
            f"{docs('tags')} shows how to convert spans"
        )


def check_label(table: Table, row: int, value: Any) -> None:
    """Checks that a row has a label, other than spans."""
    check_no_spans(table, row, value)
    if is_empty(value):
        raise ValueError(
            f"{table.at(row)} has no label: label every row; only --test_file may lack labels, and "
            "then in every row"
        )
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"{table.at(row)}: the label is infinite: replace it or remove the row")


def read_single(table: Table, column: str) -> list[tuple[str]]:
    """Returns the class of each row."""
    values = table.column(column)
    rows = [(_class_name(table, row, value),) for row, value in enumerate(values)]
    lists = [
        row for row, value in enumerate(values) if isinstance(value, str) and resembles_list(value)
    ]
    if lists:
        about = f"{table.at(lists[0])}: label {shown(values[lists[0]])} looks like a list"
        if len(lists) == len(values):
            raise ValueError(f"{about}, as all labels do: give --label_type=classes")
        say(f"WARNING: {about}, but is read as the name of a single class.")
    return rows


def read_several(table: Table, column: str, separator: str | None) -> list[tuple[str, ...]]:
    """Returns the classes of each row, from lists or from strings with a separator.

    The default is a comma, but in a TFRecord file, a string is then one class.
    """
    rows = []
    for row, value in enumerate(table.column(column)):
        items = value if isinstance(value, list) else [] if value is None else [value]
        if isinstance(value, str):
            found = table.parse_list(row, value)
            if found is None and not table.marks_lists and not separator:
                found = [value] if value.strip() else []
            items = _split(table, row, value, separator or ",") if found is None else found
            items = [class_name(item) if isinstance(item, str) else item for item in items]
        if items:
            check_label(table, row, items)
        # The numbers of classes.
        numbers = all(type(item) in (int, float) and item % 1 == 0 for item in items)
        for item in items:
            if is_empty(item) or not (isinstance(item, str) or numbers):
                raise ValueError(
                    f"{table.at(row)}: {shown(item)} is not the name of a class: write a list of "
                    'names in quotes, such as ["a", "b"], or [] for no class'
                )
        names = (_class_name(table, row, item) for item in items)
        rows.append(tuple(dict.fromkeys(names)))
    return rows


def check_class_separator(table: Table, column: str, separator: str | None) -> None:
    """Checks that names are separated by the flag's separator (None: a comma), not another."""
    cells = [cell for cell in table.column(column) if isinstance(cell, str)]
    if not table.marks_lists and not separator and any("," in cell for cell in cells):
        say(
            f"{table.path}: every value of {column!r} is one class; if commas separate classes, "
            "give --label_separator=,"
        )
        return
    if not (found := other_separator(cells, separator or ",")):
        return
    other, count, total = found
    problem = (
        f"{table.path}: {count:,} of {total:,} cells of {column!r} hold {other!r}, but hardly any "
        f"{separator or ','!r}, which separates classes"
    )
    if separator is None:
        # As a shell reads it.
        typed = repr(other) if other.isprintable() else f"${other!r}"
        raise ValueError(
            f"{problem}: give --label_separator={typed}, or --label_separator=, if {other!r} is "
            "part of the names"
        )
    say(f"WARNING: {problem}.")


def _split(table: Table, row: int, text: str, separator: str) -> list[str]:
    """Returns the parts of a text between separators; checks that none of them may be several."""
    parts = split(text, separator)
    of_lists = any(part.lstrip()[:1] in ("[", "{") or resembles_list(part) for part in parts)
    if of_lists or (len(parts) == 1 and separator in parts[0]):
        raise ValueError(
            f"{table.at(row)}: {shown(text)} may be one name or several: write it as a list, such "
            'as ["a", "b"]'
        )
    return parts


def read_flags(table: Table, columns: Sequence[str], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the classes of each row, from a column of 0 or 1 for each of `names`."""
    rows: list[tuple[str, ...]] = [()] * len(table)
    for column, name in zip(columns, names, strict=True):
        for row, value in enumerate(table.column(column)):
            key = str(value).strip().lower()
            if key not in _FLAGS:
                raise ValueError(f"{table.at(row)}: {name!r} is {shown(value)}, neither 0 nor 1")
            if _FLAGS[key]:
                rows[row] += (name,)
    return rows


def read_numbers(table: Table, column: str) -> np.ndarray:
    """Returns the numbers of a column, float64 [N]."""
    numbers = []
    for row, value in enumerate(table.column(column)):
        check_label(table, row, value)
        numbers.append(as_number(value))
        if math.isnan(numbers[-1]):
            raise ValueError(f"{table.at(row)}: label {shown(value)} is not a number")
        if abs(numbers[-1]) > _FLOAT32_MAX:
            raise ValueError(f"{table.at(row)}: label {shown(value)} is too large for float32")
    return np.array(numbers, np.float64)


def measure_numbers(path: str, column: str, values: np.ndarray) -> tuple[float, float]:
    """Returns the mean and standard deviation of the numbers in a training file."""
    mean, deviation = float(values.mean()), float(values.std())
    if not deviation:
        raise ValueError(
            f"{path} has the same number, {mean:g}, in all rows of {column!r}: there is nothing to "
            "learn"
        )
    about = f"{path}: the numbers in {column!r} have a standard deviation of {deviation:.3g}"
    if not _SMALLEST <= deviation <= _LARGEST:
        raise ValueError(f"{about}: give them in another unit")
    if deviation * _MOST_DEVIATIONS < abs(mean):
        raise ValueError(f"{about} and a mean of {mean:.12g}: subtract {mean:.4g} from them")
    return mean, deviation


def cosine_range(path: str, column: str, values: np.ndarray) -> tuple[float, float]:
    """Returns the numbers for the cosines 0 and 1: 0 and 1 for cosines, or else the extremes."""
    measure_numbers(path, column, values)  # checks them
    low, high = float(values.min()), float(values.max())
    if -1 <= low and high <= 1:
        return 0.0, 1.0
    say(f"{path}: {low:g} in {column!r} is learned as the cosine 0, and {high:g} as 1.")
    return low, high


def has_labels(table: Table, columns: Sequence[str]) -> bool:
    """Returns whether any row of a table has a label; an empty list counts as one."""
    cells = [value for name in columns for value in table.columns.get(name, [])]
    return not all(value != [] and is_empty(value) for value in cells)


def forms_of(table: Table, column: str) -> dict[str, bool]:
    """Returns what a `Head` keeps of the types of labels in a training file.

    Raises a ValueError if labels in memory have several types, of which it could return only one.
    """
    first, listed = {}, False
    for row, cell in enumerate(table.column(column)):
        listed |= isinstance(cell, list)
        for item in cell if isinstance(cell, list) else [cell]:
            kind = "a string" if isinstance(item, str) else "a number"
            kind = "true or false" if isinstance(item, bool) else kind
            if not is_empty(item):
                first.setdefault(kind, (row, item))
    if len(first) > 1 and table.is_exact:
        (_, other), (kind, (row, item)) = [*first.items()][:2]
        raise ValueError(
            f"{table.at(row)}: label {shown(item)} is {kind}, unlike {shown(other[1])} in row "
            f"{table.lines[other[0]]:,}: give all labels the same type"
        )
    return {"json_labels": "a string" not in first, "listed_labels": listed}


def find_classes(
    table: Table, column: str, rows: Sequence[tuple[str, ...]], kind: str
) -> tuple[str, ...]:
    """Returns the names of the classes in a training file, in order; `kind` is --label_type."""
    found = {name for names in rows for name in names}
    if len(found) < 2:
        raise ValueError(
            f"{table.path} has {counted(len(found), 'label')} in {column!r}"
            f"{f', {min(found)!r}' if found else ''}: a classifier needs two or more"
        )
    if kind == "classes" and {name.lower() for name in found} <= _FLAGS.keys():
        raise ValueError(
            f"{table.path}: {column!r} holds {' and '.join(sorted(found))} instead of class names: "
            "use --label_type=class, or list the columns of all classes in --label_column"
        )
    warn_about_names(table.path, found)
    numbers = [as_number(name) for name in found]
    decimals = not any(map(math.isnan, numbers)) and any(x % 1 for x in numbers)
    if kind == "class" and len(found) > _MANY and (decimals or 2 * len(found) > len(rows)):
        say(
            f"WARNING: {table.path}: {column!r} holds {len(found):,} classes in {len(rows):,} rows;"
            " to predict numbers, give --label_type=number."
        )
    return sorted_classes(found)


def warn_about_names(path: str, names: Collection[str]) -> None:
    """Warns of class names that are easily confused, or that may stand for a missing label."""
    groups = {}
    for name in sorted(names):
        number = as_number(name)
        groups.setdefault(fold(name) if math.isnan(number) else number, []).append(name)
    for same in groups.values():
        if len(same) > 1:
            say(
                f"WARNING: {path}: {' and '.join(map(repr, same))} differ only in case, spaces or "
                f"forms of characters or numbers, but count as {len(same)} classes: if they mean "
                "the same class, give them one name."
            )
    for name in groups.keys() & _MISSING:
        say(f"WARNING: {path}: the class {groups[name][0]!r} may stand for rows without a label.")


def sorted_classes(names: Collection[str]) -> tuple[str, ...]:
    """Returns the names of classes in order: by value if all are whole numbers."""
    names = sorted(names)
    try:
        return tuple(sorted(names, key=int))
    except ValueError:
        return tuple(names)


def class_targets(
    table: Table, rows: Sequence[tuple[str, ...]], labels: Sequence[str], several: bool
) -> np.ndarray:
    """Returns the classes of each row as indices in `labels`, int32 [N].

    With `several`, returns 1 where a row has a class and 0 elsewhere, float32 [N, C].
    """
    # A model may have been trained with decomposed names, or on other kinds of files.
    exact = {name: index for index, name in enumerate(labels)}
    indices = {class_name(name): index for name, index in exact.items()} | exact
    rows = [[x if x in exact else class_name(x) for x in names] for names in rows]
    for row, names in enumerate(rows):
        for name in names:
            if name not in indices:
                raise ValueError(
                    f"{table.at(row)}: label {name!r} is not one of the training labels: "
                    f"{shortened(labels, 20)}{similar(name, labels)}"
                )
    if not several:
        return np.array([indices[name] for (name,) in rows], np.int32)
    matrix = np.zeros((len(rows), len(labels)), np.float32)
    for row, names in enumerate(rows):
        matrix[row, [indices[name] for name in names]] = 1
    return matrix


def _class_name(table: Table, row: int, value: Any) -> str:
    check_label(table, row, value)
    if not isinstance(value, str | bool | int | float):
        raise ValueError(
            f"{table.at(row)}: label {shown(value)} is not a string: write the name of one class, "
            "or, for --label_type=classes, a list of names"
        )
    # See `_FLAGS`.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        name = value if table.is_exact else class_name(value)
    else:
        name = json.dumps(value)
    if not is_unicode(name):
        raise ValueError(f"{table.at(row)}: the label is not UTF-8: save the file as UTF-8")
    return name
