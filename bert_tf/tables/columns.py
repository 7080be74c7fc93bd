"""Finds the columns of texts and labels in a table."""

import dataclasses
import itertools
import math
import re
from dataclasses import dataclass

from bert_tf.base.progress import say
from bert_tf.tables.table import Table, as_number, fold, short_name

# Characters in the first line of a file with other separators than it should have.
_DELIMITERS = {*",;|^~:\t"}
# pandas writes its index without a name, or under one of these.
_NAMELESS = re.compile(r"(unnamed: \d+|__index_level_\d+__|level_0|index)?", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; None, or () for labels, to find one or if there is none."""

    text: str | None = None
    text_b: str | None = None
    labels: tuple[str, ...] = ()
    id: str | None = None
    negative: str | None = None  # wrong second texts
    words: bool = False  # whether a text may be a list of words
    tsv_quotes: bool | None = None  # whether quotes enclose the fields of .tsv files, if known

    @classmethod
    def of(
        cls, text_column: str | None, text_b_column: str | None, label_column: str | None, kind: str
    ) -> "Columns":
        """Returns the columns that the flags of run_finetuning name; `kind` is --label_type."""
        several = label_column and kind == "classes"
        names = label_column.split(",") if several else filter(None, [label_column])
        return cls(text_column, text_b_column, tuple(map(str.strip, names)))


def find_columns(
    table: Table,
    wanted: Columns = Columns(),  # noqa: B008
    labelled: bool = True,
    names: tuple[str, str] = ("text", "label"),
) -> Columns:
    """Finds the columns of a table; upper and lower case in their names do not matter.

    If `wanted` does not name the column of the text, it is `text` or else the only column left; the
    same holds for the label. If two columns with other names are left, their contents decide: texts
    are longer and less often repeated, or not numbers. Prints what it guessed.

    A `labelled` table must have labels. `names` are the default names of the columns of the text
    and the label. Returns the names of the columns as the file spells them. If the table has no
    labels, `labels` holds the names that their columns would have.
    """
    if len(table.columns) == 1 and _DELIMITERS & {*min(table.columns)} - {*(wanted.text or "")}:
        raise ValueError(
            f"{table.path} has a single column, {table.names()}: separate the columns of a "
            ".csv file with commas, semicolons, tabs or |, and those of a .tsv file with tabs; if "
            "it is a name, give it as --text_column"
        )
    if len(table) == 1 and names[0] == "text" and table.unit in ("line", "object"):
        _check_object_is_row(table, _find(table, wanted.text or "text", "text"))
    text = _given(table, wanted.text, "text") or _find(table, names[0], "text", exact=False)
    labels = tuple(_given(table, name, "label", labelled) for name in wanted.labels)
    # Commands that only predict have no --label_column.
    flag = "label" if labelled else None
    if not labels and (label := _find(table, names[1], flag, exact=False)):
        labels = (label,)
    text_b = _given(table, wanted.text_b, "text_b")
    negative = _given(table, wanted.negative, "negative")
    found = Columns(text, text_b, labels, _find(table, "id", None), negative)
    if not found.text or (labelled and not found.labels):
        found = _guess(table, found, labelled, names)
    read = [("text", found.text), ("text_b", found.text_b), ("negative", found.negative)]
    read += [("label", name) for name in found.labels if labelled]
    for (what, name), (other, same) in itertools.combinations(read, 2):
        if name and name == same:
            raise ValueError(
                f"{table.path}: {name!r} is both --{what}_column and --{other}_column: name two "
                "different columns"
            )
    return found if found.labels else dataclasses.replace(found, labels=(names[1],))


def _check_object_is_row(table: Table, text: str | None) -> None:
    """Raises a ValueError if a file with a single JSON object seems to hold several rows in it."""
    cells = [column[0] for name, column in table.columns.items() if text in (None, name)]
    nested = [x for x in cells if isinstance(x, dict) or (isinstance(x, list) and len(x) > 1)]
    lists = [x for x in cells if isinstance(x, list) and {*map(type, x)} & {dict, list}]
    if lists or any(text or isinstance(x, dict) for x in nested):
        raise ValueError(
            f"{table.path} is a single JSON object, which seems to hold several rows: write one "
            'object per row, with pandas: to_json(path, orient="records", lines=True)'
        )


def _given(table: Table, name: str | None, what: str, needed: bool = True) -> str | None:
    """Returns a column that a flag names, as the file spells it; it must exist if `needed`."""
    found = name and _find(table, name, what if needed else None)
    if name and needed and not found:
        only_tests = "; only --test_file may lack labels" if what == "label" else ""
        table.column(name, f": name another one with --{what}_column{only_tests}")
    return found or name


def _find(table: Table, name: str, flag: str | None, exact: bool = True) -> str | None:
    """Returns a column's name as the file spells it, if `exact` then preferably this; or None."""
    if exact and name in table.columns:
        return name
    same = [other for other in table.columns if fold(other) == fold(name)]
    if len(same) > 1:
        raise ValueError(
            f"{table.path} has the columns {' and '.join(map(repr, same))}: "
            + (f"choose one as --{flag}_column" if flag else "rename all but one")
        )
    return same[0] if same else None


def _guess(table: Table, known: Columns, labelled: bool, names: tuple[str, str]) -> Columns:
    """Fills in missing columns from those that are left; prints the result."""
    taken = (known.text, known.text_b, known.id, known.negative, *known.labels)
    rest = [x for x in table.columns if x not in taken and not _NAMELESS.fullmatch(x)]
    found = {}
    if len(rest) == 2 and not known.text and not known.labels:
        found = _by_content(table, *rest, of_words=names == ("tokens", "tags"))
    elif len(rest) == 1 and not known.text and (known.labels or not labelled):
        found = {"text": rest[0]}
    elif len(rest) == 1 and known.text:
        found = {"label": rest[0]}
    missing = {"text": names[0]} if not known.text else {}
    missing |= {"label": names[1]} if labelled and not known.labels else {}
    flags = " and ".join(f"--{what}_column" for what in missing)
    for name in found.values() or rest:
        is_name = name.isdecimal() or math.isnan(as_number(name))
        if not is_name or name in table.columns[name]:
            raise ValueError(
                f"{table.path}: the first line must name the columns, such as text and label, but "
                f"{short_name(name)} looks like a value: add such a line, or give {flags} if it is "
                "a name"
            )
    if not found:
        raise ValueError(
            f"{table.path} has no column {' or '.join(map(repr, missing.values()))}, only "
            f"{table.names()}: name the right one with {flags}"
            + ("; only --test_file may lack labels" if "label" in missing else "")
        )
    guessed = " and ".join(f"the {what} in {short_name(name)}" for what, name in found.items())
    say(f"{table.path}: found {guessed}; to read another column, give {flags}.")
    labels = (found["label"],) if "label" in found else known.labels
    return dataclasses.replace(known, text=found.get("text", known.text), labels=labels)


def _by_content(table: Table, *names: str, of_words: bool) -> dict[str, str]:
    """Returns which of two columns holds the text and which the label; {} if that is unclear."""
    columns = [table.columns[name] for name in names]
    cells = [
        [x if isinstance(x, str) else "" if x is None else repr(x) for x in column]
        for column in columns
    ]
    numeric = [not any(math.isnan(as_number(cell or 0)) for cell in column) for column in cells]
    distinct, length = [len(set(x)) for x in cells], [sum(map(len, x)) for x in cells]
    if of_words:
        distinct = length = [len({*" ".join(column).split()}) for column in cells]
    lists = [any(isinstance(x, dict | list) for x in column) for column in columns]
    for text, label in ((0, 1), (1, 0)):
        if lists[text] and not lists[label]:
            continue
        larger = distinct[text] >= distinct[label] and length[text] > length[label]
        if numeric[label] and not numeric[text] or (larger and numeric[text] == numeric[label]):
            return {"text": names[text], "label": names[label]}
    return {}
