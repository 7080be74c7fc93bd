"""Turns the lines of CSV and TSV files into rows, one by one."""

import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_tf.base.progress import counted, say

# The line with which Excel states the delimiter.
DELIMITER_LINE = re.compile(r'"?sep=(.)"?\1*\r?(?=\n)', re.IGNORECASE)
# A quoted field after any delimiter.
_QUOTED_NAME = re.compile(r'(?:^|(?<=[,;\t|]))"[^"]*+(?:""[^"]*+)*+"')
# What a quoted field holds, up to the quote that closes it.
_INSIDE = re.compile(r'[^"]*+(?:""[^"]*+)*+')

# The number of a row, and its cells by the name of their column, or what is wrong with it.
Numbered = tuple[int, dict[str, Any] | ValueError]
# The number of the line on which a row begins, and its fields.
_Fields = tuple[int, list[str] | ValueError]


def csv_rows(
    path: str, lines: Iterator[str], head: str, longest: float, delimiter: str | None = None
) -> Iterator[Numbered]:
    """Yields the rows of a `.csv` file, given its lines with their ends; see `rows.read_rows`.

    The `head` is at least the first line, to find the delimiter. `longest` is the most characters
    of a field, so that a missing quote does not turn the rest of a file into one.
    """
    if stated := DELIMITER_LINE.match(head):
        # The end of the line stays, so that all others keep their numbers.
        delimiter, head = stated[1], head[stated.end() :]
        lines = itertools.chain([next(lines)[stated.end() :]], lines)
    if not delimiter:
        header = _QUOTED_NAME.sub("", head.lstrip("\r\n")).partition("\n")[0]
        common = max(",;\t", key=header.count)
        delimiter = common if common in header or "|" not in header else "|"
    # The csv module ends rows at a lone carriage return, although writers leave it unquoted. Texts
    # lose nothing: to the tokenizer it is a space.
    lines = (re.sub("\r(?!\n)", " ", line) for line in lines)
    records = _records(path, lines, delimiter, longest)
    rows = _counting(
        ((n, x if isinstance(x, ValueError) else [*map(_unquoted, x)]) for n, x in records),
        lambda field: "\n" in field,
        lambda fields, line: (
            f"{path}: {fields} with line breaks, the first in line {line:,}. If you expect none, "
            'look there for a stray ", which joins rows.'
        ),
    )
    return _named(path, rows)


def tsv_rows(
    path: str, lines: Callable[[], Iterator[str]], head: str | None, longest: float
) -> Iterator[Numbered]:
    """Yields the rows of a `.tsv` file; see `csv_rows`.

    Here, `lines` opens the lines; the `head`, or else all, decide whether the fields are quoted.
    """
    while head and head.count('"') % 2:  # the last row may be incomplete
        head = head[: head.rfind("\n", 0, head.rfind('"')) + 1]
    if _is_quoted(path, lines() if head is None else io.StringIO(head)):
        say(f"{path}: its fields are quoted as in .csv files and are read that way.")
        return csv_rows(path, lines(), "", longest, "\t")
    rows = _counting(
        enumerate(map(_split, lines()), 1),
        lambda field: len(field) > 1 and field[0] == field[-1] == '"',
        lambda fields, _: (
            f"{path}: kept the quotes around {fields} as text, because not all fields follow the "
            "quoting rules of .csv. To find out where, name the file .csv."
        ),
    )
    return _named(path, rows)


def _split(line: str, delimiter: str = "\t") -> list[str]:
    """Returns the fields of a line without quotes; none of a blank one."""
    text = line.removesuffix("\n").removesuffix("\r")
    return text.split(delimiter) if text else []


def _unquoted(field: str) -> str:
    return field[1:-1].replace('""', '"') if field[:1] == '"' else field


def _records(
    path: str, lines: Iterable[str], delimiter: str, longest: float = math.inf
) -> Iterator[_Fields]:
    """Yields the fields of each row as the csv module with `strict` does, but with quotes."""
    # That module limits fields for the whole process, to less than a mail with attachments.
    numbered = enumerate(lines, 1)
    rest = (line for _, line in numbered)
    for number, line in numbered:
        try:
            yield number, _fields(line, rest, delimiter, longest)
        except ValueError as error:
            rule = 'inside a quoted field, a quote is written ""'
            yield number, ValueError(f"{path}, line {number:,}: {error}; {rule}")


def _fields(line: str, rest: Iterator[str], delimiter: str, longest: float) -> list[str]:
    """Returns the fields of a row that begins with a line and goes on in the `rest`."""
    if '"' not in line and len(line) <= longest:
        return _split(line, delimiter)
    fields, more = [], True
    while more:
        if line.startswith('"'):
            field, line = _quoted_field(line, rest, longest)
            after, more, line = line.partition(delimiter)
            if after not in ("", "\n", "\r\n"):
                raise ValueError(f"'{delimiter}' expected after '\"'")
        else:
            field, more, line = line.partition(delimiter)
            field = field if more else field.removesuffix("\n").removesuffix("\r")
        if len(field) > longest:
            raise ValueError(f"field larger than field limit ({longest})")
        fields.append(field)
    return fields


def _quoted_field(line: str, rest: Iterator[str], longest: float) -> tuple[str, str]:
    """Returns the field in quotes that begins a line, and what follows it in its last line."""
    parts, size, start = [], 0, 1
    while (end := _INSIDE.match(line, start).end()) == len(line):
        size += len(line)
        if size > longest:
            raise ValueError(f"field larger than field limit ({longest})")
        parts.append(line)
        line, start = next(rest, ""), 0
        if not line:
            raise ValueError("a quote is not closed")
    return "".join([*parts, line[: end + 1]]), line[end + 1 :]


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


def _is_quoted(path: str, lines: Iterable[str]) -> bool:
    """Returns whether a tab-separated file follows the quoting rules of `.csv` throughout."""
    header, count, widths = None, 0, set()
    breaks = doubled = False

    def measured() -> Iterator[str]:
        for line in lines:
            widths.add(len(_split(line)))
            yield line

    for _, fields in _records(path, measured(), "\t"):
        if isinstance(fields, ValueError) or any('"' in x and x[0] != '"' for x in fields):
            return False
        if fields in ([], [""]):
            continue
        if header is None:
            header, quoted, needed = fields, [0] * len(fields), [True] * len(fields)
            continue
        if len(fields) != len(header):
            return False
        count += 1
        for index, field in enumerate(fields):
            if field[:1] == '"':
                text = field[1:-1]
                quoted[index] += 1
                # Some writers also quote fields with commas.
                needed[index] &= '""' in text or "," in text
                doubled |= '""' in text
                breaks |= "\n" in text or "\t" in text
    if not count or len(widths - {0}) > 1:
        return bool(count)
    # Both readings fit. Stray quotes could join rows, but doubled quotes are deliberate.
    always = [number == count > 1 for number in quoted]
    return not breaks and (doubled or any(always)) and all(map(max, always, needed))


def _named(path: str, rows: Iterator[_Fields]) -> Iterator[Numbered]:
    """Yields the cells of each row by the names in the first one."""
    names, nameless, first_nameless = None, 0, 0
    for line, row in rows:
        if isinstance(row, ValueError):
            if names is None:
                raise row
            yield line, row
        elif names is None:
            found = [name.strip() for name in row]
            if twice := {name for name in found if name and found.count(name) > 1}:
                raise ValueError(f"{path}: the first line names {min(twice)!r} twice")
            names = found or None
        elif row or len(names) == 1:
            fields = row or [""]
            if problem := _problem(names, fields):
                yield line, ValueError(f"{path}, line {line:,}{problem}")
                continue
            # The first column may be the index of the rows.
            others = zip(names[1:], fields[1:], strict=True)
            if "" in names and (here := sum(bool(cell) and not name for name, cell in others)):
                nameless, first_nameless = nameless + here, first_nameless or line
            yield line, dict(zip(names, fields, strict=True))
    if nameless:
        say(
            f"{path}: ignored {counted(nameless, 'cell')} in columns without a name, the "
            f"first in line {first_nameless:,}."
        )


def _problem(names: list[str], fields: list[str]) -> str | None:
    """Returns what is wrong with the fields of a row, if anything."""
    if len(names) > 1 and [*map(str.strip, fields)] == names:
        return " names the columns again: leave it out"
    if len(fields) != len(names):
        known = ", ".join(map(repr, names))
        return f": {counted(len(fields), 'column')}, but the first line has {len(names)}: {known}"
    return None
