"""The interface of a fine-tuning task."""

import abc
import copy
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sized
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.files import shortened, similar
from bert_tf.config import EMBEDDING, BertConfig, Head
from bert_tf.finetuning.examples import TfdsSource, choose_held_out
from bert_tf.finetuning.finetuning_options import TaskOptions
from bert_tf.finetuning.tokenizing import Features
from bert_tf.models.task_model import BertEmbedder, BertTaskModel
from bert_tf.tables.memory import TableInMemory
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.trainer import Objective

Outputs = Mapping[str, np.ndarray | list]
TRAIN = "train"


class DataFiles(NamedTuple):
    """Where the user's data is: the flags of the same names."""

    data_dir: str | None = None
    train_file: str | TableInMemory | None = None
    dev_file: str | TableInMemory | None = None
    test_file: str | TableInMemory | None = None

    @classmethod
    def of(cls, options: TaskOptions) -> "DataFiles":
        """Returns the values of the flags."""
        return cls(*(getattr(options, name) for name in cls._fields))

    @property
    def are_official(self) -> bool:
        """Whether the training and dev sets are the official ones: no flag names others."""
        return not (self.data_dir or self.train_file or self.dev_file)

    def missing(self, task: str, split: str, *names: str) -> FileNotFoundError:
        """Returns the error for a split without a file; `names` are those in a `data_dir`."""
        others = f", or {self.data_dir or '--data_dir'} with {' or '.join(names)}" if names else ""
        return FileNotFoundError(f"--task={task} needs --{split}_file{others}")


def make_model(head: Head, config: BertConfig, **arguments: Any) -> keras.Model:
    """Returns the model that a head describes; `arguments` are others of `BertTaskModel`."""
    if head.kind == EMBEDDING:
        return BertEmbedder(config, **{x: getattr(head, x) for x in BertEmbedder.arguments})
    outputs = {"span": 2, "multiple_choice": 1}.get(head.kind, len(head.labels) or 1)
    return BertTaskModel(config, outputs, head.kind, head.mean, head.deviation, **arguments)


class Task(abc.ABC):
    """What to fine-tune an encoder for: data, model, objective and metrics.

    Attributes:
        name: the value of --task.
        head: what the model predicts: the kind of its head, and the names of classes or tags; None
            for a model that is not a `BertTaskModel`.
        objective: what to minimize, and which outputs to predict.
        metric: the key of `score` that chooses the best weights; higher is better, except for
            `loss` and `mean_squared_error`.
        metrics: the metrics that --metric accepts.
        read_file: maps a file of the user and a split to the examples, for `read`.
        read_files: the same for a folder with the official files.
        tfds: where `read` finds the examples if no flag names them; None if there is no such place.
        read_own: maps the user's files and a split to the examples; replaces `read_files`.
        dev_splits: the splits that --do_eval evaluates; the first one chooses the best weights.
        test_splits: the splits that --do_predict predicts. Where they have targets, --do_eval
            evaluates them, too, with the best weights.
        optional_splits: those of `test_splits` that --do_predict leaves out if there is no file.
        has_dev: whether there is a dev set; otherwise the first of `dev_splits` is a tenth of
            "train" that is held out.
        token_outputs: names of the outputs that have an entry per token.
        long_inputs: what the exported module does with long inputs, given `max_seq_length`; for the
            model card.
        columns: the flags that the training file decided, such as its columns, with their values.
        is_pretrained: whether the model was not fine-tuned, but learned the task in pre-training.
    """

    name: str
    head: Head | None = None
    objective: Objective
    metric: str
    metrics: tuple[str, ...] = ()
    read_file: Callable[[str, str], Sized] | None = None
    read_files: Callable[[str, str], Sized] | None = None
    tfds: TfdsSource | None = None
    read_own: Callable[[DataFiles, str], Sized] | None = None
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    optional_splits: tuple[str, ...] = ()
    has_dev: bool = True
    token_outputs: tuple[str, ...] = ()
    long_inputs: str = "Examples are truncated to {} tokens."
    columns: Mapping[str, Any] = MappingProxyType({})
    is_pretrained: bool = False

    @property
    def dev_set(self) -> str:
        """What to call the first of `dev_splits` in messages."""
        return "the dev set" if self.has_dev else "the held-out examples"

    @property
    def reported_metrics(self) -> list[str]:
        """The names that `metric` has in results, one per split, the dev set's first."""
        return [self.in_results(self.metric, x) for x in (*self.dev_splits, *self.test_splits)]

    @staticmethod
    def in_results(metric: str, split: str) -> str:
        """Returns the name of a metric in results: "eval" is for "dev", as is customary."""
        return f"{split.replace('dev', 'eval', 1) if split.startswith('dev') else split}_{metric}"

    def with_metric(self, name: str) -> Self:
        """Returns the task with another metric that chooses the best weights."""
        if name not in self.metrics:
            metrics = self.metrics or (self.metric,)
            # Those of classes, such as f1/spam.
            kinds = dict.fromkeys(re.sub("/.*", "/CLASS", x, flags=re.DOTALL) for x in metrics)
            raise ValueError(
                f"--metric={name} is not a metric of this task: choose one of "
                f"{shortened([*kinds], most=20)}{similar(name, metrics)}"
            )
        return self.changed(metric=name)

    def with_files(self, files: DataFiles) -> Self:
        """Returns the task with the splits of the user's files.

        A file takes the place of all dev or test sets. Without --dev_file and --data_dir, a tenth
        of --train_file is held out.
        """
        changes: dict[str, Any] = {}
        if files.dev_file or (files.train_file and not files.data_dir):
            changes = {"dev_splits": self.dev_splits[:1], "has_dev": bool(files.dev_file)}
        if files.test_file:
            changes |= {"test_splits": self.test_splits[:1], "optional_splits": ()}
        return self.changed(**changes)

    def changed(self, **attributes: Any) -> Self:
        """Returns a copy with other attributes."""
        task = copy.copy(self)
        for name, value in attributes.items():
            # Some tasks are frozen dataclasses.
            object.__setattr__(task, name, value)
        return task

    def read(self, files: DataFiles, split: str) -> Sized:
        """Reads the examples of a split, for `read_splits`."""
        if self.read_own:
            return self.read_own(files, split)
        if path := getattr(files, f"{split}_file", None):
            examples, source = self.read_file(path, split), path
        elif files.data_dir:
            examples, source = self.read_files(files.data_dir, split), files.data_dir
        elif self.tfds and files.are_official:
            examples, source = self.tfds.read(split), self.tfds.name
        else:
            raise files.missing(self.name, split, "its official files")
        if not len(examples):
            raise ValueError(f"{source}: no {split} examples for --task={self.name}")
        return examples

    def hold_out(self, examples: Sized) -> tuple[Sized, Sized]:
        """Holds out a tenth of "train", for `read_splits`; returns the rest and the tenth."""
        none = np.zeros(len(examples), bool)
        chosen, notes = choose_held_out(none, none)
        rest, tenth = (examples.take(np.flatnonzero(x)) for x in (~chosen, chosen))
        return rest, dataclasses.replace(tenth, notes=notes)

    def read_splits(self, names: Collection[str], files: DataFiles) -> dict[str, Sized]:
        """Reads the examples of some splits; holds out the dev set if the task has none."""
        if files.data_dir and not tf.io.gfile.isdir(files.data_dir):
            advice = "name the folder of the task's files, or one file as --train_file"
            raise FileNotFoundError(f"--data_dir={files.data_dir} is not a folder: {advice}")
        dev = self.dev_splits[0]
        needed = [TRAIN if name == dev and not self.has_dev else name for name in names]
        splits = {name: self.read(files, name) for name in dict.fromkeys(needed)}
        if not self.has_dev and TRAIN in splits:
            splits[TRAIN], splits[dev] = self.hold_out(splits[TRAIN])
        known = set(splits[TRAIN].keys) if len(splits) > 1 and TRAIN in splits else ()
        for name, examples in splits.items():
            if name != TRAIN and (repeated := sum(key in known for key in examples.keys)):
                notes = (*examples.notes, f"{repeated:,} that are also in the training set")
                splits[name] = dataclasses.replace(examples, notes=notes)
        return {name: splits[name] for name in names}

    @abc.abstractmethod
    def featurize(
        self, examples: Sized, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """Tokenizes the examples of a split; without targets, if the examples have none."""

    def build_model(self, config: BertConfig) -> keras.Model:
        """Builds the model: that of the head, or another one with a `BertEncoder` as `encoder`."""
        return make_model(self.head, config)

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        """Returns the weights of the model that are set from the initial checkpoint."""
        return model.encoder.weights

    def inputs(self, features: Features) -> Features:
        """Returns what the model reads to predict a split."""
        return features

    def decode(self, outputs: Outputs, features: Features) -> Outputs:
        """Turns what `Trainer.predict` returned into what `score` and `write_predictions` read."""
        return outputs

    @abc.abstractmethod
    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """Computes the metrics of what `decode` returned for a split with targets."""

    def problem(self, outputs: Outputs, features: Features) -> str | None:
        """Returns what is wrong with the predictions, a clause; None if nothing is."""
        return None

    def check_metric(self, features: Features) -> str | None:
        """Returns a warning about `metric` on the dev set, or None; refuses an undefined one."""
        return None

    def check_steps(
        self, features: Features, batch_size: int, replicas: int, config: BertConfig
    ) -> str | None:
        """Returns a warning about training steps, or None; raises if they would teach nothing."""
        return None

    def undefined_metric(self) -> ValueError:
        """Returns the error for a metric that the dev set does not have."""
        return ValueError(
            f"--metric={self.metric} is undefined on {self.dev_set}, which lacks a class: "
            "choose another metric, or give a --dev_file with examples of all classes"
        )

    @abc.abstractmethod
    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: Features
    ) -> list[str]:
        """Writes the files with the predictions of a split, each whole or not at all.

        The split may have no targets. Returns the names of the files in `folder`.
        """

    def serving(
        self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> tf.Module:
        """Builds the module to export; its attribute `serving` is the default signature.

        Only a task whose models predict new text has it.
        """
        raise NotImplementedError

    def example_call(self) -> str:
        """Returns the arguments of a call of the exported module, with a comment on its result."""
        raise NotImplementedError
