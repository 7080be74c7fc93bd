"""Evaluation results for people, for scripts and for TensorBoard."""

from collections.abc import Mapping

import tensorflow as tf
from tqdm import tqdm

from tfrecords.writer import atomic_write


def write_results(
    path: str, results: Mapping[str, float], writer: tf.summary.SummaryWriter
) -> None:
    """Writes `key = value` lines to `path`, as google-research/bert does, and shows them.

    Args:
        results: the figures; `global_step` among them dates them in TensorBoard.
        writer: of the TensorBoard scalars.
    """
    lines = [f"{key} = {value}" for key, value in sorted(results.items())]
    atomic_write(path, "\n".join(lines) + "\n")
    with writer.as_default(results["global_step"]):
        for key, value in results.items():
            if key != "global_step":
                tf.summary.scalar(key, value)
    writer.flush()
    # Above the progress bar, should there be one.
    tqdm.write("evaluation: " + ", ".join(f"{k} {v:.6g}" for k, v in sorted(results.items())))
