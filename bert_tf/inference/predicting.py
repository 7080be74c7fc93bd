"""predict: prints predictions, or writes those of a whole file."""

import contextlib
import csv
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.finetuning.table_rows import import_pyarrow
from bert_tf.inference.bulk import BulkJob
from bert_tf.inference.examples import example_of, read_examples, read_numbered
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.predictor import Predictor, line_of, load_predictor
from bert_tf.inference.texts import Row, in_chunks
from bert_tf.weights.fingerprint import fingerprint
from tfrecords.manifest import file_sha256
from tfrecords.progress import counted
from tfrecords.writer import atomic_write, check_output_files, join_files, whole_file

_BATCH_ROWS = 1024
# Each process loads the model only once.
_predictor = functools.lru_cache(maxsize=1)(load_predictor)


def predict(options: PredictOptions) -> None:
    """Prints or writes the predictions; everything else goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        if options.output_file:
            _predict_file(options)
            return
        predictor = load_predictor(options)
    for examples in read_examples(options, predictor.signature, predictor.columns):
        for example, answer in zip(examples, predictor.predict(examples), strict=True):
            if options.json:
                print(json.dumps(example | answer, ensure_ascii=False))
            else:
                print(line_of(answer, example))
        sys.stdout.flush()
    _warn_about_length(predictor, predictor.num_truncated)


def _warn_about_length(predictor: Predictor, num_truncated: int) -> None:
    if num_truncated:
        noun, flag = predictor.truncates
        print(
            f"WARNING: truncated {counted(num_truncated, noun)}: {flag} sets how many "
            "tokens the model reads.",
            file=sys.stderr,
        )


def _predict_file(options: PredictOptions) -> None:
    path = options.output_file
    check_output_files([path], [options.input_file])
    if path.endswith(".parquet"):
        import_pyarrow()  # which is needed at the end
    _predictor.cache_clear()  # the checkpoint may have changed
    predictor = _predictor(options)
    checkpoint, signature = predictor.checkpoint, predictor.signature
    counts = BulkJob(
        options,
        fingerprint(checkpoint) if checkpoint else file_sha256(options.checkpoint),
        functools.partial(read_numbered, options, signature, predictor.columns),
        functools.partial(_write_part, options),
        functools.partial(_join, path=path),
    ).run()
    print(f"Wrote {counted(counts['rows'] - counts['rejected'], 'prediction')} to {path}.")
    _warn_about_length(predictor, counts["truncated"])


def _write_part(
    options: PredictOptions, file: str, first: int, rows: Sequence[Row | None]
) -> dict[str, int]:
    """Writes the predictions for some rows as JSON lines."""
    # The first process has printed what there is to say.
    with contextlib.redirect_stdout(io.StringIO()):
        predictor = _predictor(options)
    before, names = predictor.num_truncated, [spec.name for spec in predictor.signature]
    examples = [example_of(row, names) for row in rows if row]
    lines = (
        json.dumps(example | answer, ensure_ascii=False, default=str) + "\n"
        for example, answer in zip(examples, predictor.predict(examples), strict=True)
    )
    atomic_write(file, "".join(lines))
    return {"truncated": predictor.num_truncated - before}


def _join(parts: Sequence[str], path: str) -> None:
    """Joins files of JSON lines into one, in the format that its name states."""
    ending = os.path.splitext(path)[1]
    if ending == ".jsonl":
        join_files(parts, path)
        return

    def read() -> Iterator[dict[str, Any]]:
        for part in parts:
            with tf.io.gfile.GFile(part) as file:
                yield from map(json.loads, file)

    with whole_file(path) as temporary:
        if ending == ".parquet":
            _write_parquet(temporary, read)
        else:
            _write_table(temporary, read, "\t" if ending == ".tsv" else ",")


def _write_table(path: str, read: Callable[[], Iterator[dict[str, Any]]], delimiter: str) -> None:
    """Writes a row of cells; a probability by label has a column; lists are JSON."""
    with tf.io.gfile.GFile(path, "w") as file:
        names = _names(map(_cells, read()))
        writer = csv.DictWriter(file, names, delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_cells, read()))


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the names in rows, some of which may have no id, with the id first."""
    return sorted(dict.fromkeys(name for row in rows for name in row), key="id".__ne__)


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    cells = {}
    for name, value in row.items():
        if name == "probabilities" and isinstance(value, dict):
            cells |= {f"p({label})": share for label, share in value.items()}
        else:
            cells[name] = _text(value)
    return cells


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_parquet(path: str, read: Callable[[], Iterator[dict[str, Any]]]) -> None:
    pyarrow = import_pyarrow()
    names = _names(read())
    # JSON lines may mix them.
    kinds = {type(row["id"]) for row in read() if "id" in row}
    convert = {"id": _text} if len(kinds) > 1 else {}

    def batches() -> Iterator[list[dict[str, Any]]]:
        rows = (row | {x: f(row[x]) for x, f in convert.items() if x in row} for row in read())
        return in_chunks(({name: row.get(name) for name in names} for row in rows), _BATCH_ROWS)

    # Empty lists have no type.
    schema = functools.reduce(
        lambda *pair: pyarrow.unify_schemas(pair, promote_options="permissive"),
        (pyarrow.Table.from_pylist(rows).schema for rows in batches()),
    )
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for rows in batches():
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
