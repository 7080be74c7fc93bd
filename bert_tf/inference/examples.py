"""Reads the examples that a fine-tuned model predicts: texts, pairs, questions with contexts."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.corpus.content import is_utf8
from bert_tf.finetuning.columns import Columns
from bert_tf.finetuning.table_rows import table_kind
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.texts import (
    CHUNK_LINES,
    Numbered,
    Row,
    check_columns,
    in_chunks,
    input_files,
    is_table,
    is_typed,
    read_chunks,
    read_rows,
)
from tfrecords.progress import counted

Example = dict[str, Any]
PAIR = " ||| "


def read_numbered(
    options: PredictOptions,
    signature: Sequence[tf.TensorSpec],
    trained: Columns,
    path: str | None,
) -> Iterator[Numbered]:
    """Yields the numbers of lines or rows, and their texts, or an error; see `read_examples`.

    Without a `path`, it reads the arguments or standard input.
    """
    given = Columns(options.text_column, options.text_b_column)
    check_columns(path, given.text, given.text_b)
    if not is_table(path):
        return _read_lines(options.texts, path, signature)
    names, has_choices = [spec.name for spec in signature], signature[-1].shape.rank == 2
    if has_choices and table_kind(path) in ("csv", "tsv"):
        raise ValueError(f"{path}: a table has no lists of choices: give a .jsonl file")
    if given.text_b and len(names) == 1:
        raise ValueError("--text_b_column is only for models of pairs of texts: omit it")
    return read_rows(path, given, trained, names, has_choices)


def _read_lines(
    texts: Sequence[str], path: str | None, signature: Sequence[tf.TensorSpec]
) -> Iterator[Numbered]:
    source = path or ("the arguments" if texts else "standard input")
    chunks = read_chunks(texts, path)
    for number, line in enumerate(itertools.chain.from_iterable(chunks), 1):
        try:
            yield number, Row(_parse_line(line, signature))
        except ValueError as error:
            yield number, ValueError(f"{source}, line {number}: {error}")


def read_examples(
    options: PredictOptions,
    signature: Sequence[tf.TensorSpec],
    trained: Columns = Columns(),  # noqa: B008
) -> Iterator[list[Example]]:
    """Yields examples in chunks.

    An example has a string for every input of the model, or a list of strings if the input is of
    rank 2, and possibly an `id`. A line holds the strings separated by tabs, or a pair separated by
    " ||| ". The examples before a malformed one are still yielded. A table is read as
    run_finetuning reads it. Bytes that are not UTF-8 are dropped, as in fine-tuning; a warning at
    the end counts the examples with such bytes.

    Args:
        signature: the inputs of the model.
        trained: the columns that its run was trained on.
    """
    names, number, not_utf8 = [spec.name for spec in signature], 0, 0
    size = 1 if is_typed(options.texts, options.input_file) else CHUNK_LINES
    files = input_files(options.input_file)
    numbered = (read_numbered(options, signature, trained, file) for file in files)
    for rows in in_chunks(itertools.chain.from_iterable(numbered), size):
        examples = []
        for _, row in rows:
            if isinstance(row, ValueError):
                # What was read so far is still predicted.
                yield examples
                raise row
            number += 1
            not_utf8 += not is_utf8(b"".join(x for x in row.texts if isinstance(x, bytes)))
            examples.append(example_of(row, names))
        yield examples
    _warn_about_bytes(not_utf8, number)


def example_of(row: Row, names: Sequence[str]) -> Example:
    """Returns a row's texts by the `names` of the inputs, and its id if there is one."""
    texts = [x.decode("utf-8", "ignore") if isinstance(x, bytes) else x for x in row.texts]
    return ({} if row.id in (None, "") else {"id": row.id}) | dict(zip(names, texts, strict=True))


def _warn_about_bytes(not_utf8: int, total: int) -> None:
    if not_utf8:
        print(
            f"WARNING: dropped bytes that are not UTF-8 from {not_utf8:,} of "
            f"{counted(total, 'example')}.",
            file=sys.stderr,
        )


def _parse_line(line: bytes, signature: Sequence[tf.TensorSpec]) -> tuple:
    """Returns the texts of a line, and a list of choices if the last input is one."""
    names = [spec.name for spec in signature]
    if len(names) == 1:
        return (line,)
    fields = line.split(b"\t") if b"\t" in line else line.rsplit(PAIR.encode(), 1)
    if is_choice := signature[-1].shape.rank == 2:
        choices = [x.decode("utf-8", "ignore") for x in fields[len(names) - 1 :]]
        fields = [*fields[: len(names) - 1], choices]
    if len(fields) != len(names) or (is_choice and not fields[-1]):
        inputs = " and ".join(names)
        raise ValueError(f"the model needs {inputs}: separate them with a tab or{PAIR.rstrip()}")
    return tuple(fields)
