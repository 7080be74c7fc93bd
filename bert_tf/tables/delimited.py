"""Turns the lines of CSV and TSV files into rows, one by one."""

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_tf.base.progress import counted, say

# The line with which Excel states the delimiter.
DELIMITER_LINE = re.compile(r'"?sep=(.)"?\1*\r?(?=\n)', re.IGNORECASE)
# A quoted field after any delimiter.
_QUOTED_NAME = re.compile(r'(?:^|(?<=[,;\t|]))"[^"]*+(?:""[^"]*+)*+"')
# A missing quote turns only so many characters into one field, but the csv module, whose limit is
# that of the whole process, would also refuse a mail with attachments.
_LONGEST_FIELD = 2**24

# The number of a row, and its cells by the name of their column, or what is wrong with it.
Numbered = tuple[int, dict[str, Any] | ValueError]
# The number of the line on which a row begins, and its fields.
_Fields = tuple[int, list[str] | ValueError]


def csv_rows(
    path: str, lines: Iterator[str], head: str, delimiter: str | None = None
) -> Iterator[Numbered]:
    """Yields the rows of a `.csv` file, given its lines with their ends; see `rows.read_rows`.

    The `head` is at least the first line, to find the delimiter.
    """
    if stated := DELIMITER_LINE.match(head):
        # The end of the line stays, so that all others keep their numbers.
        delimiter, head = stated[1], head[stated.end() :]
        lines = itertools.chain([next(lines)[stated.end() :]], lines)
    if not delimiter:
        header = _QUOTED_NAME.sub("", head.lstrip("\r\n")).partition("\n")[0]
        common = max(",;\t", key=header.count)
        delimiter = common if common in header or "|" not in header else "|"
    rows = _counting(
        ((number, fields) for number, fields, _ in _records(path, lines, delimiter)),
        lambda field: "\n" in field,
        lambda fields, line: (
            f"{path}: {fields} with line breaks, the first in line {line:,}. If you expect none, "
            'look there for a stray ", which joins rows.'
        ),
    )
    return _named(path, rows)


def tsv_rows(path: str, lines: Iterator[str], quoted: bool) -> Iterator[Numbered]:
    """Yields the rows of a `.tsv` file; see `csv_rows`. It may be `quoted` as in `.csv` files."""
    if quoted:
        return csv_rows(path, lines, "", "\t")
    rows = _counting(
        enumerate(map(_split, lines), 1),
        lambda field: len(field) > 1 and field[0] == field[-1] == '"',
        lambda fields, _: (
            f"{path}: kept the quotes around {fields} as text, because not all fields follow the "
            "quoting rules of .csv. To find out where, name the file .csv."
        ),
    )
    return _named(path, rows)


def _split(line: str) -> list[str]:
    """Returns the fields of a line without quotes; none of a blank one."""
    text = line.removesuffix("\n").removesuffix("\r")
    return text.split("\t") if text else []


def _records(
    path: str, lines: Iterable[str], delimiter: str
) -> Iterator[tuple[int, list[str] | ValueError, list[str]]]:
    """Yields the number of the first line of each row, its fields, and its lines.

    The csv module ends rows at a lone carriage return, although writers leave it unquoted. It
    becomes a space, which is the same to the tokenizer.
    """
    taken: list[str] = []

    def kept() -> Iterator[str]:
        for line in lines:
            taken.append(re.sub("\r(?!\n)", " ", line) if "\r" in line else line)
            yield taken[-1]

    csv.field_size_limit(_LONGEST_FIELD)
    reader, number, more = csv.reader(kept(), delimiter=delimiter, strict=True), 1, True
    while more:
        try:
            fields = next(reader, None)
            more = fields is not None
        except csv.Error as error:
            problem = str(error).replace("unexpected end of data", "a quote is not closed")
            rule = 'inside a quoted field, a quote is written ""'
            fields = ValueError(f"{path}, line {number:,}: {problem}; {rule}")
        if more:
            yield number, fields, [*taken]
        number += len(taken)
        taken.clear()


def _counting(
    rows: Iterator[_Fields], matches: Callable[[str], bool], note: Callable[[str, int], str]
) -> Iterator[_Fields]:
    """Yields the rows; says how many of their fields match, if any, and where the first is."""
    count = first = 0
    for line, fields in rows:
        if isinstance(fields, list) and (here := sum(map(matches, fields))):
            count, first = count + here, first or line
        yield line, fields
    if count:
        say(note(counted(count, "field"), first))


def is_quoted(path: str, lines: Iterable[str]) -> bool:
    """Returns whether a tab-separated file follows the quoting rules of `.csv` throughout."""
    header, count, widths = None, 0, set()
    breaks = doubled = False
    for _, fields, taken in _records(path, lines, "\t"):
        widths |= {len(_split(line)) for line in taken}
        if isinstance(fields, ValueError):
            return False
        if (in_quotes := _in_quotes(fields, "".join(taken))) is None:
            return False
        if fields in ([], [""]) and not any(in_quotes):
            continue
        if header is None:
            header, quoted, needed = fields, [0] * len(fields), [True] * len(fields)
            continue
        if len(fields) != len(header):
            return False
        count += 1
        for index, field in enumerate(fields):
            if in_quotes[index]:
                quoted[index] += 1
                # Some writers also quote fields with commas.
                needed[index] &= '"' in field or "," in field
                doubled |= '"' in field
                breaks |= "\n" in field or "\t" in field
    if not count or len(widths - {0}) > 1:
        return bool(count)
    # Both readings fit. Stray quotes could join rows, but doubled quotes are deliberate.
    always = [number == count > 1 for number in quoted]
    return not breaks and (doubled or any(always)) and all(map(max, always, needed))


def _in_quotes(fields: list[str], text: str) -> list[bool] | None:
    """Returns which fields of a row are in quotes; None if a quote is inside an unquoted one."""
    found, start = [], 0
    for field in fields:
        found.append(text.startswith('"', start))
        written = '"' + field.replace('"', '""') + '"' if found[-1] else field
        if not found[-1] and '"' in field:
            return None
        start += len(written) + 1
    return found


def _named(path: str, rows: Iterator[_Fields]) -> Iterator[Numbered]:
    """Yields the cells of each row by the names in the first one, as pandas makes up others."""
    names = None
    for line, row in rows:
        if isinstance(row, ValueError):
            if names is None:
                raise row
            yield line, row
        elif names is None:
            found = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(row)]
            if twice := {name for name in found if found.count(name) > 1}:
                raise ValueError(f"{path}: the first line names {min(twice)!r} twice")
            names = found or None
        elif row or len(names) == 1:
            fields, at = row or [""], f"{path}, line {line:,}"
            if len(fields) != len(names):
                found = f"{counted(len(fields), 'column')}, but the first line has {len(names)}"
                yield line, ValueError(f"{at}: {found}: {', '.join(map(repr, names))}")
            elif len(names) > 1 and [*map(str.strip, fields)] == names:
                yield line, ValueError(f"{at} names the columns again: leave it out")
            else:
                yield line, dict(zip(names, fields, strict=True))
