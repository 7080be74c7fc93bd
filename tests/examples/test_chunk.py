"""Tests chunks. Oracles: round trips, and a chunk made of the documents of two."""

import numpy as np
import pytest

from bert_tf.examples.chunk import Chunk, join_chunks, load_chunk, save_chunk


@pytest.mark.parametrize("largest", [5, 65535, 65536])
@pytest.mark.parametrize("size", [0, 1, 9, 70000])
def test_saved_chunks(tmp_path, largest, size):
    rng = np.random.default_rng(size)
    token_ids = rng.integers(0, largest, size, np.int32, endpoint=True)
    token_ids[size // 2 :] = largest
    sentence_starts = np.unique([0, *rng.integers(0, size + 1, 2), size])
    sentences = len(sentence_starts) - 1
    chunk = Chunk(token_ids, rng.random(size) < 0.5, sentence_starts, np.unique([0, sentences]))
    path = str(tmp_path / "folder" / "chunk.npz")
    save_chunk(path, chunk)
    loaded = load_chunk(path)
    for name, array in vars(chunk).items():
        np.testing.assert_array_equal(getattr(loaded, name), array, strict=True)
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["chunk.npz"]
    bytes_per_token = 2.2 if largest < 65536 else 4.2
    assert (tmp_path / "folder" / "chunk.npz").stat().st_size < 1500 + bytes_per_token * size


def test_a_missing_chunk_is_an_error(tmp_path):
    with pytest.raises(OSError, match="cannot read .*missing.npz"):
        load_chunk(str(tmp_path / "missing.npz"))


def test_joined_chunks_have_the_documents_of_both():
    """Oracle: documents of sentences of 3, 3; 2 and of 1, 1; 4 tokens, written as one chunk."""
    first = Chunk(np.arange(8), np.ones(8, bool), np.array([0, 3, 6, 8]), np.array([0, 2, 3]))
    unit_starts = np.array([True, False, True, True, True, True])
    second = Chunk(np.arange(8, 14), unit_starts, np.array([0, 1, 2, 6]), np.array([0, 2, 3]))
    joined = join_chunks(first, second)
    expected = Chunk(
        np.arange(14),
        np.append(np.ones(8, bool), unit_starts),
        np.array([0, 3, 6, 8, 9, 10, 14]),
        np.array([0, 2, 3, 5, 6]),
    )
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(joined, name), values, strict=True)
