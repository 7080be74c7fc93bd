"""Commands as functions of Python, with data from memory, and the objects that they return."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bert_tf.base import command
from bert_tf.base.calling import Form, python_function
from bert_tf.finetuning.finetuning_options import DATA, EVAL_RESULTS_JSON

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bert_tf.inference.predictor import Predictor
    from tfrecords.vocabulary import Vocabulary

# The tasks whose files may be tables; those of the others have formats of their own.
_TABLES = ("csv", "imdb", "ner", "squad", "squad2", "swag")
_SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedRun:
    """A run on disk, as `finetune` and `pretrain` return it. Functions take it for its path.

    Attributes:
        path: the folder; with several seeds or settings, that of the best run.
        metrics: the results by name, such as `eval_accuracy` and `global_step`.
        predict: the predictor of the best weights; see `load_predictor`.

    Example:
        run = bert_tf.open_run("reviews")
        run.predict(["a moving film"])
        run.plot("confusion").savefig("confusion.png")
        run.export("classifier")
    """

    path: str
    metrics: Mapping[str, float]

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        from bert_tf.finetuning.registry import make_task
        from bert_tf.finetuning.saved_run import options_of
        from bert_tf.runs.run import Run

        run = Run(self.path)
        kind, metric = "pre-training", "masked_lm_accuracy"
        if "task" in run.flags:
            task = make_task(options_of(run), run.head)
            kind, metric = task.name, task.reported_metrics[0]
        parts = [kind]
        if metric in self.metrics:
            parts.append(f"{metric} {self.metrics[metric]:.4f}")
        if "global_step" in self.metrics:
            parts.append(f"step {self.metrics['global_step']:,}")
        return f"TrainedRun({self.path!r}: {', '.join(parts)})"

    @cached_property
    def predict(self) -> "Predictor":
        """The predictor of the best weights; see `load_predictor`."""
        import bert_tf

        return bert_tf.load_predictor(self.path)

    def plot(self, what: str = "curves") -> "Figure":
        """Draws learning "curves", or the "confusion" of classes on the dev set.

        Raises:
            ValueError: the run has no such figure.
        """
        from bert_tf.plots import learning_curves
        from bert_tf.training.reports import EVAL_METRICS, METRICS, read_metrics

        if what == "curves":
            found = (read_metrics(os.path.join(self.path, x)) for x in (METRICS, EVAL_METRICS))
            return learning_curves(*found)
        if what != "confusion":
            raise ValueError(f'there is no figure of {what!r}: choose "curves" or "confusion"')
        return _confusion(self.path)

    def export(self, folder: str | os.PathLike, **flags: Any) -> str:
        """Writes the best weights as a SavedModel; returns its folder.

        The model of a task maps text to predictions or vectors, and that of pre-training is an
        encoder. `flags` are those of `export_classifier`, `export_embedder` or `export_encoder`.
        """
        import bert_tf
        from bert_tf.config import EMBEDDING
        from bert_tf.runs.run import Run

        head = Run(self.path).head
        kind = ("embedder" if head.kind == EMBEDDING else "classifier") if head else "encoder"
        return getattr(bert_tf, f"export_{kind}")(self.path, folder, **flags)


def _confusion(path: str) -> "Figure":
    from bert_tf.base.files import read_file
    from bert_tf.plots import confusion_matrix
    from bert_tf.runs.run import Run

    run = Run(path)
    lines = read_file(run.file("predictions_dev.tsv")).decode().split("\n")[:-1]
    header, *rows = (line.split("\t") for line in lines)
    if not {"label", "prediction"} <= {*header} or not run.head.labels:
        raise ValueError(f"{path} predicts no single class: there is no confusion to draw")
    cells = [[row[header.index(name)] for row in rows] for name in ("label", "prediction")]
    names, used = [*run.head.labels], {*cells[0], *cells[1]}
    # The tasks of GLUE write numbers of classes.
    names = names if used <= {*names} else sorted(used)
    return confusion_matrix(*([names.index(x) for x in column] for column in cells), names)


def open_run(path: str | os.PathLike) -> TrainedRun:
    """Opens what `finetune`, `pretrain` or their commands made.

    Args:
        path: the output folder. Of several seeds or settings, the best run is opened.

    Raises:
        FileNotFoundError: the folder holds no run.
    """
    from bert_tf.runs.run import COMMAND, Run
    from bert_tf.training.reports import EVAL_RESULTS, read_results

    run = Run(_best_of(os.fspath(path)))
    if COMMAND not in run.flags:
        raise FileNotFoundError(f"{run.path} holds no run")
    found = read_results((run.best if run.head else run).file(EVAL_RESULTS))
    return TrainedRun(run.path, found | run.read_json(EVAL_RESULTS_JSON))


def _best_of(folder: str) -> str:
    """Returns the folder of the best run, if a folder holds several."""
    from bert_tf.runs.run import SWEEP_RESULTS, Run

    best = Run(folder).read_json(SWEEP_RESULTS).get("best")
    return os.path.join(folder, best) if best else folder


def _with_files(flags: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
    """Puts files in the output folder in place of data in memory, and returns what writes them."""
    flags, data = {"do_predict": "test_file" in flags} | flags, {}
    for split in _SPLITS:
        value = flags.get(f"{split}_file")
        if value is not None and not isinstance(value, str):
            data[split] = value
            folder = os.path.join(str(flags.get("output_dir")), DATA)
            flags[f"{split}_file"] = os.path.join(folder, f"{split}.jsonl")
    return flags, lambda: _write_data(flags["output_dir"], flags["task"], data)


def _write_data(folder: str, task: str, data: Mapping[str, Any]) -> None:
    """Writes data into a run's folder; that of a run that began must not have changed."""
    import tensorflow as tf

    from bert_tf.base.files import read_file
    from bert_tf.base.output_files import atomic_write, locked
    from bert_tf.base.provenance import check_same
    from bert_tf.finetuning.registry import task_name
    from bert_tf.tables.memory import json_lines

    if not data:
        return
    if task_name(task) not in _TABLES:
        raise ValueError(
            f"--task={task} reads files in a format of its own: give the path of one as "
            f"{' and '.join(data)}, or omit task for a table of your own"
        )
    texts = {split: json_lines(data[split], split).encode(errors="surrogatepass") for split in data}
    with locked(folder):
        checkpoints = (os.path.join(folder, x, "ckpt-*.index") for x in ("", "*", "*/*"))
        began = any(map(tf.io.gfile.glob, checkpoints))
        for split, text in texts.items():
            path = os.path.join(folder, DATA, f"{split}.jsonl")
            before = read_file(path) if tf.io.gfile.exists(path) else None
            if began and before not in (None, text) and split != "test":
                advice = "give the data that it began with, or choose another --output_dir"
                then, now = (
                    {split: {"bytes": len(x), "sha256": hashlib.sha256(x).hexdigest()}}
                    for x in (before, text)
                )
                check_same(folder, then, now, advice)
            if before != text:
                atomic_write(path, text)


def _vocabulary(options: command.Options, _: None) -> "Vocabulary":
    from tfrecords.vocabulary import load_vocab

    return load_vocab(options.report_vocab or options.output_file)


def _records(options: command.Options, _: object) -> str:
    return options.output_file + ("-*" if options.num_shards else "")


def _run(options: command.Options, results: Mapping[str, float]) -> TrainedRun:
    return TrainedRun(_best_of(options.output_dir), results)


def _export(example: str) -> Form:
    return Form(
        first=("checkpoint", "output_dir"),
        returns="the folder of the SavedModel.",
        example=example,
        result=lambda options, _: options.output_dir,
    )


_DATA = """\
train, dev and test also take data in memory: a pandas DataFrame, a dict of lists, or rows as
dicts, such as a Hugging Face dataset. The folder `data` in output_dir keeps it."""
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
        returns="the name of the file, or a pattern of several, as `pretrain` takes it.",
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
