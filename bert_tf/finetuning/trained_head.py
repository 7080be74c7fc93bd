"""Loads a fine-tuned model, perhaps of another program, and fits its head to a task."""

import dataclasses
from collections.abc import Callable

import keras

from bert_tf.config import Head
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.training import Training
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, load_weights

_HEAD = "task_model/head/"


def load_task_model(
    task: Task | Training, checkpoint: Checkpoint, allow_non_finite: bool = False
) -> keras.Model:
    """Builds the model of a task with fine-tuned weights.

    If the checkpoint has no pooler and the head reads none, the pooler stays random. Hugging Face's
    models with such heads lack it.

    Args:
        allow_non_finite: whether NaN and infinity are a warning instead of an error.
    """
    model = task.build_model(checkpoint.spec.config)
    head = checkpoint.head
    unread = ("pooler",) if head and not head.reads_pooler else ()
    arguments = checkpoint.path, checkpoint.tensors, model.weights, None, unread
    load_weights(*arguments, allow_non_finite)
    return model


def check_kind(task: str, ours: Head | None, theirs: Head | None, path: str) -> None:
    """Checks that a model has the kind of head that a task needs.

    Args:
        task: the value of --task.
        ours, theirs: the heads of the task and the model; None if unknown.
        path: the model.
    """
    if ours and theirs and ours.kind != theirs.kind:
        raise ValueError(
            f"{path} has a head of the kind {theirs.kind}, but --task={task} needs the kind "
            f"{ours.kind}: give a model that was fine-tuned on this task"
        )
    if ours and theirs and theirs.multi_label and not ours.multi_label:
        raise ValueError(
            f"{path} predicts several classes at once, but --task={task} does not: give "
            "--task=csv --label_type=classes"
        )


def in_task_order(
    checkpoint: Checkpoint, ours: Head | None, say: Callable[[str], None]
) -> Checkpoint:
    """Returns a fine-tuned model with its outputs in the order of a task's classes.

    If the names of the classes differ, apart from case, the outputs keep their order.

    Args:
        ours: the head of the task, which the result has; None if the task has none.
        say: prints a line that tells the user what was done.
    """
    theirs = checkpoint.head
    if not (ours and theirs):
        return checkpoint
    tensors = checkpoint.tensors
    if theirs.labels and ours.labels != theirs.labels:
        wanted, found = ([label.lower() for label in head.labels] for head in (ours, theirs))
        if len({*wanted, *found}) < max(len({*ours.labels}), len({*theirs.labels})):
            # Some labels differ only in case.
            wanted, found = list(ours.labels), list(theirs.labels)
        names = ", ".join(theirs.labels)
        if sorted(wanted) != sorted(found):
            say(
                f"WARNING: the model names its classes {names}; they are taken for "
                f"{', '.join(ours.labels)}, in this order."
            )
        elif wanted != found:
            order = [found.index(label) for label in wanted]
            tensors = {
                name: _columns(tensor, order) if name.startswith(_HEAD) else tensor
                for name, tensor in tensors.items()
            }
            say(f"The classes of the model, {names}, were put into the task's order.")
    return dataclasses.replace(checkpoint, tensors=tensors, head=ours)


def _columns(tensor: Tensor, order: list[int]) -> Tensor:
    return dataclasses.replace(tensor, read=lambda: tensor.read()[..., order])
