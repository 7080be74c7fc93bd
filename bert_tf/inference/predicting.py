"""predict: prints predictions, or writes those of a whole file."""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.base.files import expand_files, file_sha256
from bert_tf.base.output_files import atomic_write
from bert_tf.base.progress import counted
from bert_tf.inference.bulk import BulkJob
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.prediction_files import join_predictions, json_line
from bert_tf.inference.predictor import Predictor, open_predictor
from bert_tf.inference.presenting import line_of
from bert_tf.inference.texts import NumberedRow, TextRow, example_of, read_examples, read_numbered
from bert_tf.tables.parquet import import_pyarrow
from bert_tf.weights.checkpoint import fingerprint

# Each process loads the model only once.
_predictor = functools.lru_cache(maxsize=1)(open_predictor)


def predict(options: PredictOptions) -> None:
    """Prints or writes the predictions; everything else goes to standard error."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        if options.output_file:
            _predict_file(options)
            return
        predictor, num_truncated = open_predictor(options), 0
        for examples in read_examples(options, predictor.signature, predictor.columns):
            answers, truncated = predictor.predict(examples)
            num_truncated += truncated
            for example, answer in zip(examples, answers, strict=True):
                line = json_line(example, answer) if options.json else line_of(answer, example)
                print(line, file=out)
            out.flush()
        predictor.warn_about_length(num_truncated)


def _predict_file(options: PredictOptions) -> None:
    path = options.output_file
    files = expand_files(options.input_file, allow_empty=True)
    if path.endswith(".parquet"):
        import_pyarrow()  # before anything is computed
    _predictor.cache_clear()  # the checkpoint may have changed
    predictor = _predictor(options)
    model = _checksum(predictor), predictor.tokenizer
    rows = functools.partial(_rows, options)
    joins = {path: functools.partial(join_predictions, options)}
    counts = BulkJob(options, files, *model, rows, _write_part, joins).run()
    print(f"Wrote {counted(counts['rows'] - counts['rejected'], 'prediction')} to {path}.")
    predictor.warn_about_length(counts["truncated"])


def _checksum(predictor: Predictor) -> str:
    if predictor.checkpoint:
        return fingerprint(predictor.checkpoint)
    files = [
        f"{folder}/{name}"
        for folder, _, names in tf.io.gfile.walk(predictor.path)
        for name in names
    ]
    return " ".join(map(file_sha256, sorted(files) or [predictor.path]))


def _rows(options: PredictOptions, file: str) -> Iterator[NumberedRow]:
    predictor = _predictor(options)
    return read_numbered(options, predictor.signature, predictor.columns, file)


def _write_part(
    options: PredictOptions, file: str, first: int, rows: Sequence[TextRow | None]
) -> dict[str, int]:
    """Writes the predictions for some rows as JSON lines."""
    predictor = _predictor(options)
    names = [spec.name for spec in predictor.signature]
    examples = [example_of(row, names) for row in rows if row]
    answers, num_truncated = predictor.predict(examples)
    lines = (f"{json_line(*both)}\n" for both in zip(examples, answers, strict=True))
    atomic_write(file, "".join(lines))
    return {"truncated": num_truncated}
