"""A small corpus of letters, and the flags to make examples of it."""

import pytest

from bert_tf.create_pretraining_data import Options

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghij"


@pytest.fixture
def folder(tmp_path):
    """Holds vocab.txt, and text-0.txt and text-1.txt with 30 documents of six lines."""
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS]))
    documents = [
        "\n".join(" ".join(LETTERS[: 1 + (d * s) % 9]) for s in range(6)) for d in range(1, 31)
    ]
    for part in range(2):
        (tmp_path / f"text-{part}.txt").write_text("\n\n".join(documents[part::2]))
    return tmp_path


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
