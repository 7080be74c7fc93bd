"""Several tasks at once: one encoder with a head for each."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.output_files import write_json
from bert_tf.config import BertConfig
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON
from bert_tf.finetuning.objectives import Called, PerExample
from bert_tf.finetuning.saved_run import recorded
from bert_tf.finetuning.task import DataFiles, Outputs, Task, make_model
from bert_tf.finetuning.task_learner import TaskLearner
from bert_tf.finetuning.tokenizing import Features, train_order
from bert_tf.models.task_model import make_encoder
from bert_tf.runs.run import FINISHED, Run
from bert_tf.sessions.learner import Training
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import Tensor, save_tensors
from bert_tf.training.reports import EVAL_RESULTS, write_results
from bert_tf.training.trainer import Batch

# In the flags of a task's own folder: all tasks of the run.
TOGETHER = "trained_together"
_TASK = "task"


@dataclass(frozen=True, kw_only=True)
class MultiFeatures(Features):
    """Examples of several tasks in turn, with `task`, int32 [N], and targets `<task>/<target>`."""

    parts: Mapping[str, Features]

    @classmethod
    def of(cls, parts: Mapping[str, Features]) -> "MultiFeatures":
        """Joins the examples of tasks; a target is 0 for those of other tasks."""
        every = [*parts.values()]
        targets = {_TASK: np.repeat(np.arange(len(every), dtype=np.int32), [*map(len, every)])}
        for index, (name, part) in enumerate(parts.items()):
            for key, values in part.targets.items():
                joined = np.zeros([len(targets[_TASK]), *values.shape[1:]], values.dtype)
                joined[targets[_TASK] == index] = values
                targets[f"{name}/{key}"] = joined
        ids, types = (tf.concat([getattr(x, y) for x in every], 0) for y in ("ids", "types"))
        examples, first = [part.examples for part in every], every[0]
        cut = sum(part.num_truncated for part in every)
        sizes = first.vocab, first.max_seq_length, cut
        return cls(ids, types, targets, examples, *sizes, parts=parts)

    def facts(self) -> str:
        return "; ".join(f"{name}: {part.facts()}" for name, part in self.parts.items())

    def train_order(self, batch_size: int, num_batches: int, seed: int) -> np.ndarray:
        """See `Features.train_order`; an epoch has the batches of all tasks in random order.

        Source: MT-DNN (arXiv:1901.11504) algorithm 1.
        """
        counts = [len(part) for part in self.parts.values()]
        shares = [max(1, round(count / batch_size)) for count in counts]
        epochs = range(-(-num_batches // sum(shares)))
        epoch = np.repeat(np.arange(len(counts)), shares)
        shuffled = [np.random.default_rng((seed, number)).permutation(epoch) for number in epochs]
        tasks = np.concatenate(shuffled)[:num_batches]
        order = np.zeros([num_batches, batch_size], np.int64)
        for index, count in enumerate(counts):
            own = tasks == index
            numbers = train_order(count, batch_size, np.count_nonzero(own), seed)
            order[own] = sum(counts[:index]) + numbers.reshape(-1, batch_size)
        return order.ravel()


class MultiTaskModel(keras.Model):
    """An encoder with a head for each of several tasks; returns the output of each, by name."""

    def __init__(self, config: BertConfig, tasks: Sequence[Task]):
        super().__init__(name="multi_task")
        self.encoder = make_encoder(config)
        shared = dict(encoder=self.encoder)
        self.models = {t.name: make_model(t.head, config, name=t.name, **shared) for t in tasks}
        self.built = True

    def call(self, inputs, training=None):
        models = self.models
        outputs, seeds = next(iter(models.values())).encode(inputs, training)
        return {x: models[x].logits(outputs, inputs, seeds, training) for x in models}


class MultiObjective(PerExample):
    """The loss of every example is that of its task; predicts the outputs of all tasks."""

    def __init__(self, tasks: Sequence[Task]):
        self._tasks = tasks

    def sums(self, model: MultiTaskModel, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        outputs, losses = model(batch, training=training), []
        for index, task in enumerate(self._tasks):
            # Examples of other tasks weigh nothing.
            weights = batch["example_weights"] * tf.cast(batch[_TASK] == index, tf.float32)
            start = f"{task.name}/"
            own = {x.removeprefix(start): batch[x] for x in batch if x.startswith(start)}
            called = Called(outputs[task.name])
            sums = task.objective.sums(called, own | {"example_weights": weights}, training)
            losses.append(sums["loss"])
        return {"loss": tf.add_n(losses)}

    def outputs(self, model: MultiTaskModel, batch: Batch) -> dict[str, tf.Tensor]:
        return model(batch, training=False)


class MultiTask(Task):
    """Several tasks with a head of the kind "classifier" that train together.

    Only their training and dev sets are read. The metrics are those of the tasks, named
    `<task>_<metric>`, and `mean`, which chooses the best weights: the mean of the metrics that do
    so for each task.

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

    def read_splits(self, names: Collection[str], files: DataFiles) -> dict[str, dict]:
        found = {task.name: task.read_splits(names, files) for task in self.tasks}
        return {name: {task: found[task][name] for task in found} for name in names}

    def featurize(
        self, examples: Mapping, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> MultiFeatures:
        arguments = tokenizer, max_seq_length
        return MultiFeatures.of(
            {task.name: task.featurize(examples[task.name], *arguments) for task in self.tasks}
        )

    def build_model(self, config: BertConfig) -> MultiTaskModel:
        return MultiTaskModel(config, self.tasks)

    def _parts(
        self, outputs: Outputs, features: MultiFeatures
    ) -> Iterator[tuple[Task, Outputs, Features]]:
        """Yields every task with its outputs and examples."""
        for index, task in enumerate(self.tasks):
            called = Called(outputs[task.name][features.targets[_TASK] == index])
            yield task, task.objective.outputs(called, {}), features.parts[task.name]

    def score(self, outputs: Outputs, features: MultiFeatures) -> dict[str, float]:
        parts = self._parts(outputs, features)
        found = {task.name: task.score(theirs, own) for task, theirs, own in parts}
        mean = float(np.mean([found[task.name][task.metric] for task in self.tasks]))
        return {"mean": mean} | {f"{x}_{y}": found[x][y] for x in found for y in found[x]}

    def problem(self, outputs: Outputs, features: MultiFeatures) -> str | None:
        parts = self._parts(outputs, features)
        found = {task.name: task.problem(theirs, own) for task, theirs, own in parts}
        return "; ".join(f"{x}: {found[x]}" for x in found if found[x]) or None

    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: MultiFeatures
    ) -> list[str]:
        return [
            f"{task.name}/{file}"
            for task, theirs, own in self._parts(outputs, features)
            for file in task.write_predictions(f"{folder}/{task.name}", split, theirs, own)
        ]


class MultiTaskLearner(TaskLearner):
    """Trains a `MultiTask`; in the end, every task gets a run folder of its own."""

    def finish(self, training: Training) -> None:
        super().finish(training)
        session, driver = training.session, training.driver
        for task in self.task.tasks if session.is_chief else ():
            name, start = task.name, f"eval_{task.name}_"
            own = Run(session.run.file(name))
            flags = recorded(session.options) | {"task": name, "output_dir": own.path}
            flags |= {FINISHED: True, TOGETHER: self.task.name}
            own.write(session.run.spec, flags, task.head)
            own.best.write(session.run.spec, head=task.head)
            tensors = {
                weight.path.replace(f"{name}/", "task_model/"): Tensor((), weight.numpy)
                for weight in training.model.models[name].weights
            }
            save_tensors(own.best.file(f"ckpt-{driver.step}"), tensors)
            best = driver.best_results
            results = {x.replace(start, "eval_"): best[x] for x in best if x.startswith(start)}
            results |= {"global_step": driver.step}
            write_json(own.file(EVAL_RESULTS_JSON), results)
            for folder in (own, own.best):
                write_results(folder.file(EVAL_RESULTS), results)
