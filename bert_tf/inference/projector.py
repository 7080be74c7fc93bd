"""Names vectors for the embedding projector of TensorBoard."""

import os

import tensorflow as tf
from google.protobuf import text_format

from tfrecords.files import read_file
from tfrecords.writer import atomic_write


def add_to_projector(vectors: str, labels: str) -> None:
    """Adds files with vectors and their labels to the projector_config.pbtxt of their folder.

    Raises:
        ValueError: the file that is there is damaged.
        OSError: it cannot be read or written.
    """
    # Imported late, because it takes a second.
    from tensorboard.plugins.projector import ProjectorConfig
    from tensorboard.plugins.projector.metadata import PROJECTOR_FILENAME

    folder, name = os.path.split(vectors)
    path = os.path.join(folder, PROJECTOR_FILENAME)
    config = ProjectorConfig()
    if tf.io.gfile.exists(path):
        try:
            text_format.Parse(read_file(path), config)
        except text_format.ParseError as error:
            raise ValueError(f"{path} is damaged ({error}): remove it") from None
    others = [embedding for embedding in config.embeddings if embedding.tensor_path != name]
    del config.embeddings[:]
    config.embeddings.extend(others)
    config.embeddings.add(
        tensor_name=name.removesuffix(".tsv"),
        tensor_path=name,
        metadata_path=os.path.basename(labels),
    )
    atomic_write(path, text_format.MessageToString(config))
