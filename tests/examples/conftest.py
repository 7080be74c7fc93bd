"""A small corpus of letters, and the flags to make examples of it."""

import pathlib
import shutil

import pytest

from bert_tf.create_pretraining_data import Options
from bert_tf.examples.job import with_defaults
from tfrecords.vocabulary import SPECIAL_TOKENS

LETTERS = "abcdefghij"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *LETTERS]))
    documents = [
        "\n".join(" ".join(LETTERS[: 1 + (d * s) % 9]) for s in range(6)) for d in range(1, 31)
    ]
    for part in range(2):
        (folder / f"text-{part}.txt").write_text("\n\n".join(documents[part::2]))
    return folder


@pytest.fixture
def folder(corpus) -> pathlib.Path:
    """Holds vocab.txt, text-0.txt and text-1.txt; manifests contain its path, which is the same."""
    folder = corpus.with_name("folder")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(corpus, folder)
    return folder


@pytest.fixture
def options(folder):
    """Returns a function from changed flags to `Options` for three shards in `folder`/out."""

    def make(**changes) -> Options:
        flags = dict(
            input_file=f"{folder}/text-*.txt",
            output_file=f"{folder}/out/data.tfrecord",
            num_shards=3,
            vocab_file=f"{folder}/vocab.txt",
            max_seq_length=16,
            max_predictions_per_seq=3,
            dupe_factor=4,
            num_workers=1,
        )
        return Options(**flags | changes)

    return make


@pytest.fixture(scope="session")
def settings():
    """Returns a function from flags to `Options` with all defaults, for text in memory."""

    def make(**flags) -> Options:
        files = dict(input_file="text.txt", output_file="out.tfrecord", vocab_file="vocab.txt")
        lengths = dict(max_seq_length=24, max_predictions_per_seq=5)
        return with_defaults(Options(**files | lengths | flags))

    return make
