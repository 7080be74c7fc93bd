"""Reads texts: arguments and lines, rows of tables, and the values that Python code passes."""

import codecs
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.base.content import check_encoding, is_utf8, read_lines
from bert_tf.base.files import expand_files
from bert_tf.base.progress import counted
from bert_tf.inference.inference_options import ColumnOptions, TextOptions
from bert_tf.runs.run import Run
from bert_tf.tables.columns import Columns, find_columns
from bert_tf.tables.memory import is_table, opened, plain_cells, table_in_memory
from bert_tf.tables.rows import NoRows, Numbered, read_rows, table_kind
from bert_tf.tables.table import Table, fold, parse_list

# What messages call the values that Python code passes.
_SOURCE, _UNIT = "the input", "row"
CHUNK_LINES = 1024
# A row with longer texts counts as several.
_ROW_BYTES = 2**14
PAIR = " ||| "
# What a model reads, as people paste it.
PASTED = re.compile(rb"\s*\[CLS\]\s*(.*?)\s*(?:\[SEP\]\s*(.*?)\s*)?\[SEP\]\s*", re.S)
# The strings by the names of the inputs, and possibly an id.
Example = dict[str, Any]


class TextRow(NamedTuple):
    """An example in a file."""

    texts: bytes | tuple  # a line; or the texts of a row, UTF-8 bytes or a list of choices
    id: Any = None
    others: Example | None = None  # the cells of the other columns, if --keep_columns keeps them

    @property
    def content(self) -> bytes:
        """The texts together, without choices."""
        texts = [self.texts] if isinstance(self.texts, bytes) else self.texts
        return b" ".join(text for text in texts if isinstance(text, bytes))


# The number of a row, and the row or what is wrong with it.
NumberedRow = tuple[int, TextRow | ValueError]


def read_examples(
    options: TextOptions,
    signature: Sequence[tf.TensorSpec],
    trained: Columns = Columns(),  # noqa: B008
) -> Iterator[list[Example]]:
    """Yields examples in chunks, or one by one if someone types them and awaits each answer.

    An example has a string for every input of the model, or a list of strings if the input is of
    rank 2, and possibly an `id`. A line holds the strings separated by tabs, or a pair separated by
    " ||| ". The examples before a malformed one are still yielded. A table is read as
    run_finetuning reads it. Bytes that are not UTF-8 are dropped, as in fine-tuning; a warning at
    the end counts the examples with such bytes. The model's run was `trained` on these columns.
    """
    typed = not options.texts and not options.input_file and sys.stdin.isatty()
    if typed:
        print("Type one text per line, and end with Ctrl-D.")
    files = expand_files(options.input_file, True) if options.input_file else [None]
    items = read_each(files, lambda file: read_numbered(options, signature, trained, file))
    yield from examples_of((row for *_, row in items), signature, 1 if typed else CHUNK_LINES)


def examples_of(
    rows: Iterable[TextRow | ValueError],
    signature: Sequence[tf.TensorSpec],
    size: int = CHUNK_LINES,
) -> Iterator[list[Example]]:
    """Yields the examples of rows in chunks of this size; see `read_examples`."""
    names, number, not_utf8 = [spec.name for spec in signature], 0, 0
    for chunk in in_groups(rows, rows_in, size):
        examples = []
        for row in chunk:
            if isinstance(row, ValueError):
                # What was read so far is still predicted.
                yield examples
                raise row
            number += 1
            not_utf8 += not is_utf8(row.content)
            examples.append(example_of(row, names))
        yield examples
    if not_utf8:
        total = counted(number, "example")
        print(f"WARNING: dropped bytes that are not UTF-8 from {not_utf8:,} of {total}.")


def example_of(row: TextRow, names: Sequence[str]) -> Example:
    """Returns a row's texts by the `names` of the inputs, its id if there is one, and others."""
    texts = [x.decode("utf-8", "ignore") if isinstance(x, bytes) else x for x in row.texts]
    found = {} if row.id in (None, "") else {"id": row.id}
    return together(found | dict(zip(names, texts, strict=True)), row.others or {})


def together(row: Example, more: Example) -> Example:
    """Returns two parts of a row as one; raises a ValueError if both have a column."""
    if same := next(filter(row.__contains__, more), None):
        what = f"a column kept by --keep_columns is called {same!r}"
        raise ValueError(f"{what}, like a part of the output: rename it")
    return row | more


def read_each(
    files: Sequence[str | None], read: Callable[[str | None], Iterator[NumberedRow]]
) -> Iterator[tuple[str | None, int, TextRow | ValueError]]:
    """Yields the files with what `read` yields for each; of several files, some may be empty."""
    for file in files:
        try:
            for number, row in read(file):
                yield file, number, row
        except NoRows as error:
            if len(files) == 1:
                raise
            print(f"WARNING: {error}.")


def read_numbered(
    options: TextOptions, signature: Sequence[tf.TensorSpec], trained: Columns, path: str | None
) -> Iterator[NumberedRow]:
    """Yields the numbers of lines or rows, and their texts, or an error; see `read_examples`.

    Without a `path`, it reads the arguments or standard input.
    """
    if not (given := table_columns(options, path)):
        return _parsed_lines(options.texts, path, signature)
    names, has_choices = [spec.name for spec in signature], signature[-1].shape.rank == 2
    if has_choices and table_kind(path) in ("csv", "tsv"):
        raise ValueError(f"{path}: a table has no lists of choices: give a .jsonl file")
    keep = getattr(options, "keep_columns", False)  # Not every command has it.
    unit, rows = read_rows(path, trained.tsv_quotes)
    return texts_of_rows(path, unit, rows, given, trained, names, has_choices, keep)


def _parsed_lines(
    texts: Sequence[str], path: str | None, signature: Sequence[tf.TensorSpec]
) -> Iterator[NumberedRow]:
    if texts:
        # Arguments that are not UTF-8 arrive with surrogates.
        source, lines = "the arguments", (x.encode("utf-8", "surrogateescape") for x in texts)
    elif path:
        source, lines = path, split_lines(path)
    else:
        source, lines = "standard input", _standard_input()
    for number, line in enumerate(lines, 1):
        try:
            yield number, TextRow(parse_line(line, signature))
        except ValueError as error:
            yield number, ValueError(f"{source}, line {number}: {error}")


def parse_line(line: bytes, signature: Sequence[tf.TensorSpec]) -> tuple:
    """Returns the texts of a line, and a list of choices if the last input is one."""
    names = [spec.name for spec in signature]
    if len(names) == 1:
        return (line,)
    fields = line.split(b"\t") if b"\t" in line else line.rsplit(PAIR.encode(), 1)
    if (pasted := PASTED.fullmatch(line)) and pasted[2]:
        fields = pasted.groups()
    if is_choice := signature[-1].shape.rank == 2:
        choices = [x.decode("utf-8", "ignore") for x in fields[len(names) - 1 :]]
        fields = [*fields[: len(names) - 1], choices]
    if len(fields) != len(names) or (is_choice and not fields[-1]):
        inputs = " and ".join(names)
        raise ValueError(f"the model needs {inputs}: separate them with a tab or{PAIR.rstrip()}")
    return tuple(fields)


def split_lines(file: str) -> Iterator[bytes]:
    """Yields the lines of a text file without their ends (LF or CRLF); blank lines, too."""
    for part in read_lines(file):
        for line in part.removesuffix(b"\n").split(b"\n"):
            yield line.removesuffix(b"\r")


def _standard_input() -> Iterator[bytes]:
    for number, line in enumerate(sys.stdin.buffer):
        if number == 0:
            check_encoding(line, "standard input")
        yield (line if number else line.removeprefix(codecs.BOM_UTF8)).rstrip(b"\r\n")


def in_chunks(items: Iterable, size: int) -> Iterator[list]:
    """Yields lists of `size` items; the last one may be shorter."""
    return in_groups(items, lambda item: 1, size)


def in_groups(items: Iterable, size_of: Callable[[Any], int], most: int) -> Iterator[list]:
    """Yields lists of items whose sizes add up to `most`, or of a single larger item."""
    group, size = [], 0
    for item in items:
        if group and size + size_of(item) > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
        if size >= most:  # without waiting for another item
            yield group
            group, size = [], 0
    if group:
        yield group


def rows_in(row: TextRow | dict[str, Any] | ValueError) -> int:
    """Returns how many rows of usual size take as much memory as a row."""
    texts = row.values() if isinstance(row, dict) else ()
    if isinstance(row, TextRow):
        texts = [row.content, *(row.others or {}).values()]
    return 1 + sum(len(x) for x in texts if isinstance(x, str | bytes)) // _ROW_BYTES


def table_columns(options: ColumnOptions, path: str | None) -> Columns | None:
    """Returns the columns that flags name; None if the input is not a table.

    Raises a ValueError if flags name columns, but the input is not a table.
    """
    # Not every command takes pairs.
    given = Columns(options.text_column, getattr(options, "text_b_column", None))
    if table_kind(path or ""):
        return given
    tables = "is only for an --input_file named .csv, .tsv, .json, .jsonl, .parquet or .tfrecord"
    options.refuse(("text_column", "text_b_column", "keep_columns"), tables)
    return None


def columns_of_run(run: Run | None, words: bool = False) -> Columns:
    """Returns the columns of texts and labels that a fine-tuning run was trained on.

    `words` says whether texts may be lists of words, as runs on tags learned them.
    """
    flags = run.flags if run else {}
    names = ("text_column", "text_b_column", "label_column", "label_type")
    *found, kind = map(flags.get, names)
    if flags.get("task") != "csv" or (kind == "tags" and not words):
        return Columns(words=words)
    return replace(Columns.of(*found, kind), tsv_quotes=flags.get("tsv_quotes"), words=words)


def texts_of_rows(
    path: str,
    unit: str,
    numbered: Iterable[Numbered],
    given: Columns,
    trained: Columns,
    inputs: Sequence[str],
    has_choices: bool = False,
    keep: bool = False,
) -> Iterator[NumberedRow]:
    """Yields the texts of rows that have names for their cells; see `Table` for `path` and `unit`.

    The first rows decide which columns to read, as in run_finetuning; what they guess is printed. A
    row that cannot be read is a ValueError. The user names `given` columns; the model's run read
    those `trained`, which `inputs`, the names of one or two texts, replace if the table has only
    these. The last text may be a list of choices. `keep` keeps the other columns.
    """
    if given.text_b and len(inputs) == 1:
        raise ValueError("--text_b_column is only for models of pairs of texts: omit it")
    columns, without_id = None, 0
    for chunk in in_groups(numbered, lambda item: rows_in(item[1]), CHUNK_LINES):
        if not columns:
            good = [item for item in chunk if not isinstance(item[1], ValueError)]
            if not good:
                raise chunk[0][1]
            table = Table.of(path, good, unit)
            flags = ((given.text, trained.text), (given.text_b, trained.text_b))
            usual = [("tokens", "text")] if trained.words else [(name,) for name in inputs]
            wanted = Columns(*map(_choose, [table] * 2, flags, usual), labels=trained.labels)
            columns = find_columns(table, wanted, labelled=False)
            columns = replace(columns, words=trained.words)
            names = [name for name in (columns.text, columns.text_b, columns.id) if name]
        for line, row in chunk:
            if not isinstance(row, ValueError):
                has_id = columns.id in row  # unlike a string among dicts
                others = {x: y for x, y in row.items() if x not in names} if keep else None
                try:
                    row = _row(Table.of(path, [(line, row)], unit, names), columns, has_choices)
                    row = row._replace(others=others)
                    without_id += has_id and row.id in (None, "")
                except ValueError as error:
                    row = error
            yield line, row
    if without_id:
        rows = counted(without_id, "row")
        print(f"WARNING: {path}: {rows} without {columns.id!r} (empty, null, NaN or infinite).")


def _row(table: Table, columns: Columns, has_choices: bool) -> TextRow:
    """Returns the only row of a table."""
    names = [name for name in (columns.text, columns.text_b) if name]
    if columns.words and _is_list(table.columns[columns.text][0]):
        texts = [[*table.words(0, columns.text, "word")]]
        if not texts[0]:
            raise ValueError(f"{table.at(0)}: {columns.text!r} holds no word")
    else:
        texts = [table.texts(name)[0] for name in names[: len(names) - has_choices]]
    if has_choices:
        texts.append([*table.words(0, names[-1], "choice")])
        if not texts[-1]:
            raise ValueError(f"{table.at(0)}: {names[-1]!r} holds no choice")
    own = table.columns[columns.id][0] if columns.id else None
    if isinstance(own, str):
        table.ids(columns.id)  # checks it; an id of another type comes back as it is
    return TextRow(tuple(texts), own)


def _is_list(cell: Any) -> bool:
    """Returns whether a cell is a list, or a string that states one, as in training."""
    try:
        return isinstance(cell, list) or (isinstance(cell, str) and bool(parse_list(cell)))
    except ValueError:  # a text that starts with a bracket
        return False


def _choose(table: Table, flags: tuple[str | None, str | None], names: Sequence[str]) -> str | None:
    """Returns the column of an input: that of a flag, or else of the run, or of a usual name."""
    given, saved = flags
    known = set(map(fold, table.columns))
    # A single text is also found under other names.
    default = saved or (names[0] if "text" not in names else None)
    return given or next((x for x in (saved, *names) if x and fold(x) in known), default)


def given_examples(
    texts: Any,
    signature: Sequence[tf.TensorSpec],
    trained: Columns = Columns(),  # noqa: B008
    given: Columns = Columns(),  # noqa: B008
) -> tuple[list[Example], bool]:
    """Returns the examples that Python code passes, and whether they are a single one.

    The model's run was `trained` on these columns; the user names `given` ones.
    """
    values = texts if is_table(texts) else opened(texts)
    is_tuple = isinstance(texts, tuple) and len(texts) == len(signature) > 1
    single = isinstance(values, str | bytes | Mapping) and not is_table(texts)
    single |= is_tuple and isinstance(texts[0], str | bytes)
    rows = _given_rows([values] if single else values, signature, trained, given)
    return [*itertools.chain.from_iterable(examples_of(rows, signature))], single


def is_frame(values: Any) -> bool:
    """Returns whether a value is a data frame."""
    # Whatever has its methods is one, so pandas is not imported.
    return hasattr(values, "columns") and hasattr(values, "assign")


def _given_rows(
    values: Any, signature: Sequence[tf.TensorSpec], trained: Columns, given: Columns
) -> Iterator[TextRow | ValueError]:
    """Yields the texts of a data frame or of examples, or errors in their place."""
    if is_table(values):
        rows = table_in_memory(values, _SOURCE).rows()
    elif isinstance(values, Set) or not isinstance(values, Iterable):
        needed = "a text, a dict, a list or a data frame"
        raise ValueError(f"{_SOURCE} is {values!r:.60}: give {needed}")
    else:
        values, words = [*values], trained.words
        pairs = enumerate(zip(plain_cells(values, _SOURCE), values, strict=True), 1)
        rows = ((number, _cells(number, *pair, signature, words)) for number, pair in pairs)
    names, has_choices = [spec.name for spec in signature], signature[-1].shape.rank == 2
    found = texts_of_rows(_SOURCE, _UNIT, rows, given, trained, names, has_choices)
    return (row for _, row in found)


def _cells(
    number: int, value: Any, given: Any, signature: Sequence[tf.TensorSpec], words: bool
) -> dict[str, Any] | ValueError:
    """Returns the inputs of an example by their names; a string is read as a line.

    `value` is the example that was `given`, as `plain` returns it. `words` says whether a list may
    be the words of a text.
    """
    names = [spec.name for spec in signature]
    needed, texts = f"the model needs {' and '.join(names)}", value
    if isinstance(value, str):
        try:
            # What is not UTF-8 becomes lone surrogates, as in tables.
            parts = parse_line(value.encode(errors="surrogatepass"), signature)
            texts = [
                x if isinstance(x, list) else x.decode(errors="surrogateescape") for x in parts
            ]
        except ValueError as error:
            needed = error
    elif len(names) == 1 and not isinstance(value, Mapping):
        texts = [value] if words and isinstance(value, list) else None
    if isinstance(texts, list) and len(texts) == len(names):
        value = dict(zip(names, texts, strict=True))
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return dict(value)
    shown = "missing" if value is None else f"{given!r:.60}"
    return ValueError(f"{_SOURCE}, {_UNIT} {number:,} is {shown}: {needed}")
