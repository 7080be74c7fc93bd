"""The flags of a fine-tuning run that exists already."""

import dataclasses

import tensorflow as tf

from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.folder_lock import LOCK
from bert_tf.run_folder import LOCATION_FLAGS, RunFolder

# The key in flags.json for whether all steps were taken.
FINISHED = "finished"
# The folder of the results that `compress` computes before training.
PRECOMPUTED = "precomputed"
# Flags that say what to do with a run, and so may differ from those it was trained with.
_FREE = frozenset({"do_train", "do_eval", "do_predict", "eval_batch_size", "test_file"})
# Flags that say how to read the model's output, and so may be given anew.
_READING = frozenset({"n_best_size", "max_answer_length", "null_score_diff_threshold"})
# Flags that may differ in addition if the run is only evaluated.
_DATA = frozenset({"data_dir", "train_file", "dev_file", "precision", "init_checkpoint"})


def with_saved_flags(options: FineTuningOptions, run: RunFolder) -> FineTuningOptions:
    """Returns the flags for an evaluation: those of the training run where none are given.

    Returns `options` unchanged to train, or if there is no run.

    Raises:
        ValueError: a flag contradicts the run.
    """
    saved = run.read_flags()
    if options.do_train or FINISHED not in saved:
        return options
    values = {}
    for field in dataclasses.fields(options):
        name = field.name
        if name not in saved or name in _FREE | _DATA | LOCATION_FLAGS:
            continue
        value = getattr(options, name)
        if name in _READING and value != field.default:
            continue
        if value not in (field.default, saved[name]):
            raise ValueError(
                f"{run.path} was trained with --{name}={saved[name]}, not {value}: omit the flag"
            )
        values[name] = saved[name]
    return dataclasses.replace(options, **values)


def check_resumable(options: FineTuningOptions, run: RunFolder) -> bool:
    """Returns whether the run in the output folder took all its steps.

    Raises:
        ValueError: the folder holds something else, or a run with different flags.
    """
    saved = run.read_flags()
    if FINISHED not in saved:
        if tf.io.gfile.isdir(run.path) and _names(run.path) - {LOCK, PRECOMPUTED}:
            raise ValueError(
                f"{run.path} is not empty and holds no fine-tuning run: choose another --output_dir"
            )
        return False
    if not run.has_checkpoint():
        return False  # stopped before its first checkpoint: there is nothing to resume
    if "recipe" in saved and not hasattr(options, "recipe"):
        raise ValueError(f"{run.path} holds a run of compress: resume it with the same command")
    run.check_flags(dataclasses.asdict(options), free=_FREE | _READING)
    return saved[FINISHED]


def _names(folder: str) -> set[str]:
    # On gs://, the names of folders end with a slash.
    return {name.rstrip("/") for name in tf.io.gfile.listdir(folder)}
