"""Fine-tunes an encoder on a task, from flags to a run folder."""

import contextlib
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from bert_tf.checkpoint import open_init_checkpoint
from bert_tf.config import ModelSpec
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.fine_tuner import FineTuner
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.registry import TASKS, get_task
from bert_tf.finetuning.task import Task
from bert_tf.flags import make_strategy
from bert_tf.folder_lock import LOCK, locked
from bert_tf.resolution import check_length, flag_values, resolve_model
from bert_tf.run_folder import RunFolder
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import BEST
from bert_tf.training.reports import EVAL_RESULTS, read_results
from bert_tf.training.strategy import (
    check_batch_size,
    chief_print,
    explain_lost_workers,
    is_chief,
    set_precision,
)
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.growing import VocabularyMapping, load_mapping
from tfrecords.casing import warn_about_casing
from tfrecords.command_line import command_line, unused_name

# The key in flags.json for whether all steps were taken and the results written.
FINISHED = "finished"


def fine_tune(options: FineTuningOptions, task: Task | None = None) -> dict[str, float]:
    """Fine-tunes and evaluates according to the options; resumes the run in the output folder.

    Args:
        task: replaces the registered task with the name `options.task`.

    Returns:
        the results in `eval_results.txt`.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do; also if another
            process trains in the output folder.
        Interrupted: a signal stopped training, after a checkpoint was saved.
    """
    task = task or get_task(options.task)
    options = dataclasses.replace(options, task=task.name)
    # The workers of several machines must meet before TensorFlow computes anything.
    strategy = make_strategy(options)
    lock = locked(options.output_dir) if is_chief(strategy) else contextlib.nullcontext()
    with explain_lost_workers(), lock:
        return _fine_tune(options, task, strategy)


def _fine_tune(
    options: FineTuningOptions, task: Task, strategy: tf.distribute.Strategy
) -> dict[str, float]:
    run, say = RunFolder(options.output_dir), chief_print(strategy)
    mapping = load_mapping(options.init_vocab_mapping) if options.init_vocab_mapping else None
    init = open_init_checkpoint(
        options.init_checkpoint, options.bert_config_file, options.replace_vocab, run
    )
    spec = _resolve_model(options, run, init, mapping)
    if _is_finished(options, run):
        say(f"{run.path} holds a finished run; choose another --output_dir to repeat it.")
        return read_results(run.file(EVAL_RESULTS))
    for flag in ("train_batch_size", "eval_batch_size"):
        check_batch_size(strategy, flag, getattr(options, flag))
    warn_about_casing(spec.vocab, spec.lower_case, say=say)
    set_precision(options.precision)
    tuner = FineTuner(options, task, spec.config, _read(options, task, spec, say), strategy)
    tuner.set_initial_weights(init, mapping, say)
    flags = dataclasses.asdict(options)
    if is_chief(strategy):
        run.write(spec, flags | {FINISHED: False})
        best = RunFolder(run.file(BEST))
        best.write(spec)
        if task.head:
            run.write_head(task.head)
            best.write_head(task.head)
    results = tuner.train()
    if is_chief(strategy):
        run.write(spec, flags | {FINISHED: True})
    say(_summary(options, task, results))
    return results


def _resolve_model(
    options: FineTuningOptions,
    run: RunFolder,
    init: Checkpoint | None,
    mapping: VocabularyMapping | None,
) -> ModelSpec:
    """Returns the encoder's configuration with its vocabulary and casing."""
    if mapping and not options.init_checkpoint:
        raise ValueError("--init_vocab_mapping needs --init_checkpoint, the checkpoint to grow")
    resumes = run.has_checkpoint()
    if not (options.init_checkpoint or options.preset or options.bert_config_file or resumes):
        raise ValueError("no encoder: give --init_checkpoint, or --preset to train from scratch")
    vocabs, casings = flag_values(options.vocab_file, options.do_lower_case, options.replace_vocab)
    spec = resolve_model(
        run,
        bert_config_file=options.bert_config_file,
        preset=options.preset,
        vocabs=vocabs,
        casings=casings,
        init=init,
        mapping=mapping,
        replace_vocab=options.replace_vocab,
    )
    check_length(spec.config, options.max_seq_length)
    if spec.vocab is None:
        raise ValueError("no vocab.txt beside --init_checkpoint: give --vocab_file")
    if spec.lower_case is None and (init or resumes):
        raise ValueError(
            "the checkpoint does not say whether its text is lower-cased: give --do_lower_case or "
            "--nodo_lower_case"
        )
    return dataclasses.replace(spec, lower_case=spec.lower_case is not False)


def _is_finished(options: FineTuningOptions, run: RunFolder) -> bool:
    """Returns whether the run in the output folder is finished.

    Raises:
        ValueError: the folder holds something else, or a run with different flags.
    """
    saved = run.read_flags()
    if FINISHED not in saved:
        if tf.io.gfile.isdir(run.path) and set(tf.io.gfile.listdir(run.path)) - {LOCK}:
            raise ValueError(
                f"{run.path} is not empty and holds no fine-tuning run: choose another --output_dir"
            )
        return False
    if not run.has_checkpoint():
        return False  # stopped before its first checkpoint: there is nothing to resume
    for name, (then, now) in run.changed_flags(dataclasses.asdict(options)).items():
        raise ValueError(
            f"{run.path} holds a run with --{name}={then}, not {now}: choose another --output_dir, "
            "or use the same flags to resume"
        )
    return saved[FINISHED]


def _read(
    options: FineTuningOptions, task: Task, spec: ModelSpec, say: Callable[[str], None]
) -> dict[str, Features]:
    """Reads and tokenizes all splits."""
    tokenizer = WordPieceTokenizer(spec.vocab, spec.lower_case)
    splits = {}
    for name, examples in task.read_splits(options.data_dir, options.random_seed).items():
        splits[name] = task.featurize(examples, tokenizer, options.max_seq_length)
        say(_describe_split(name, splits[name]))
    return splits


def _describe_split(name: str, features: Features) -> str:
    line = f"{name}: {len(features):,} examples"
    if features.num_truncated:
        share = features.num_truncated / len(features)
        line += (
            f", {features.num_truncated:,} ({share:.1%}) truncated to "
            f"{features.max_seq_length} tokens"
        )
    if features.num_not_utf8:
        line += f", {features.num_not_utf8:,} with bytes that are not UTF-8, which were dropped"
    return line


def _summary(options: FineTuningOptions, task: Task, results: dict[str, float]) -> str:
    metric, folder, output = task.metric, options.output_dir, unused_name("classifier")
    name = metric.capitalize()
    lines = [
        f"{name} {results[f'eval_{metric}']:.4f} on {task.dev_set}, used to choose the best epoch."
    ]
    if f"test_{metric}" in results:
        lines.append(f"{name} {results[f'test_{metric}']:.4f} on the test set.")
    lines += [
        f"Wrote {folder}: {EVAL_RESULTS}, {BEST} (the best weights), curves.png, metrics.jsonl. "
        f"For TensorBoard: tensorboard --logdir={folder}",
    ]
    if TASKS.get(task.name) is task:
        lines.append(
            "Next: " + command_line("export.classifier", checkpoint=folder, output_dir=output)
        )
    else:
        lines.append(
            f"Next, in Python: export.classifier.export_classifier({folder!r}, {output!r}, task)"
        )
    return "\n".join(lines)
