"""Collects the predictions of several runs for the GLUE server."""

import io
import zipfile
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.finetuning.tasks.glue import SUBMISSION
from tfrecords.progress import counted
from tfrecords.writer import atomic_write


def write_submission(runs: Iterable[str], output_file: str) -> tuple[list[str], list[str]]:
    """Zips the files for the server in the output folders of run_finetuning.

    Returns:
        the names of the files in the zip file and of those that are missing.

    Raises:
        ValueError: a folder has no such file, two folders have the same one, or a file does not
            cover its test set.
        OSError: a file cannot be read or written.
    """
    paths = {}
    for run in runs:
        found = [name for name in SUBMISSION if tf.io.gfile.exists(f"{run}/{name}")]
        if not found:
            raise ValueError(
                f"{run} holds no predictions for a GLUE test set: run_finetuning --do_predict "
                f"--output_dir={run} writes them"
            )
        for name in found:
            path = f"{run}/{name}"
            if name in paths:
                raise ValueError(f"{paths[name]} and {path} are for the same task: choose one")
            paths[name] = path
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in SUBMISSION:
            if name in paths:
                zipped.writestr(name, _read_whole(paths[name], SUBMISSION[name]))
    atomic_write(output_file, archive.getvalue())
    return (
        [name for name in SUBMISSION if name in paths],
        [name for name in SUBMISSION if name not in paths],
    )


def _read_whole(path: str, count: int) -> str:
    """Returns the text of a file that predicts the examples 0 to `count` - 1, each once."""
    with tf.io.gfile.GFile(path, "rb") as file:
        text = file.read().decode(errors="replace")
    lines = text.splitlines()[1:]
    for number, line in enumerate(lines, start=2):
        if not line.partition("\t")[2].strip():
            raise ValueError(f"{path}, line {number:,} has no prediction: predict the test set")
    if sorted(line.partition("\t")[0] for line in lines) != sorted(map(str, range(count))):
        raise ValueError(
            f"{path} has {counted(len(lines), 'prediction')}, but the official test set has "
            f"{count:,} examples with the indices 0 to {count - 1}: predict the whole official file"
        )
    return text
