"""Fine-tuned models: runs and those of other programs, as models of a task."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base.progress import say
from bert_tf.config import EMBEDDING, Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import default_length, make_task, task_of_run
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.tasks.classification import ClassificationTask, MultiLabelTask
from bert_tf.finetuning.tasks.text_task import RegressionTask, TextTask, number_head
from bert_tf.layers.initial_weights import loaded_next
from bert_tf.models.task_model import Ensemble
from bert_tf.runs.run import LEARNED_OBJECTIVE, Run
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, load_weights
from bert_tf.weights.names import HEAD_BIAS, part_of
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import check_length
from tfrecords.statistics import SEGMENT_LABELS

_HEAD, _PAIR_HEAD = "task_model/head/", "pretrainer/next_sentence/"
# The tasks for heads of other programs that are not classifiers, by the kind of head.
_TASKS = {"tagger": "ner", "span": "squad", "multiple_choice": "swag"}
# Flags of runs in which the members of an ensemble must agree.
_SHARED = ("feature_based", "doc_stride", "max_query_length")


def member_paths(path: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the paths of the models of an ensemble, "a,b,c" or a tuple, or of a single one.

    Names of existing files and folders may contain commas.
    """
    if not isinstance(path, str):
        return tuple(path)
    found, parts = [], path.split(",")
    while parts:
        names = [",".join(parts[:end]) for end in range(len(parts), 0, -1)]
        name = next((x for x in names[:-1] if tf.io.gfile.exists(x)), parts[0])
        found.append(name)
        parts = parts[name.count(",") + 1 :]
    return tuple(found)


def open_members(
    path: str | tuple[str, ...], *flags: Any, **others: Any
) -> tuple[Checkpoint, Task, int]:
    """Does what `open_fine_tuned` does, but also for pre-trained models and ensembles.

    `flags` are its arguments after the task. The checkpoint of an ensemble is that of the first
    model, with the others as `others`; the first one's flags say how to read answers.

    Raises:
        ValueError: also if they differ in more than their weights and sizes, or compute vectors.
    """
    paths = member_paths(path)
    opened = [open_fine_tuned(x, None, *flags, **others, pretrained=True) for x in paths]
    first, task, length = opened[0]
    if len(paths) == 1:
        return opened[0]
    if task.head and task.head.kind == EMBEDDING:
        raise ValueError(f"{first.path} computes vectors, which cannot be averaged: give one model")
    shared = _shared(*opened[0])
    for other in opened[1:]:
        theirs = _shared(*other)
        if name := next((x for x in shared if theirs.get(x, shared[x]) != shared[x]), None):
            raise ValueError(
                f"{first.path} and {other[0].path} cannot be averaged: their {name} is "
                f"{shared[name]} and {theirs[name]}"
            )
    members = tuple(checkpoint for checkpoint, *_ in opened[1:])
    return dataclasses.replace(first, path=",".join(paths), others=members), task, length


def _shared(checkpoint: Checkpoint, task: Task, length: int) -> dict[str, Any]:
    """Returns what the members of an ensemble have in common, with the names for messages."""
    spec, head, flags = checkpoint.spec, task.head, checkpoint.run.flags if checkpoint.run else {}
    found = {"task": task.name, "labels": head.labels, "multi_label": head.multi_label}
    found |= {"vocabulary": spec.vocab and spec.vocab.sha256, "do_lower_case": spec.lower_case}
    return found | {"max_seq_length": length} | {x: flags[x] for x in _SHARED if x in flags}


def open_fine_tuned(
    path: str,
    task: Task | None,
    max_seq_length: int | None = None,
    pairs: bool = False,
    threshold: float | None = None,
    vocab_file: str | None = None,
    pretrained: bool = False,
) -> tuple[Checkpoint, Task, int]:
    """Returns the best weights of a fine-tuned model, its task and the length of its examples.

    Prints a warning if the run is unfinished.

    Args:
        path: a run folder of run_finetuning, a checkpoint in it, or an archive of it; or a
            fine-tuned model of another program.
        task: the task, if it is not registered.
        max_seq_length: by default that of the run, or of the task.
        pairs: whether a classifier of another program takes pairs of texts.
        threshold: --null_score_diff_threshold, by default that of the run. Without it, a model of
            another program answers every question.
        vocab_file: see `open_checkpoint`.
        pretrained: whether a pre-trained model will do, which says if a text follows another.
    """
    folder = Run(path)
    if "task" in folder.flags:
        _warn_if_unfinished(folder)
        checkpoint = open_checkpoint(folder.best.path, any_encoder=True, vocab_file=vocab_file)
    else:
        checkpoint = open_checkpoint(path, any_encoder=True, vocab_file=vocab_file)
        folder = checkpoint.run
        is_pretrained = pretrained and not checkpoint.head and "next_sentence" in checkpoint.parts
        if is_pretrained:
            checkpoint, pairs = _pair_classifier(checkpoint), True
    flags = folder.flags if folder else {}
    if "task" not in flags:
        task = task or _converted_task(checkpoint, path, pairs, threshold)
        task = task.changed(is_pretrained=is_pretrained)
    elif pairs:
        raise ValueError("--pairs is only for classifiers of other programs: omit it")
    elif not task:
        given = {} if threshold is None else {"null_score_diff_threshold": threshold}
        task = task_of_run(folder, **given)
    config = checkpoint.spec.config
    length = max_seq_length or flags.get("max_seq_length") or default_length(task.name, config)
    check_length(config, length)
    return checkpoint, task, length


def _pair_classifier(checkpoint: Checkpoint) -> Checkpoint:
    """Returns a pre-trained model whose head for pairs of segments is that of a classifier."""
    flags, config = checkpoint.run.flags if checkpoint.run else {}, checkpoint.spec.config
    objective = flags.get(LEARNED_OBJECTIVE) or flags.get("objective")
    objective = objective or ("sop" if config.model_type == "albert" else "nsp")
    if objective not in SEGMENT_LABELS:
        raise ValueError(
            f"{checkpoint.path} was pre-trained with --objective={objective}, which does not teach "
            "which text follows another: give a fine-tuned model"
        )
    tensors = {
        path.replace(_PAIR_HEAD, _HEAD): tensor
        for path, tensor in checkpoint.tensors.items()
        if part_of(path) != "masked_lm"
    }
    head = Head("classifier", SEGMENT_LABELS[objective])
    return dataclasses.replace(checkpoint, tensors=tensors, head=head)


def _warn_if_unfinished(folder: Run) -> None:
    advice = "run the same run_finetuning command to finish it"
    if folder.finished is False:
        if not folder.best.has_checkpoint:
            raise ValueError(f"{folder.path} is unfinished and has no evaluated weights: {advice}")
        print(f"WARNING: {folder.path} is unfinished; these are its best weights so far: {advice}.")


def _converted_task(
    checkpoint: Checkpoint, path: str, pairs: bool, threshold: float | None
) -> Task:
    head = checkpoint.head
    if not head:
        raise ValueError(f"{path} is not a fine-tuned model: give a run folder of run_finetuning")
    if head.kind == EMBEDDING:
        raise ValueError(f"{path} only computes vectors: use export.embedder or load_embedder")
    if HEAD_BIAS not in checkpoint.tensors:
        raise ValueError(f"{path} lacks the flags.json of its run: give the whole run folder")
    if threshold is not None and head.kind != "span":
        raise ValueError("--null_score_diff_threshold is only for question answering: omit it")
    (classes,) = checkpoint.tensors[HEAD_BIAS].shape
    # Hugging Face's names for classes without names.
    labels = head.labels or tuple(f"LABEL_{index}" for index in range(classes))
    if head.kind in _TASKS:
        if pairs:
            raise ValueError(f"--pairs is only for classifiers, but {path} is not one: omit it")
        if head.kind == "span" and threshold is None:
            say(
                f"{path} answers every question, as models of SQuAD 1.1 do. If it was trained on "
                "SQuAD 2.0, give --null_score_diff_threshold=0."
            )
        name = "squad2" if threshold is not None else _TASKS[head.kind]
        options = FineTuningOptions(
            task=name, output_dir=path, do_predict=True, null_score_diff_threshold=threshold
        )
        return make_task(options, dataclasses.replace(head, labels=labels))
    if classes == 1 and not head.multi_label:
        return dataclasses.replace(classifier_task((), pairs), head=number_head(head))
    return classifier_task(labels, pairs, head.multi_label)


def classifier_task(
    labels: Sequence[str],
    pairs: bool,
    multi_label: bool = False,
    label_separator: str = MultiLabelTask.separator,
) -> TextTask:
    """Returns a task that serves a classifier or, without labels, predicts a number.

    `label_separator` goes between the names of several classes.
    """
    if not labels:
        return RegressionTask(name="regression", pairs=pairs)
    arguments = dict(name="classifier", labels=tuple(labels), pairs=pairs)
    if multi_label:
        return MultiLabelTask(**arguments, separator=label_separator)
    return ClassificationTask(**arguments)


def load_task_model(
    task: Task, checkpoint: Checkpoint, allow_non_finite: bool = False
) -> keras.Model:
    """Builds the model of a task with fine-tuned weights.

    If the checkpoint has no pooler and the head reads none, the pooler is all zeros. Hugging Face's
    models with such heads lack it. `allow_non_finite` makes NaN and infinity a warning. The model
    of a checkpoint with `others` is an `Ensemble`.
    """
    if checkpoint.others:
        members = (dataclasses.replace(checkpoint, others=()), *checkpoint.others)
        models = [load_task_model(task, x, allow_non_finite) for x in members]
        return Ensemble(models, task.objective.combine)
    head = checkpoint.head
    if head and head.kind != EMBEDDING and isinstance(task, RegressionTask):
        # With its own mean and deviation.
        task = dataclasses.replace(task, head=number_head(head))
    with loaded_next():
        model = task.build_model(checkpoint.spec.config)
    unread = ("pooler",) if head and not head.reads_pooler else ()
    load_weights(checkpoint.path, checkpoint.tensors, model.weights, None, unread, allow_non_finite)
    return model


def in_task_order(checkpoint: Checkpoint, task: Task, say: Callable[[str], None]) -> Checkpoint:
    """Returns a fine-tuned model with its outputs in the order of a task's classes.

    If the names of the classes differ, apart from case, the outputs keep their order. The result
    has the head of the task.

    Raises:
        ValueError: the task needs a head of another kind.
    """
    ours, theirs = task.head, checkpoint.head
    if not (ours and theirs):
        return checkpoint
    if ours.kind != theirs.kind:
        raise ValueError(
            f"{checkpoint.path} has a head of the kind {theirs.kind}, but --task={task.name} needs "
            f"the kind {ours.kind}: give a model that was fine-tuned on this task"
        )
    if theirs.multi_label and not ours.multi_label:
        raise ValueError(
            f"{checkpoint.path} predicts several classes at once, but --task={task.name} does not: "
            "give --task=csv --label_type=classes"
        )
    tensors = checkpoint.tensors
    if theirs.labels and ours.labels != theirs.labels:
        order, names = _places(ours.labels, theirs.labels), ", ".join(theirs.labels)
        if order is None:
            say(
                f"WARNING: the model's classes, {names}, are taken for "
                f"{', '.join(ours.labels)}, in this order."
            )
        elif order != sorted(order):
            tensors = {
                name: _columns(tensor, order) if name.startswith(_HEAD) else tensor
                for name, tensor in tensors.items()
            }
            say(f"The classes of the model, {names}, were put into the task's order.")
    others = tuple(in_task_order(other, task, say) for other in checkpoint.others)
    head = dataclasses.replace(ours, mean=theirs.mean, deviation=theirs.deviation)
    return dataclasses.replace(checkpoint, tensors=tensors, head=head, others=others)


def _places(wanted: Sequence[str], found: Sequence[str]) -> list[int] | None:
    """Returns the place of each class among others of the same names in any case, or None."""
    exact = {label: place for place, label in enumerate(found)}
    others = {label.lower(): exact[label] for label in found if label not in wanted}
    places = [exact.get(label, others.get(label.lower())) for label in wanted]
    return places if {*places} == {*range(len(found))} else None


def _columns(tensor: Tensor, order: list[int]) -> Tensor:
    return dataclasses.replace(tensor, read=lambda: tensor.read()[..., order])
