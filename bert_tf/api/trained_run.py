"""Runs as Python objects."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import bert_tf
from bert_tf.base.calling import checked
from bert_tf.base.files import read_file
from bert_tf.config import EMBEDDING, Head
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON
from bert_tf.runs.run import COMMAND, SWEEP_RESULTS, Run
from bert_tf.training.reports import EVAL_METRICS, EVAL_RESULTS, METRICS, read_metrics, read_results
from bert_tf.weights.opening import anchored_path, open_checkpoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bert_tf.inference.predictor import Predictor
    from bert_tf.inference.presenting import Prediction


class _Metrics(dict):
    """Metrics by their names; rounded when printed."""

    def __repr__(self) -> str:
        return repr({name: round(value, 6) for name, value in self.items()})


@dataclass(frozen=True, repr=False)
class TrainedRun:
    """A run on disk, as `finetune` and `pretrain` return it. Functions accept it as a path.

    Attributes:
        path: the folder, absolute; with several seeds or settings, that of the best run.
        metrics: the results by name, such as `eval_accuracy` and `global_step`.
        models: the paths of the models that were evaluated, if the folder has only their results;
            several are an ensemble.
        predict: the predictor of the best weights, or of `models`; see `load_predictor`.

    Example:
        run = bert_tf.open_run("reviews")
        run.predict(["a moving film"])
        run.explain("a moving film")["effects"]
        run.evaluate("other.csv")["eval_accuracy"]
        run.plot("confusion").savefig("confusion.png")
        run.export("classifier")
    """

    path: str
    metrics: Mapping[str, float] = field(hash=False)
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", anchored_path(self.path))
        object.__setattr__(self, "models", tuple(map(anchored_path, self.models)))
        object.__setattr__(self, "metrics", _Metrics(self.metrics))

    def __reduce__(self) -> tuple:
        # Without the predictor, which takes a while to load.
        return TrainedRun, (self.path, self.metrics, self.models)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        run, parts = Run(self.path), []
        metric = next(iter(self.metrics), "")
        if "task" in run.flags:
            # It needs TensorFlow Text, which pre-training does without.
            from bert_tf.finetuning.registry import make_task
            from bert_tf.finetuning.saved_run import options_of

            task = make_task(options_of(run), run.head)
            parts, metric = [task.name], task.reported_metrics[0]
        elif COMMAND in run.flags:
            parts, metric = ["pre-training"], "masked_lm_accuracy"
        if metric in self.metrics:
            parts.append(f"{metric} {self.metrics[metric]:.4f}")
        if step := self.metrics.get("global_step"):
            parts.append(f"step {step:,}")
        return f"TrainedRun({_short(self.path)!r}: {', '.join(parts)})"

    @cached_property
    def predict(self) -> "Predictor":
        """The predictor of the best weights, or of `models`; see `load_predictor`."""
        return bert_tf.load_predictor(self.models or self.path)

    def explain(self, text: Any) -> "Prediction":
        """Returns the answer to one example, and what speaks for it; see `Predictor.explain`."""
        return self.predict.explain(text)

    def evaluate(self, data: Any) -> dict[str, float]:
        """Returns the metrics on other data, such as `eval_accuracy`; writes nothing.

        Args:
            data: texts with labels: the path of a file, or data in memory, as `finetune` takes.

        Raises:
            ValueError: the data have no labels, or other classes.
        """
        from bert_tf.finetuning.evaluating import evaluate

        return evaluate(self.models or self.path, data)

    def plot(self, what: str = "curves") -> "Figure":
        """Draws learning "curves", or the "confusion" of classes on the dev set.

        Raises:
            ValueError: the run has no such figure.
        """
        from bert_tf.plots import learning_curves

        if what == "curves":
            files = [os.path.join(self.path, name) for name in (METRICS, EVAL_METRICS)]
            if not any(found := [*map(read_metrics, files)]):
                raise ValueError(f"there are no curves: {files[0]} is missing or empty")
            return learning_curves(*found)
        if what != "confusion":
            raise ValueError(f'there is no figure of {what!r}: choose "curves" or "confusion"')
        return _confusion(self.path)

    def export(self, folder: str | os.PathLike, **flags: Any) -> str:
        """Writes the best weights as a SavedModel; returns its folder.

        The SavedModel of a task maps text to predictions or vectors; that of pre-training is an
        encoder. `flags` are those of `export_classifier`, `export_embedder` or `export_encoder`.

        Raises:
            ValueError: the run evaluated several models.
        """
        path, *others = self.models or [self.path]
        if others:
            advice = f"use bert_tf.export_classifier on one of them, such as {path}"
            raise ValueError(f"several models cannot be exported as one: {advice}")
        head = Run(path).head
        if self.models and not head:
            head = open_checkpoint(path, any_encoder=True).head or Head(EMBEDDING)
        kind = ("embedder" if head.kind == EMBEDDING else "classifier") if head else "encoder"
        return getattr(bert_tf, f"export_{kind}")(_short(path), folder, **flags)


def _short(path: str) -> str:
    """Returns a path in the working directory without the name of that."""
    return os.path.relpath(path) if path.startswith(os.path.join(os.getcwd(), "")) else path


def _confusion(path: str) -> "Figure":
    from bert_tf.plots import confusion_matrix

    run = Run(path)
    file = run.file("predictions_dev.tsv")
    lines = read_file(file).decode().split("\n")[:-1] if tf.io.gfile.exists(file) else [""]
    header, *rows = (line.split("\t") for line in lines)
    label, unit = ("tag", "word") if "tag" in header else ("label", "example")
    columns = [label, "prediction"]
    if not {*columns} <= {*header} or not run.head.labels:
        raise ValueError(f"there is no confusion matrix: {file} has no predictions of one class")
    cells = [[row[header.index(column)] for row in rows] for column in columns]
    names, used = [*run.head.labels], {*cells[0], *cells[1]}
    # The tasks of GLUE write numbers of classes.
    names = names if used <= {*names} else sorted(used)
    numbers = ([names.index(x) for x in column] for column in cells)
    return confusion_matrix(*numbers, names, unit=unit)


@checked
def open_run(path: str | os.PathLike) -> TrainedRun:
    """Opens what `finetune`, `pretrain` or their commands made.

    Args:
        path: the run folder; with several seeds or settings, the best run is opened.

    Raises:
        FileNotFoundError: the folder holds no run.
    """
    run = Run(best_run(path))
    if COMMAND not in run.flags:
        raise FileNotFoundError(f"{run.path} holds no run: give the folder of one")
    found = read_results((run.best if run.head else run).file(EVAL_RESULTS))
    return TrainedRun(run.path, found | run.read_json(EVAL_RESULTS_JSON))


def best_run(folder: str) -> str:
    """Returns the folder of the best run, if a folder holds several."""
    best = Run(folder).read_json(SWEEP_RESULTS).get("best")
    return os.path.join(folder, best) if best else folder
