"""Reads the documents of a TensorFlow Datasets (TFDS) dataset."""

import urllib.parse
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.base.files import errors_at
from bert_tf.base.progress import shows_bars

_SECONDS_TO_ANSWER = 5


def read_tfds_texts(name: str, data_dir: str | None = None) -> Iterator[bytes]:
    """Yields the feature "text" of every example, in the order in which they are stored.

    The name of a dataset, such as "wikipedia/20230601.en", may be followed by ":" and a split; the
    default is all of "train". A dataset that is missing in `data_dir` is downloaded and prepared.
    """
    # The import takes half a second and few runs need it.
    import tensorflow_datasets as tfds

    name, _, split = name.partition(":")
    split = split or "train"
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise ValueError(f"no TFDS dataset {name!r}: {str(error).splitlines()[0]}") from None
    specs = builder.info.features.get_tensor_spec()
    if not isinstance(specs, dict) or specs.get("text") != tf.TensorSpec((), tf.string):
        raise ValueError(f"the TFDS dataset {name} has no string feature 'text': choose another")
    prepare_dataset(builder)
    # Keeps the stored order, and never caches the dataset in memory.
    reading = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    with errors_at(f"TFDS dataset {name}, split {split!r}"):
        dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=reading)
    for example in dataset:
        yield example["text"].numpy()


def prepare_dataset(builder: "tfds.core.DatasetBuilder") -> None:  # noqa: F821
    """Downloads and prepares a TFDS dataset unless it is there."""
    if builder.is_prepared():
        return
    import tensorflow_datasets as tfds

    _check_network(builder)
    if not shows_bars():
        tfds.disable_progress_bar()
    builder.download_and_prepare()


def _check_network(builder: "tfds.core.DatasetBuilder") -> None:  # noqa: F821
    # TFDS itself would try again for more than a minute.
    import requests

    addresses = {urllib.parse.urlsplit(url).netloc: url for url in builder.url_infos or ()}
    for url in addresses.values():
        try:
            requests.head(url, timeout=_SECONDS_TO_ANSWER)
            return
        except requests.RequestException:
            continue
    if addresses:
        raise OSError(
            f"cannot download TFDS {builder.info.full_name}: {', '.join(sorted(addresses))} cannot "
            "be reached: check the network, or name a folder that holds the data"
        )
