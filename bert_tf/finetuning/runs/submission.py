"""Collects the predictions of several runs for the GLUE server."""

import io
import zipfile
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.finetuning.tasks.glue import OFFICIAL, SUBMISSION
from bert_tf.runs.run import Run
from tfrecords.files import read_file
from tfrecords.progress import counted
from tfrecords.writer import atomic_write


def write_submission(runs: Iterable[str], output_file: str) -> tuple[list[str], list[str]]:
    """Zips the files for the server in the output folders of run_finetuning.

    Returns the names of the files in the zip file and of those that are missing.
    """
    paths = {}
    for run in runs:
        found = [name for name in SUBMISSION if tf.io.gfile.exists(f"{run}/{name}")]
        if not found:
            if best := Run(run).best_of_several():
                raise ValueError(
                    f"{run} holds several runs: use one of them, such as the best, {best}"
                )
            raise ValueError(
                f"{run} holds no predictions for a GLUE test set: run_finetuning --task=TASK "
                f"--do_predict --output_dir={run} writes them"
            )
        for name in found:
            path = f"{run}/{name}"
            if name in paths:
                raise ValueError(f"{paths[name]} and {path} are for the same task: choose one")
            paths[name] = path
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in filter(paths.get, SUBMISSION):
            zipped.writestr(name, _read_whole(paths[name], name))
    atomic_write(output_file, archive.getvalue())
    return [*filter(paths.get, SUBMISSION)], [name for name in SUBMISSION if name not in paths]


def _read_whole(path: str, name: str) -> str:
    """Returns the text of a file that predicts every example of its test set once."""
    text = read_file(path).decode(errors="replace")
    lines, count = text.splitlines()[1:], SUBMISSION[name]
    for number, line in enumerate(lines, start=2):
        where, label = f"{path}, line {number:,}", line.partition("\t")[2]
        if not label.strip():
            raise ValueError(f"{where} has no prediction: predict the test set")
        try:
            OFFICIAL[name].target(label)
        except ValueError as error:
            raise ValueError(f"{where}: prediction {error}") from None
    if sorted(line.partition("\t")[0] for line in lines) != sorted(map(str, range(count))):
        raise ValueError(
            f"{path} has {counted(len(lines), 'prediction')}, but the official test set has "
            f"{count:,} examples with the indices 0 to {count - 1}: predict the whole official file"
        )
    return text
