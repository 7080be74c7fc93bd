"""Reads the examples that a fine-tuned model predicts: texts, pairs, questions with contexts."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.corpus.content import is_utf8
from bert_tf.corpus.sources import is_json
from bert_tf.finetuning.columns import Columns
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.texts import (
    CHUNK_LINES,
    check_columns,
    in_chunks,
    is_table,
    read_chunks,
    read_rows,
)
from tfrecords.progress import counted

Example = dict[str, Any]
PAIR = " ||| "


def read_examples(
    options: PredictOptions,
    signature: Sequence[tf.TensorSpec],
    trained: Columns = Columns(),  # noqa: B008
) -> Iterator[list[Example]]:
    """Yields examples in chunks.

    An example has a string for every input of the model, or a list of strings if the input is of
    rank 2, and possibly an `id`. A line holds the strings separated by tabs, or a pair separated by
    " ||| ". The examples before a malformed line are still yielded. A table is read whole, as
    run_finetuning reads it. Bytes that are not UTF-8 are dropped, as in fine-tuning; a warning at
    the end counts the examples with such bytes.

    Args:
        signature: the inputs of the model.
        trained: the columns that its run was trained on.
    """
    check_columns(options.input_file, options.text_column, options.text_b_column)
    if is_table(options.input_file):
        given = Columns(options.text_column, options.text_b_column)
        yield from _read_table(options.input_file, signature, given, trained)
        return
    source = options.input_file or ("the arguments" if options.texts else "standard input")
    number = not_utf8 = 0
    for lines in read_chunks(options.texts, options.input_file):
        examples = []
        for line in lines:
            number += 1
            not_utf8 += not is_utf8(line)
            try:
                examples.append(_parse_line(line.decode("utf-8", "ignore"), signature))
            except ValueError as error:
                # What was read so far is still predicted.
                yield examples
                raise ValueError(f"{source}, line {number}: {error}") from None
        yield examples
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
    names, has_choices = [spec.name for spec in signature], signature[-1].shape.rank == 2
    if has_choices and not is_json(path):
        raise ValueError(f"{path}: a table has no lists of choices: give a .jsonl file")
    if given.text_b and len(names) == 1:
        raise ValueError("--text_b_column is only for models of pairs of texts: omit it")
    rows, examples, not_utf8 = read_rows(path, given, trained, names, has_choices), [], 0
    for texts, id_ in rows:
        not_utf8 += not is_utf8(b"".join(texts[: len(names) - has_choices]))
        decoded = [x.decode("utf-8", "ignore") if isinstance(x, bytes) else x for x in texts]
        example = {} if id_ in (None, "") else {"id": id_}
        examples.append(example | dict(zip(names, decoded, strict=True)))
    yield from in_chunks(examples, CHUNK_LINES)
    _warn_about_bytes(not_utf8, len(rows))


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
