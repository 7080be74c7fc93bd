"""Reads the examples that a fine-tuned model predicts: texts, pairs, questions with contexts."""

import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.corpus.sources import is_json
from bert_tf.corpus.utf8 import is_unicode, is_utf8
from bert_tf.finetuning.columns import Columns
from bert_tf.finetuning.tables import fold, parse_json
from bert_tf.inference.lines import CHUNK_LINES, in_chunks, read_chunks
from bert_tf.inference.options import ExampleOptions
from bert_tf.inference.table_files import check_columns, is_table, read_rows
from bert_tf.run_folder import RunFolder
from tfrecords.progress import counted

Example = dict[str, Any]
PAIR = " ||| "


def columns_of_run(run: RunFolder | None) -> Columns:
    """Returns the columns of texts and labels that a fine-tuning run was trained on."""
    flags = run.read_flags() if run else {}
    names = ("text_column", "text_b_column", "label_column", "label_type")
    *found, kind = map(flags.get, names)
    # Where sentences are lists of words, the model takes whole texts.
    return Columns() if kind in (None, "tags") else Columns.of(*found, kind)


def read_examples(
    options: ExampleOptions,
    signature: Sequence[tf.TensorSpec],
    trained: Columns = Columns(),  # noqa: B008
) -> Iterator[list[Example]]:
    """Yields examples in chunks.

    An example has a string for every input of the model, or a list of strings if the input is of
    rank 2, and possibly an `id`. A line holds the strings separated by tabs, or a pair separated by
    " ||| ". In a file named .jsonl, a line holds a JSON object, and blank lines are skipped. A
    table is read as run_finetuning reads it. Bytes that are not UTF-8 are dropped, as in
    fine-tuning; a warning at the end counts the examples with such bytes. The examples before a
    malformed line are still yielded.

    Args:
        signature: the inputs of the model.
        trained: the columns that its run was trained on.

    Raises:
        ValueError: a line lacks an input or is not a JSON object; names file and line.
        OSError: the file cannot be read.
    """
    check_columns(options.input_file, options.text_column, options.text_b_column)
    given = Columns(options.text_column, options.text_b_column)
    if is_table(options.input_file, with_json=False):
        yield from _read_table(options.input_file, signature, given, trained)
        return
    parse = _parse_line
    if is_json(options.input_file or ""):
        parse = functools.partial(_parse_json, keys=_keys(signature, given, trained))
    source = options.input_file or ("the arguments" if options.texts else "standard input")
    number, not_utf8, problem = 0, 0, None
    for lines in read_chunks(options.texts, options.input_file):
        examples = []
        for line in lines:
            number += 1
            if parse is not _parse_line and not line.strip():
                continue
            not_utf8 += not is_utf8(line)
            try:
                examples.append(parse(line.decode("utf-8", "ignore"), signature))
            except ValueError as error:
                # What was read so far is still predicted.
                problem = f"{source}, line {number}: {error}"
                break
        yield examples
        if problem:
            raise ValueError(problem)
    _warn_about_bytes(not_utf8, number)


def _warn_about_bytes(not_utf8: int, total: int) -> None:
    if not_utf8:
        print(
            f"WARNING: dropped bytes that are not UTF-8 from {not_utf8:,} of "
            f"{counted(total, 'example')}.",
            file=sys.stderr,
        )


def _read_table(
    path: str, signature: Sequence[tf.TensorSpec], given: Columns, trained: Columns
) -> Iterator[list[Example]]:
    names = [spec.name for spec in signature]
    if signature[-1].shape.rank == 2:
        raise ValueError(f"{path}: a table has no lists of choices: give a .jsonl file")
    if given.text_b and len(names) == 1:
        raise ValueError("--text_b_column is only for models of pairs of texts: omit it")
    # A text is also found under other names.
    text = given.text or trained.text or (names[0] if names[0] != "text" else None)
    text_b = given.text_b or trained.text_b or names[1] if len(names) > 1 else None
    rows = read_rows(path, Columns(text, text_b, trained.labels))
    for part in in_chunks(rows, CHUNK_LINES):
        yield [
            ({"id": row.id} if row.id else {})
            | {n: t.decode("utf-8", "ignore") for n, t in zip(names, row.texts, strict=True)}
            for row in part
        ]
    _warn_about_bytes(sum(not all(map(is_utf8, row.texts)) for row in rows), len(rows))


def _keys(
    signature: Sequence[tf.TensorSpec], given: Columns, trained: Columns
) -> dict[str, tuple[str, ...]]:
    """Returns the keys that each input may have in JSON objects."""
    flags = ((given.text, trained.text), (given.text_b, trained.text_b))
    names = [spec.name for spec in signature]
    return {
        name: (flag,) if flag else tuple(filter(None, (saved, name)))
        for name, (flag, saved) in zip(names, flags, strict=False)
    }


def _parse_line(line: str, signature: Sequence[tf.TensorSpec]) -> Example:
    names = [spec.name for spec in signature]
    if len(names) == 1:
        return {names[0]: line}
    fields = line.split("\t") if "\t" in line else line.rsplit(PAIR, 1)
    is_choice = signature[-1].shape.rank == 2
    if is_choice:
        fields = [*fields[: len(names) - 1], fields[len(names) - 1 :]]
    if len(fields) != len(names) or (is_choice and not fields[-1]):
        inputs = " and ".join(names)
        raise ValueError(f"the model needs {inputs}: separate them with a tab or{PAIR.rstrip()}")
    return dict(zip(names, fields, strict=True))


def _parse_json(
    line: str, signature: Sequence[tf.TensorSpec], keys: Mapping[str, tuple[str, ...]]
) -> Example:
    try:
        row = parse_json(line)
    except (json.JSONDecodeError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    example = {"id": row["id"]} if "id" in row else {}
    for spec in signature:
        key = _find(row, keys[spec.name])
        value, several = row.get(key), spec.shape.rank == 2
        strings = (isinstance(value, list) and value or [None]) if several else [value]
        if not all(isinstance(string, str) for string in strings):
            kind = "a list of strings" if several else "a string"
            raise ValueError(f'the model needs "{key}", {kind}')
        if not all(is_unicode(string) for string in strings):
            raise ValueError(f'"{key}" holds half a surrogate pair, such as \\ud800')
        example[spec.name] = value
    return example


def _find(row: Example, keys: tuple[str, ...]) -> str:
    """Returns the first key that an object has, ignoring case; else the last key."""
    if exact := [key for key in keys if key in row]:
        return exact[0]
    folded = {fold(name): name for name in row}
    return next((folded[fold(key)] for key in keys if fold(key) in folded), keys[-1])
