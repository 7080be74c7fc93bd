"""Reads the documents of a TensorFlow Datasets (TFDS) dataset."""

from collections.abc import Iterator

import tensorflow as tf


def read_tfds_texts(name: str, data_dir: str | None = None) -> Iterator[bytes]:
    """Yields the feature "text" of every example, in the order in which they are stored.

    Args:
        name: a dataset such as "wikipedia/20230601.en", optionally followed by ":" and a split.
            The default is all of "train".
        data_dir: TFDS's data folder. A missing dataset is downloaded and prepared.

    Raises:
        ValueError: there is no such dataset or split, or it has no string feature "text".
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
    builder.download_and_prepare()
    # Keeps the stored order, and never caches the dataset in memory.
    reading = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    try:
        dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=reading)
    except ValueError as error:
        raise ValueError(f"TFDS dataset {name}, split {split!r}: {error}") from None
    for example in dataset:
        yield example["text"].numpy()
