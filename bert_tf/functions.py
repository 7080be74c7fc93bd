"""The commands that are Python functions, and what these take and return."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.base import command
from bert_tf.base.calling import Form, python_function
from bert_tf.finetuning.finetuning_options import DATA

if TYPE_CHECKING:
    from bert_tf.trained_run import TrainedRun
    from tfrecords.vocabulary import Vocabulary

_SPLITS = ("train", "dev", "test")


def _with_files(flags: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
    """Puts files in the output folder in place of data in memory, and returns what writes them."""
    flags, data = {"do_predict": "test_file" in flags} | flags, {}
    for split in _SPLITS:
        value = flags.get(f"{split}_file")
        if value is not None and not isinstance(value, str):
            data[split] = value
            folder = os.path.join(str(flags.get("output_dir")), DATA)
            flags[f"{split}_file"] = os.path.join(folder, f"{split}.jsonl")

    def write() -> None:
        from bert_tf.trained_run import write_data

        write_data(flags["output_dir"], flags["task"], data)

    return flags, write if data else lambda: None


def _vocabulary(options: command.Options, _: None) -> "Vocabulary":
    from tfrecords.vocabulary import load_vocab

    return load_vocab(options.report_vocab or options.output_file)


def _records(options: command.Options, _: object) -> str:
    return options.output_file + ("-*" if options.num_shards else "")


def _run(options: command.Options, results: Mapping[str, float]) -> "TrainedRun":
    from bert_tf.trained_run import TrainedRun, best_run

    return TrainedRun(best_run(options.output_dir), results)


def _export(example: str) -> Form:
    return Form(
        first=("checkpoint", "output_dir"),
        returns="the folder of the SavedModel.",
        example=example,
        result=lambda options, _: options.output_dir,
    )


_DATA = """\
train, dev and test also take data in memory: a pandas DataFrame, a dict of lists, or rows as
dicts, such as a Hugging Face dataset. The folder `data` in output_dir keeps them."""
_TRAINS = dict(do_train=True, do_eval=True)
_FORMS = {
    "finetune": Form(
        first=("init_checkpoint", "train"),
        data=f"\n\n{_DATA}",
        names={split: f"{split}_file" for split in _SPLITS},
        defaults=_TRAINS | {"task": "csv"},
        returns="`TrainedRun`: its metrics, predictions, figures and exports.",
        example='frame = pandas.read_csv("reviews.csv")  # the columns text and label\n'
        'run = bert_tf.finetune("hf:google-bert/bert-base-uncased", frame, output_dir="reviews")\n'
        'run.predict("a moving film")',
        prepare=_with_files,
        result=_run,
    ),
    "pretrain": Form(
        first=("input_file", "output_dir"),
        defaults=_TRAINS,
        returns="`TrainedRun`: its metrics, figures and exports.",
        example='run = bert_tf.pretrain("data/train.tfrecord-*", "run", preset="tiny")\n'
        'run.export("encoder")',
        result=_run,
    ),
    "create_examples": Form(
        first=("input_file",),
        returns="the name of the file, or a pattern of several files, for `pretrain`.",
        example='records = bert_tf.create_examples(\n    "corpus/*.txt", '
        'output_file="train.tfrecord", vocab_file="vocab.txt"\n)\n'
        'bert_tf.pretrain(records, "run", preset="tiny")',
        result=_records,
    ),
    "build_vocabulary": Form(
        first=("input_file", "output_file"),
        returns="`Vocabulary`: the one in the file, or in `report_vocab`.",
        example='bert_tf.build_vocabulary("corpus/*.txt", "vocab.txt", vocab_size=8000)',
        result=_vocabulary,
    ),
    "export_encoder": _export('bert_tf.export_encoder("run", "encoder")'),
    "export_classifier": _export('bert_tf.export_classifier("reviews", "classifier")'),
    "export_embedder": _export('bert_tf.export_embedder("vectors", "embedder")'),
}


@functools.cache
def function_of(name: str, module: str) -> Callable:
    """Returns the function bert_tf.NAME, which does what the command in a module does."""
    return python_function(name, module, _FORMS[name])
