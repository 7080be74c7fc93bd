"""Evaluates models of tasks, and reports: metrics, predictions, pictures."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.base.calling import in_python, with_home
from bert_tf.base.output_files import write_json
from bert_tf.base.progress import folded, for_caller, with_progress
from bert_tf.finetuning import fine_tuned
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.metrics import OF_A_CLASS
from bert_tf.finetuning.predictions import aligned
from bert_tf.finetuning.preparing import read_features
from bert_tf.finetuning.task import DataFiles, Outputs, Task
from bert_tf.finetuning.tokenizing import Features
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.runs.run import Run
from bert_tf.sessions.session import Session, training_devices
from bert_tf.tables.memory import table_in_memory
from bert_tf.training.checkpoints import BEST
from bert_tf.training.reports import EVAL_RESULTS, write_results
from bert_tf.training.strategy import chief_say, device_type, is_chief
from bert_tf.training.trainer import Trainer
from bert_tf.weights.checkpoint import Checkpoint

# The most classes, of all splits together, whose metrics are printed.
_CLASSES_SHOWN = 20
# The end of a warning about predictions, in training.
_ADVICE = (
    "Try another --learning_rate (3e-4 for an encoder as small as tiny, 2e-5 for base), more steps "
    "(a smaller --train_batch_size or more epochs), or an --init_checkpoint that was trained for "
    "longer."
)


class Evaluator:
    """Computes the metrics of the current weights of a task's model, and writes its predictions.

    `batch_size` is the number of examples per step, over all replicas.
    """

    def __init__(
        self, task: Task, trainer: Trainer, splits: Mapping[str, Features], batch_size: int
    ):
        self._task, self._trainer, self._splits = task, trainer, splits
        self._batch_size = batch_size
        # By split and step: the predictions and their metrics.
        self._kept: dict[tuple[str, int], tuple[Outputs, dict[str, float]]] = {}

    def evaluate(self, split: str, best_step: int | None = None) -> dict[str, float]:
        """Returns the metrics of a split as `eval_<metric>`, `test_<metric>` and the like.

        Keeps the predictions for `report`, beside those of the best step so far.
        """
        self._kept = {key: x for key, x in self._kept.items() if key == (split, best_step)}
        self._kept[split, self._step] = found = self._evaluated(split)
        return found[1]

    def report(self, split: str, folder: str) -> tuple[dict[str, float], list[str]]:
        """Writes the predictions of a split; returns its metrics and the names of the files.

        The metrics are those of `evaluate`; {} without targets.
        """
        outputs, results = self._kept.get((split, self._step)) or self._evaluated(split)
        features = self._splits[split]
        if not is_chief(self._trainer.strategy):
            return results, []
        if not features.targets and tf.io.gfile.exists(f"{folder}/confusion_{split}.png"):
            # It shows an earlier file, which had targets.
            tf.io.gfile.remove(f"{folder}/confusion_{split}.png")
        return results, self._task.write_predictions(folder, split, outputs, features)

    @property
    def _step(self) -> int:
        return int(self._trainer.step.numpy())

    def _evaluated(self, split: str) -> tuple[Outputs, dict[str, float]]:
        """Returns the predictions of a split, and their metrics or {} without targets."""
        outputs, features = self._predict(split), self._splits[split]
        if not features.targets:
            return outputs, {}
        metrics = self._task.score(outputs, features)
        if problem := self._task.problem(outputs, features):
            trained = f"step {self._step:,}, {split}: {problem}. {_ADVICE}"
            warning = trained if self._step else f"{split}: {problem}."
            chief_say(self._trainer.strategy)(f"WARNING: {warning}")
        # Curves show the first few metrics.
        names = sorted(metrics, key=lambda name: name != self._task.metric)
        return outputs, {self._task.in_results(name, split): metrics[name] for name in names}

    def _predict(self, split: str) -> Outputs:
        strategy, features = self._trainer.strategy, self._splits[split]
        device, inputs = device_type(strategy), self._task.inputs(features)

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return eval_batches(inputs, self._batch_size, device=device, context=context)

        batches = with_progress(
            strategy.distribute_datasets_from_function(dataset),
            f"Predicting {split}",
            total=-(-len(inputs) // self._batch_size),
            disable=not is_chief(strategy),
        )
        outputs = self._trainer.predict(batches, self._task.token_outputs)
        return self._task.decode(outputs, features)


def load_evaluator(
    session: Session, task: Task, trained: Checkpoint, splits: dict[str, Features]
) -> Evaluator:
    """Returns an evaluator of fine-tuned weights."""
    session.say(f"Evaluating {trained.path}.")
    trained = fine_tuned.in_task_order(trained, task, session.say)
    if not trained.head:  # an encoder that computes vectors untrained
        trained = dataclasses.replace(trained, head=task.head)
    with session.strategy.scope():
        model = fine_tuned.load_task_model(task, trained)
    if session.device == "CPU":
        skip_padding(model)  # as in training, so that no digit differs
    trainer = Trainer(session.strategy, model, task.objective)
    return Evaluator(task, trainer, splits, session.options.eval_batch_size)


def evaluate(path: str | tuple[str, ...], data: Any) -> dict[str, float]:
    """Returns the metrics of a fine-tuned model, or of an ensemble, on data; writes nothing.

    `data` is the path of a file, or in memory. The names are those of the dev set's, such as
    `eval_accuracy`.

    Raises:
        ValueError: the data have no labels, or those of other classes.
    """
    names = {field.name: field.name for field in dataclasses.fields(FineTuningOptions)}
    names |= {"train_file": "train", "dev_file": "data", "test_file": "test"}
    with in_python(FineTuningOptions, names):
        file = with_home(data)
        file = file if isinstance(file, str) else table_in_memory(data, "data")
        model, task, length = fine_tuned.open_members(path)
        task = task.with_files(DataFiles(dev_file=file))
        flags = dict(task=task.name, output_dir=model.path, do_eval=True, dev_file=file)
        options = FineTuningOptions(**flags, max_seq_length=length)
        with training_devices(options, writes=False) as strategy:
            session = Session(options, strategy, Run(model.path))
            splits = read_features(options, task, model.spec, task.dev_splits, session.say)
            return load_evaluator(session, task, model, splits).evaluate(task.dev_splits[0])


def report_splits(
    session: Session,
    evaluator: Evaluator,
    task: Task,
    splits: Collection[str],
    results: Mapping[str, float],
) -> dict[str, float]:
    """Reports splits; writes their results beside earlier ones, prints and returns all."""
    run, files, results = session.run, [], dict(results)
    for split in splits:
        metrics, names = evaluator.report(split, run.path)
        results, files = results | metrics, files + names
    if session.is_chief and results:
        write_results(run.file(EVAL_RESULTS), results)
        write_json(run.file(EVAL_RESULTS_JSON), results, sort_keys=True)
        files = [EVAL_RESULTS, EVAL_RESULTS_JSON, *files]
    if session.is_chief:
        print(folded(_summary(session.options, task, results, files)))
    return results


def _summary(
    options: FineTuningOptions, task: Task, results: dict[str, float], files: list[str]
) -> str:
    metric, folder = task.metric, options.output_dir
    name = metric[0].upper() + metric[1:]
    trained = options.do_train and options.num_train_epochs > 0
    lines = []
    if f"eval_{metric}" in results and (options.do_train or options.do_eval):
        chosen = ", used to choose the best epoch" if trained else ""
        lines.append(f"{name} {results[f'eval_{metric}']:.4f} on {task.dev_set}{chosen}.")
    if f"test_{metric}" in results:
        lines.append(f"{name} {results[f'test_{metric}']:.4f} on the test set.")
    lines += _class_table(results)
    if trained:
        files = [*files, f"{BEST} (the best weights)", "curves.png", "metrics.jsonl"]
    wrote = f"Wrote {folder}: {', '.join(files)}."
    lines.append(for_caller(wrote, f"Saved to {os.path.join(folder, '')}."))
    return "\n".join(lines)


def _class_table(results: dict[str, float]) -> list[str]:
    """Returns precision, recall and F1 of each class on each split, as lines."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name in OF_A_CLASS:
        for key, value in results.items():
            split, found, label = key.partition(f"_{name}/")
            if found:
                rows.setdefault((split, label), []).append(f"{value:.4f}")
    if len(rows) > _CLASSES_SHOWN:
        return [f"{EVAL_RESULTS} lists precision, recall and F1 of each class."]
    table = [[f"{split}: {label[:40]}", *values] for (split, label), values in rows.items()]
    return [aligned([["", *OF_A_CLASS], *table])] if table else []
