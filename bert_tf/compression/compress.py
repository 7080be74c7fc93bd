"""From the flags of compress to the student's run folder, and what it is compared with."""

import dataclasses
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoint import open_checkpoint
from bert_tf.compression.augmentation import Augmentation
from bert_tf.compression.candidates import Glove, MaskedLM
from bert_tf.compression.compression_options import COMPRESSION, CompressionOptions
from bert_tf.compression.pruning import PRUNED, without_heads
from bert_tf.compression.quantized_student import (
    QuantizedEvaluation,
    QuantizedTraining,
    measure_sensitivity,
    quantization,
    student_facts,
)
from bert_tf.compression.recipes import RECIPES, Recipe
from bert_tf.compression.student import StudentTraining, initial_student, known_spec, reads_pairs
from bert_tf.finetuning.fine_tune import fine_tune, load_evaluator, read_features
from bert_tf.finetuning.fine_tuned import check_kind, in_task_order
from bert_tf.finetuning.fine_tuner import Training
from bert_tf.finetuning.registry import make_task, task_name, with_length
from bert_tf.finetuning.runs.sweep import sweep
from bert_tf.finetuning.saved_run import check_resumable
from bert_tf.finetuning.task import Task
from bert_tf.resolution import check_readable
from bert_tf.runs.run import Run
from bert_tf.session import Session
from bert_tf.training.checkpoints import Tensor
from bert_tf.training.reports import rank
from bert_tf.training.strategy import make_strategy
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.names import part_of
from tfrecords.progress import say
from tfrecords.writer import atomic_write


def compress(options: CompressionOptions, task: Task | None = None) -> dict[str, float]:
    """Trains a student of a fine-tuned model; resumes the run in output_dir.

    The output folder is that of a fine-tuning run, with `compression.json` in addition: the recipe,
    the teacher, and parameters and metrics of both models.

    Args:
        task: replaces the registered task with the name `options.task`.

    Returns:
        the results of the student; see `fine_tune`, also for what it raises.
    """
    name = task.name if task else task_name(options.task)
    options = dataclasses.replace(options, task=name)
    recipe, run = RECIPES[options.recipe], Run(options.output_dir)
    _check_stages(options)
    teacher = open_checkpoint(options.teacher)
    options = hold_out_as_teacher(options, teacher)
    if not teacher.head:
        raise ValueError(
            f"--teacher={options.teacher} is not a fine-tuned model: give the output folder of "
            "run_finetuning on this task"
        )
    if not options.replace_vocab:
        check_readable(teacher)
    options = with_length(options, name, teacher.spec.config)
    say(f"Recipe {options.recipe}: {recipe.paper}.")
    task = task or make_task(options, teacher.head)
    check_kind(task.name, task.head, teacher.head, teacher.path)
    teacher = in_task_order(teacher, task.head, say)
    if check_resumable(options, run):
        training = QuantizedEvaluation(task, run.path) if recipe.quantization else None
        results = fine_tune(options, task, training=training)
    else:
        training = _training(options, recipe, task, teacher)
        init = None
        if not run.has_checkpoint:
            init = initial_student(options, recipe, teacher, recipe.bilstm and reads_pairs(task))
        if init and recipe.removes_heads:
            init = without_heads(options, task, init)
        results = fine_tune(options, task, init, training)
    for row in recipe.published:
        say(row.describe())
    print(_report(options, task, teacher, results))
    return results


def compress_all(options: CompressionOptions) -> Mapping[str, float]:
    """Makes the student or the students that the flags ask for; returns the best one's results."""
    if not options.is_sweep:
        return compress(options)
    options = hold_out_as_teacher(options, open_checkpoint(options.teacher))
    return sweep(options, run="bert_tf.compression.compress:compress")


def hold_out_as_teacher(options: CompressionOptions, teacher: Checkpoint) -> CompressionOptions:
    """Returns the flags with the seed that chose what the teacher held out.

    With another seed, the teacher would have been trained on most of the student's dev set.
    """
    run = teacher.run
    if options.hold_out_seed is not None or run is None:
        return options
    flags = run.flags
    seeds = [flags.get(name) for name in ("hold_out_seed", "random_seed")]
    seed = next((seed for seed in seeds if seed is not None), None)
    return dataclasses.replace(options, hold_out_seed=seed)


def _training(
    options: CompressionOptions, recipe: Recipe, task: Task, teacher: Checkpoint
) -> StudentTraining:
    arguments = task, recipe, teacher, not options.init_checkpoint
    if recipe.quantization:
        how = quantization(options, recipe)
        return QuantizedTraining(*arguments, how, measure_sensitivity(options, how, task, teacher))
    augmentation = _augmentation(options, recipe, teacher)
    return StudentTraining(*arguments, options.pruned_share, augmentation, options.output_dir)


def _augmentation(
    options: CompressionOptions, recipe: Recipe, teacher: Checkpoint
) -> Augmentation | None:
    """Returns what makes copies of the training examples; None without --augment."""
    if not options.augment:
        return None
    model = MaskedLM(options.masked_lm, options.max_seq_length)
    if teacher.spec.lower_case is False and model.lower_case:
        raise ValueError(
            f"--masked_lm={options.masked_lm} lower-cases text, which the teacher does not: give "
            "a model that does not either"
        )
    glove = Glove(options.glove_file) if options.glove_file else None
    how = options.augment, recipe.changes, options.random_seed
    return Augmentation(model, *how, glove, options.output_dir)


def _check_stages(options: CompressionOptions) -> None:
    """Raises a ValueError for flags of fine-tuning that do not suit the recipe."""
    recipe = RECIPES[options.recipe]
    if options.early_stopping and recipe.last_stage:
        raise ValueError(
            f"--early_stopping would end --recipe={options.recipe} before its last stage: omit it"
        )
    if options.augment and not recipe.terms:
        raise ValueError(
            f"--augment does not suit --recipe={options.recipe}, which learns from labels alone: "
            "omit it"
        )
    unsuited = ["feature_based", *["class_weights", "freeze_encoder"] * recipe.has_teacher]
    unsuited += ["student_layers", "preset", "bert_config_file", "layer_decay"] * recipe.bilstm
    unsuited += ["freeze_encoder"] * recipe.zeroes_weights
    for name in unsuited:
        if getattr(options, name) != getattr(CompressionOptions, name):
            raise ValueError(f"--{name} does not suit --recipe={options.recipe}: omit it")


def _report(
    options: CompressionOptions, task: Task, teacher: Checkpoint, results: dict[str, float]
) -> str:
    """Writes `compression.json` and returns the line that compares student and teacher."""
    run, metric = Run(options.output_dir), f"eval_{task.metric}"
    values = run.read_json(COMPRESSION)
    if not values:
        student, recipe = open_checkpoint(run.path, any_encoder=True), RECIPES[options.recipe]
        count = num_parameters(student)
        values = {
            "recipe": options.recipe,
            "teacher": options.teacher,
            "teacher_parameters": num_parameters(teacher),
            "student_parameters": count,
            "student_bytes": 4 * count,
            "metric": metric,
            "teacher_value": _evaluate(options, task, teacher)[metric],
            "student_value": results[metric],
        }
        if recipe.zeroes_weights:
            values |= sparse_sizes(teacher, student)
        if recipe.quantization:
            values |= student_facts(quantization(options, recipe), student, run.path)
        atomic_write(run.file(COMPRESSION), json.dumps(values, indent=2) + "\n")
    _describe_weights(values)
    before, after = values["teacher_parameters"], values["student_parameters"]
    theirs, ours = values["teacher_value"], values["student_value"]
    kept = f" ({ours / theirs:.1%} kept)" if rank(task.metric, theirs) > 0 else ""
    return (
        f"Teacher and student: {before:,} and {after:,} parameters ({before / after:.2f} times "
        f"fewer); {task.metric} {theirs:.4f} and {ours:.4f} on {task.dev_set}{kept}."
    )


def _describe_weights(values: Mapping[str, Any]) -> None:
    """Prints the size that zeros or fewer bits save."""
    after = values["student_bytes"]
    if "sparsity" in values:
        before = values["teacher_gzip_bytes"]
        say(
            f"{values['sparsity']:.1%} of the weights of layers and word embeddings are zero; "
            f"{values['student_nonzero']:,} of {values['student_parameters']:,} parameters are "
            f"not. With gzip, the weights of teacher and student take {before / 1e6:.1f} and "
            f"{after / 1e6:.1f} MB ({before / after:.2f} times fewer)."
        )
    if "layer_bits" in values:
        before = 4 * values["teacher_parameters"]
        say(
            f"Weights of teacher and student: {before / 1e6:.2f} and {after / 1e6:.2f} MB "
            f"({before / after:.2f} times smaller)."
        )


def _evaluate(options: CompressionOptions, task: Task, teacher: Checkpoint) -> dict[str, float]:
    """Returns the teacher's metrics on the dev set."""
    run, dev = Run(options.output_dir), task.dev_splits[0]
    spec = known_spec(teacher, run.vocab, run.lower_case)
    splits = read_features(options, task, spec, [dev], lambda line: None)
    session = Session(options, make_strategy(options), run)
    return load_evaluator(session, Training(task), teacher, splits).evaluate(dev)


def num_parameters(checkpoint: Checkpoint) -> int:
    """Returns the number of parameters, without a pooler that the head does not read."""
    return sum(int(np.prod(tensor.shape)) for _, tensor in _weights(checkpoint))


def sparse_sizes(teacher: Checkpoint, student: Checkpoint) -> dict[str, Any]:
    """Returns what `compression.json` says about the zeros of a student.

    `sparsity` is the share of zeros in the weights that `PruningAdamW` prunes.
    """
    values = {path: tensor.read() for path, tensor in _weights(student)}
    pruned = [values[path] for path in values if PRUNED.fullmatch(path)]
    kept = sum(map(np.count_nonzero, pruned))
    return {
        "sparsity": float(1 - kept / sum(value.size for value in pruned)),
        "student_nonzero": int(sum(map(np.count_nonzero, values.values()))),
        "teacher_gzip_bytes": _gzip_bytes(teacher),
        "student_bytes": _gzip_bytes(student),
    }


def _gzip_bytes(checkpoint: Checkpoint) -> int:
    """Returns the size in bytes of all parameters as float32 under gzip."""
    compressor = zlib.compressobj(wbits=31)
    parts = (np.ascontiguousarray(x.read(), np.float32) for _, x in _weights(checkpoint))
    return sum(len(compressor.compress(part)) for part in parts) + len(compressor.flush())


def _weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    # Some programs leave out a pooler that is not read.
    unread = "pooler" if checkpoint.head and not checkpoint.head.reads_pooler else None
    for path in sorted(checkpoint.tensors):
        if path.split("/")[0] in ("encoder", "task_model") and part_of(path) != unread:
            yield path, checkpoint.tensors[path]
