"""Applies a fine-tuned model to text: labels, numbers, answers or tags.

  python -m bert_tf.predict --checkpoint=sst2 "a moving film" "two hours of nothing"
  python -m bert_tf.predict --checkpoint=mrpc "One sentence. ||| Another sentence."
  python -m bert_tf.predict --checkpoint=squad --input_file=questions.jsonl --json

--checkpoint is the output folder of run_finetuning, a fine-tuned model of another program
(docs/checkpoints.md), or a .tflite file that export.lite wrote from one of these. Examples are
arguments, or the lines of --input_file or of standard input. Separate the two texts of a pair, or
a question and its context, with a tab or " ||| ". An --input_file named .csv, .tsv or .jsonl is
read as run_finetuning reads tables; its columns are those of the run, or the inputs of the model:
{"text": "..."}, {"text": "...", "text_b": "..."} or {"question": "...", "context": "..."}. --json
prints such objects with the prediction added, and with the "id" if there is one.
"""

import contextlib
import dataclasses
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_tf.choices import BATCH
from bert_tf.inference.options import LITE, ExampleOptions, FineTunedOptions
from tfrecords import command
from tfrecords.command import option
from tfrecords.progress import counted

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.inference.predictor import Predictor


@dataclass(frozen=True, kw_only=True)
class Options(ExampleOptions, FineTunedOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="Output folder of run_finetuning, a fine-tuned model of another program "
        "(docs/checkpoints.md), or a .tflite file of export.lite."
    )
    batch_size: int = option(32, **BATCH, help="Examples per batch.", rare=True)


def run(options: Options) -> None:
    """Prints the predictions; everything else goes to standard error.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.inference.answers import line_of
    from bert_tf.inference.examples import read_examples

    with contextlib.redirect_stdout(sys.stderr):
        predictor = load_predictor(options)
    for examples in read_examples(options, predictor.signature, predictor.columns):
        for example, answer in zip(examples, predictor.predict(examples), strict=True):
            if options.json:
                print(json.dumps(example | answer, ensure_ascii=False))
            else:
                print(line_of(answer, example))
        sys.stdout.flush()
    if predictor.num_truncated:
        noun, flag = predictor.truncates
        print(
            f"WARNING: truncated {counted(predictor.num_truncated, noun)}: {flag} sets how many "
            "tokens the model reads.",
            file=sys.stderr,
        )


def load_predictor(options: Options) -> "Predictor":
    """Loads the best weights of a fine-tuned model, or a LiteRT model.

    Raises:
        ValueError, OSError: the checkpoint cannot be used; says why.
    """
    from bert_tf.inference.predictor import Predictor

    open_module = _lite_module if options.checkpoint.endswith(LITE) else _module
    return Predictor(open_module(options), options.batch_size)


def _module(options: Options) -> "tf.Module":
    from bert_tf.checkpoint import run_of
    from bert_tf.finetuning.fine_tuned import open_fine_tuned
    from bert_tf.finetuning.trained_head import load_task_model
    from bert_tf.inference.models import load_tokenizer
    from bert_tf.inference.table_files import columns_of_run

    checkpoint, task, length = open_fine_tuned(
        options.checkpoint,
        None,
        options.max_seq_length,
        options.pairs,
        options.null_score_diff_threshold,
        options.vocab_file,
    )
    tokenizer = load_tokenizer(checkpoint, options)
    module = task.serving(load_task_model(task, checkpoint), tokenizer, length)
    module.columns = columns_of_run(run_of(checkpoint))
    return module


def _lite_module(options: Options) -> "tf.Module":
    from bert_tf.inference.lite import open_lite

    for field in dataclasses.fields(FineTunedOptions):
        if getattr(options, field.name) != field.default:
            raise ValueError(f"{options.checkpoint} states its own --{field.name}: omit the flag")
    return open_lite(options.checkpoint)


if __name__ == "__main__":
    command.run(Options, run)
