"""Oracles: the examples of each unit of work made directly; bytes of files compared."""

import pytest
import tensorflow as tf

from bert_tf.pretraining import local
from bert_tf.pretraining.documents import (
    TextCounts,
    chunk_documents,
    read_lines,
    tokenized_documents,
)
from bert_tf.pretraining.local import write_examples
from bert_tf.pretraining.pipeline import Settings, make_examples, unit_seed
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.text.vocab import Vocabulary
from tfrecords.features import ORIGINAL_NAMES, serialize_examples

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"))
SETTINGS = Settings(VOCAB, 16, 3)


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCAB)


@pytest.fixture
def text(tmp_path, monkeypatch) -> str:
    monkeypatch.setattr(local, "CHUNK_TOKENS", 60)
    letters = "abcdefghij"
    documents = [
        "\n".join(" ".join(letters[: 1 + (d * s) % 9]) for s in range(6)) for d in range(1, 21)
    ]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents))
    return str(path)


def _records(path) -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def _write(text, path, tokenizer, **kwargs):
    return write_examples([text], [str(path)], tokenizer, SETTINGS, dupe_factor=3, **kwargs)


@pytest.mark.parametrize("shuffle_bytes", [0, 5000, 2**26])
def test_the_examples_are_those_of_all_units_each_once(
    tmp_path, text, tokenizer, monkeypatch, shuffle_bytes
):
    monkeypatch.setattr(local, "SHUFFLE_BYTES", shuffle_bytes)
    statistics = _write(text, tmp_path / "out", tokenizer, seed=5)
    documents = tokenized_documents(read_lines([text], TextCounts()), tokenizer, TextCounts())
    chunks = list(chunk_documents(documents, 60))
    assert len(chunks) > 3
    expected = []
    for index, chunk in enumerate(chunks):
        for dupe in range(3):
            arrays, _ = make_examples(chunk, unit_seed(5, index, dupe), SETTINGS)
            arrays = {ORIGINAL_NAMES.get(name, name): value for name, value in arrays.items()}
            expected += serialize_examples(arrays)
    found = _records(tmp_path / "out")
    assert sorted(found) == sorted(expected)
    assert found != expected
    assert statistics.examples.examples == len(expected)
    assert (statistics.text.documents, statistics.text.sentences) == (20, 120)


def test_same_seed_same_bytes(tmp_path, text, tokenizer):
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        _write(text, tmp_path / name, tokenizer, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_copies_of_a_text_lie_apart(tmp_path, text, tokenizer, monkeypatch):
    # Without a shuffle buffer: only the order of the units of work mixes the corpus.
    monkeypatch.setattr(local, "_shuffled", lambda units, rng: (r for unit in units for r in unit))
    order = []
    monkeypatch.setattr(
        local, "unit_seed", lambda *seed: order.append(seed[1:]) or unit_seed(*seed)
    )
    _write(text, tmp_path / "out", tokenizer)
    chunks = 1 + max(chunk for chunk, _ in order)
    assert sorted(order) == [(chunk, dupe) for chunk in range(chunks) for dupe in range(3)]
    in_a_row = sum(one[0] == two[0] for one, two in zip(order, order[1:], strict=False))
    assert in_a_row < len(order) / 3 and order != sorted(order, key=lambda unit: unit[::-1])
