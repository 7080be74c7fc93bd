"""The commands that are Python functions, and what these take and return."""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.base import command
from bert_tf.base.calling import Form, python_function
from bert_tf.tables.memory import table_in_memory

if TYPE_CHECKING:
    from bert_tf.api.trained_run import TrainedRun
    from tfrecords.vocabulary import Vocabulary

# The arguments for data, and the flags behind them.
_FILES = {split: f"{split}_file" for split in ("train", "dev", "test")}


def _with_data(flags: dict[str, Any]) -> dict[str, Any]:
    """Reads data in memory, which stand for files; a test set is there to be predicted."""
    data = {
        name: table_in_memory(flags[name], split)
        for split, name in _FILES.items()
        if name in flags and not isinstance(flags[name], str)
    }
    return {"do_predict": "test_file" in flags} | flags | data


def _vocabulary(options: command.Options, _: None) -> "Vocabulary":
    from bert_tf.weights.resolving import read_vocab_file

    return read_vocab_file(options.report_vocab or options.output_file, None)[0]


def _run(options: command.Options, results: Mapping[str, float]) -> "TrainedRun":
    from bert_tf.api.trained_run import TrainedRun, best_run
    from bert_tf.runs.run import Run

    folder = best_run(options.output_dir)
    if Run(folder).flags or not options.init_checkpoint:
        return TrainedRun(folder, results)
    # It needs TensorFlow Text, which pre-training does without.
    from bert_tf.finetuning.fine_tuned import member_paths

    return TrainedRun(folder, results, member_paths(options.init_checkpoint))


def _export(example: str) -> Form:
    return Form(
        first=("checkpoint", "output_dir"),
        returns="the folder of the SavedModel.",
        example=example,
        result=lambda options, _: options.output_dir,
    )


_DATA = """\
train, dev and test also take data in memory: a data frame, a dict of lists, rows as dicts,
such as a Hugging Face dataset, a list of texts, or a pair, (texts, labels). The run keeps
checksums of them, but no copy."""
_TRAINS = dict(do_train=True, do_eval=True)
_FORMS = {
    "finetune": Form(
        first=("init_checkpoint", "train"),
        data=f"\n\n{_DATA}",
        names=_FILES,
        defaults=_TRAINS | {"task": "csv"},
        returns="`TrainedRun`: its metrics, predictions, figures and exports.",
        example='frame = pandas.read_csv("reviews.csv")  # the columns text and label\n'
        'run = bert_tf.finetune("hf:google-bert/bert-base-uncased", frame, output_dir="reviews")\n'
        'run.predict("a moving film")',
        prepare=_with_data,
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
        result=lambda options, _: options.output_file + ("-*" if options.num_shards else ""),
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
