"""Reads the examples that a fine-tuned model predicts: texts, pairs, questions with contexts."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.corpus.sources import is_json
from bert_tf.corpus.utf8 import is_unicode, is_utf8
from bert_tf.finetuning.tables import parse_json
from bert_tf.inference.lines import read_chunks
from bert_tf.inference.options import TextOptions
from tfrecords.progress import counted

Example = dict[str, Any]
PAIR = " ||| "


def read_examples(
    options: TextOptions, signature: Sequence[tf.TensorSpec]
) -> Iterator[list[Example]]:
    """Yields examples in chunks.

    An example has a string for every input of the model, or strings if that is of rank 2, and
    possibly an `id`. A line holds them separated by tabs, or a pair by " ||| "; a line of a file
    whose name ends in .jsonl holds a JSON object; blank lines there are skipped. Bytes that are not
    UTF-8 are dropped, as in fine-tuning; a warning at the end counts their lines. The examples
    before a wrong line are still yielded.

    Args:
        signature: the inputs of the model.

    Raises:
        ValueError: a line lacks an input or is no JSON object; names file and line.
        OSError: the file cannot be read.
    """
    parse = _parse_json if is_json(options.input_file or "") else _parse_line
    source = options.input_file or ("the arguments" if options.texts else "standard input")
    number, not_utf8, problem = 0, 0, None
    for lines in read_chunks(options.texts, options.input_file):
        examples = []
        for line in lines:
            number += 1
            if parse is _parse_json and not line.strip():
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
    if not_utf8:
        print(
            f"WARNING: dropped bytes that are not UTF-8 from {not_utf8:,} of "
            f"{counted(number, 'example')}.",
            file=sys.stderr,
        )


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


def _parse_json(line: str, signature: Sequence[tf.TensorSpec]) -> Example:
    try:
        row = parse_json(line)
    except (json.JSONDecodeError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    for spec in signature:
        value, several = row.get(spec.name), spec.shape.rank == 2
        strings = (isinstance(value, list) and value or [None]) if several else [value]
        if not all(isinstance(string, str) for string in strings):
            kind = "a list of strings" if several else "a string"
            raise ValueError(f'the model needs "{spec.name}", {kind}')
        if not all(is_unicode(string) for string in strings):
            raise ValueError(f'"{spec.name}" holds half a surrogate pair, such as \\ud800')
    return {name: row[name] for name in ("id", *(s.name for s in signature)) if name in row}
