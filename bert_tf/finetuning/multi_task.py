"""Several tasks at once: one encoder with a head for each."""

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.features import Features, train_order
from bert_tf.finetuning.fine_tuner import Training
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON
from bert_tf.finetuning.task import TRAIN, DataFiles, Outputs, Task, make_model
from bert_tf.models.task_model import make_encoder
from bert_tf.runs.run import COMMAND, FINISHED, Run
from bert_tf.session import Session
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import Tensor, save_tensors
from bert_tf.training.driver import Driver
from bert_tf.training.reports import EVAL_RESULTS, write_results
from bert_tf.training.trainer import Batch
from tfrecords.writer import atomic_write

# In the flags of a task's own folder: all tasks of the run.
TOGETHER = "trained_together"
_TASK = "task"


@dataclass(frozen=True, kw_only=True)
class MultiFeatures(Features):
    """The examples of several tasks, one task after the other.

    The target `task`, int32 [N], is the index of an example's task. A target of one task is named
    `<task>/<target>` and is 0 for the others.
    """

    parts: Mapping[str, Features]

    @classmethod
    def of(cls, parts: Mapping[str, Features]) -> "MultiFeatures":
        """Joins the examples of tasks by their names."""
        every = [*parts.values()]
        counts = [len(part) for part in every]
        targets = {_TASK: np.repeat(np.arange(len(every), dtype=np.int32), counts)}
        for index, (name, part) in enumerate(parts.items()):
            for key, values in part.targets.items():
                joined = np.zeros([sum(counts), *values.shape[1:]], values.dtype)
                joined[targets[_TASK] == index] = values
                targets[f"{name}/{key}"] = joined
        return cls(
            ids=tf.concat([part.ids for part in every], 0),
            types=tf.concat([part.types for part in every], 0),
            targets=targets,
            examples=[part.examples for part in every],
            pad_id=every[0].pad_id,
            max_seq_length=every[0].max_seq_length,
            parts=parts,
        )

    def describe(self) -> str:
        return "; ".join(f"{name}: {part.describe()}" for name, part in self.parts.items())

    def train_order(self, batch_size: int, num_batches: int, seed: int) -> np.ndarray:
        """See `Features.train_order`; a batch has examples of one task.

        In every epoch, the batches of all tasks are in random order; a task has as many as its
        examples fill.

        Source: MT-DNN (arXiv:1901.11504) algorithm 1.
        """
        counts = [len(part) for part in self.parts.values()]
        epoch = np.repeat(
            np.arange(len(counts)), [max(1, round(count / batch_size)) for count in counts]
        )
        epochs = range(-(-num_batches // len(epoch)))
        shuffled = [np.random.default_rng((seed, number)).permutation(epoch) for number in epochs]
        tasks = np.concatenate(shuffled)[:num_batches]
        order = np.zeros([num_batches, batch_size], np.int64)
        for index, count in enumerate(counts):
            own = tasks == index
            numbers = train_order(count, batch_size, np.count_nonzero(own), seed)
            order[own] = sum(counts[:index]) + numbers.reshape(-1, batch_size)
        return order.ravel()


class MultiTaskModel(keras.Model):
    """An encoder with a head for each of several tasks.

    Call: the encoder's inputs -> the output of every task's `BertTaskModel`, by name.
    """

    def __init__(self, config: BertConfig, tasks: Sequence[Task]):
        super().__init__(name="multi_task")
        self.encoder = make_encoder(config)
        shared = dict(encoder=self.encoder)
        self.models = {t.name: make_model(t.head, config, name=t.name, **shared) for t in tasks}
        self.built = True

    def call(self, inputs, training=None):
        outputs, seeds = next(iter(self.models.values())).encode(inputs, training)
        return {
            name: model.logits(outputs, inputs, seeds, training)
            for name, model in self.models.items()
        }


class MultiObjective:
    """The loss of every example is that of its task's objective."""

    measures = losses = ("loss",)

    def __init__(self, tasks: Sequence[Task]):
        self._objectives = {task.name: task.objective for task in tasks}

    def counts(self, batch: Batch) -> dict[str, tf.Tensor]:
        counts = [self._objectives[name].counts(own) for name, own in self._parts(batch)]
        return {"loss": tf.add_n([count["loss"] for count in counts])}

    def sums(self, model: MultiTaskModel, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        outputs = model(batch, training=training)
        sums = [
            self._objectives[name].sums(_returns(outputs[name]), own, training)
            for name, own in self._parts(batch)
        ]
        return {"loss": tf.add_n([own["loss"] for own in sums])}

    def outputs(self, model: MultiTaskModel, batch: Batch) -> dict[str, tf.Tensor]:
        outputs = model(batch, training=False)
        return {
            f"{task}/{name}": values
            for task, objective in self._objectives.items()
            for name, values in objective.outputs(_returns(outputs[task]), batch).items()
        }

    def _parts(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """Yields the batch of every task, in which the examples of other tasks weigh 0."""
        for index, task in enumerate(self._objectives):
            own = tf.cast(batch[_TASK] == index, tf.float32)
            yield (
                task,
                {
                    "example_weights": batch["example_weights"] * own,
                    **_of_task(task, batch),
                },
            )


def _returns(output: tf.Tensor):
    """Returns a model that was called already."""
    return lambda batch, training: output


def _of_task(task: str, values: Mapping) -> dict:
    """Returns what is named `<task>/<name>`, by its name."""
    start = f"{task}/"
    return {x.removeprefix(start): values[x] for x in values if x.startswith(start)}


class MultiTask(Task):
    """Several tasks with a head of the kind "classifier" that train together.

    Only their training and dev sets are read. The metrics are those of the tasks, named
    `<task>_<metric>`, and `mean`, the mean of the metrics that choose the best weights of each. It
    chooses the best weights.

    Source: MT-DNN (arXiv:1901.11504); the heads are those of the tasks alone.
    """

    metric = "mean"
    dev_set = "the dev sets"
    test_splits = ()

    def __init__(self, tasks: Sequence[Task]):
        self.tasks = tasks
        self.name = ",".join(task.name for task in tasks)
        self.objective = MultiObjective(tasks)

    @property
    def reported_metrics(self) -> list[str]:
        return ["eval_mean", *(f"eval_{task.name}_{task.metric}" for task in self.tasks)]

    def read_splits(
        self, names: Collection[str], files: DataFiles, seed: int
    ) -> dict[str, dict[str, Features]]:
        splits = {name: {} for name in names}
        for task in self.tasks:
            theirs = {name: TRAIN if name == TRAIN else task.dev_splits[0] for name in names}
            found = task.read_splits([*theirs.values()], files, seed)
            for name in names:
                splits[name][task.name] = found[theirs[name]]
        return splits

    def featurize(
        self, examples: Mapping, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> MultiFeatures:
        return MultiFeatures.of(
            {
                task.name: task.featurize(examples[task.name], tokenizer, max_seq_length)
                for task in self.tasks
            }
        )

    def build_model(self, config: BertConfig) -> MultiTaskModel:
        return MultiTaskModel(config, self.tasks)

    def _parts(
        self, outputs: Outputs, features: MultiFeatures
    ) -> Iterator[tuple[Task, Outputs, Features]]:
        """Yields every task with its outputs and examples."""
        for index, task in enumerate(self.tasks):
            own = features.targets[_TASK] == index
            theirs = {name: x[own] for name, x in _of_task(task.name, outputs).items()}
            yield task, theirs, features.parts[task.name]

    def score(self, outputs: Outputs, features: MultiFeatures) -> dict[str, float]:
        scores, chosen = {}, []
        for task, theirs, own in self._parts(outputs, features):
            found = task.score(theirs, own)
            chosen.append(found[task.metric])
            scores |= {f"{task.name}_{name}": value for name, value in found.items()}
        return {"mean": float(np.mean(chosen)), **scores}

    def problem(self, outputs: Outputs, features: MultiFeatures) -> str | None:
        parts = self._parts(outputs, features)
        found = {task.name: task.problem(theirs, own) for task, theirs, own in parts}
        return "; ".join(f"{name}: {note}" for name, note in found.items() if note) or None

    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: MultiFeatures
    ) -> list[str]:
        return [
            f"{task.name}/{name}"
            for task, theirs, own in self._parts(outputs, features)
            for name in task.write_predictions(f"{folder}/{task.name}", split, theirs, own)
        ]

    def serving(self, model, tokenizer, max_seq_length):
        raise NotImplementedError("every task has a model of its own")

    example_call = serving


class MultiTaskTraining(Training):
    """Trains a `MultiTask`; in the end, every task gets a run folder of its own."""

    task: MultiTask

    def finish(self, session: Session, driver: Driver, model: MultiTaskModel) -> None:
        super().finish(session, driver, model)
        if not session.is_chief:
            return
        spec, step, run = session.run.spec, driver.step, session.run
        for task in self.task.tasks:
            own = Run(run.file(task.name))
            flags = dataclasses.asdict(session.options) | {
                "task": task.name,
                "output_dir": own.path,
                COMMAND: session.options.command,
                FINISHED: True,
                TOGETHER: self.task.name,
            }
            for folder in (own, own.best):
                folder.write(spec, flags if folder is own else None)
                folder.write_head(task.head)
            tensors = {
                weight.path.replace(f"{task.name}/", "task_model/", 1): Tensor(
                    tuple(weight.shape), weight.numpy
                )
                for weight in model.models[task.name].weights
            }
            save_tensors(own.best.file(f"ckpt-{step}"), tensors)
            start = f"eval_{task.name}_"
            results = {
                task.in_results(name.removeprefix(start), task.dev_splits[0]): value
                for name, value in driver.best_results.items()
                if name.startswith(start)
            } | {"global_step": step}
            write_results(own.best.file(EVAL_RESULTS), results)
            write_results(own.file(EVAL_RESULTS), results)
            atomic_write(own.file(EVAL_RESULTS_JSON), json.dumps(results, indent=2) + "\n")
