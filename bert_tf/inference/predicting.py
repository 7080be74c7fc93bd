"""predict: prints predictions, or writes those of a whole file."""

import contextlib
import dataclasses
import functools
import io
import json
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.finetuning.columns import Columns
from bert_tf.finetuning.tables import import_pyarrow
from bert_tf.inference.answer_files import join_answers
from bert_tf.inference.bulk import BulkJob, run_job
from bert_tf.inference.examples import example_of, read_examples, read_numbered
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.predictor import Predictor, line_of, load_predictor
from bert_tf.inference.texts import Numbered, Row
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.progress import counted
from tfrecords.writer import atomic_write, check_output_files

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


@dataclasses.dataclass(frozen=True)
class _PredictionJob(BulkJob):
    """The predictions of a model for the rows of a file.

    Attributes:
        signature, columns: see `Predictor`.
    """

    options: PredictOptions
    signature: Sequence[tf.TensorSpec]
    columns: Columns

    @property
    def checkpoint(self) -> Checkpoint | None:
        return _predictor(self.options).checkpoint

    def rows(self) -> Iterator[Numbered]:
        return read_numbered(self.options, self.signature, self.columns)

    def write_part(self, file: str, first: int, rows: Sequence[Row | None]) -> dict[str, int]:
        # The first process has printed what there is to say.
        with contextlib.redirect_stdout(io.StringIO()):
            predictor = _predictor(self.options)
        before, names = predictor.num_truncated, [spec.name for spec in self.signature]
        examples = [example_of(row, names) for row in rows if row]
        answers = predictor.predict(examples)
        lines = (
            json.dumps(example | answer, ensure_ascii=False, default=str)
            for example, answer in zip(examples, answers, strict=True)
        )
        atomic_write(file, "".join(f"{line}\n" for line in lines))
        return {"truncated": predictor.num_truncated - before}

    def join(self, parts: Sequence[str]) -> None:
        join_answers(parts, self.options.output_file)


def _predict_file(options: PredictOptions) -> None:
    check_output_files([options.output_file], [options.input_file])
    if options.output_file.endswith(".parquet"):
        import_pyarrow()  # which is needed at the end
    predictor = _predictor(options)
    counts = run_job(_PredictionJob(options, predictor.signature, predictor.columns))
    num_rows = counts["rows"] - counts["rejected"]
    print(f"Wrote {counted(num_rows, 'prediction')} to {options.output_file}.")
    _warn_about_length(predictor, counts["truncated"])
