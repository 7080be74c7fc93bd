"""The settings of --grid and their results, for the HParams page of TensorBoard."""

from collections.abc import Mapping

import tensorflow as tf
from tensorboard.plugins.hparams import api

_SUFFIX = ".hparams"

Flags = Mapping[str, float]


def write_hparams(folder: str, metric: str, runs: Mapping[str, tuple[Flags, float, int]]) -> None:
    """Writes the settings to the folder, and to each run its setting and its result.

    Replaces what an earlier call wrote.

    Args:
        folder: the folder of all runs.
        metric: the name of the metric.
        runs: the flags of each run by its folder, the value of its metric and the step of it. Runs
            with the same flags are one row.
    """
    names = next(iter(runs.values()))[0]
    values = {name: sorted({flags[name] for flags, *_ in runs.values()}) for name in names}
    with _writer(folder).as_default():
        flags = [api.HParam(name, api.Discrete(tried)) for name, tried in values.items()]
        api.hparams_config(flags, [api.Metric(metric)])
    for run, (flags, value, step) in runs.items():
        with _writer(f"{folder}/{run}").as_default(step):
            api.hparams(dict(flags))
            tf.summary.scalar(metric, value)


def _writer(folder: str) -> tf.summary.SummaryWriter:
    for name in tf.io.gfile.listdir(folder):
        if name.endswith(_SUFFIX):
            tf.io.gfile.remove(f"{folder}/{name}")
    return tf.summary.create_file_writer(folder, filename_suffix=_SUFFIX)
