"""Oracles: rows put together piece by piece from the same pairs, and the counts of the arrays."""

import numpy as np
import pytest

from bert_tf.pretraining.documents import Chunk
from bert_tf.pretraining.pairs import next_sentence_pairs
from bert_tf.pretraining.pipeline import ExampleCounts, Settings, make_examples, unit_seed
from bert_tf.text.vocab import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = tuple("abcdefghijklmnopqrst") + tuple("##" + letter for letter in "uvwxyz")
VOCAB = Vocabulary((*SPECIAL, *WORDS))


@pytest.fixture
def chunk() -> Chunk:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, 300)
    pieces = rng.integers(5, len(VOCAB), lengths.sum(), np.int32)
    return Chunk(
        pieces=pieces,
        unit_starts=pieces < len(VOCAB) - 6,
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]),
        document_starts=np.array([0, 1, 20, 150, 300]),
    )


@pytest.mark.parametrize("masking", ["wordpiece", "whole_word", "ngram", "span", "entity"])
def test_rows_are_the_pairs_between_special_tokens(chunk, masking):
    settings = Settings(VOCAB, 24, 5, short_seq_prob=0.5, masking=masking)
    arrays, counts = make_examples(chunk, None, unit_seed(7, 1, 2), settings)
    # The pairs are the first thing drawn from the seed.
    pairs = next_sentence_pairs(chunk, 21, 0.5, np.random.default_rng(unit_seed(7, 1, 2)))
    assert counts.examples == len(pairs.a_start) > 50
    for row in range(counts.examples):
        a = chunk.pieces[pairs.a_start[row] : pairs.a_end[row]].tolist()
        b = chunk.pieces[pairs.b_start[row] : pairs.b_end[row]].tolist()
        ids = [VOCAB.cls_id, *a, VOCAB.sep_id, *b, VOCAB.sep_id]
        padding = [0] * (24 - len(ids))
        found = arrays["input_word_ids"][row].copy()
        real = arrays["masked_lm_weights"][row] > 0
        found[arrays["masked_lm_positions"][row][real]] = arrays["masked_lm_ids"][row][real]
        assert found.tolist() == ids + padding
        assert arrays["input_mask"][row].tolist() == [1] * len(ids) + padding
        type_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert arrays["input_type_ids"][row].tolist() == type_ids + padding
        assert arrays["next_sentence_labels"][row].tolist() == [int(pairs.labels[row])]


def test_counts_are_those_of_the_arrays(chunk):
    arrays, counts = make_examples(chunk, None, unit_seed(7, 1, 2), Settings(VOCAB, 24, 5))
    assert counts.tokens == arrays["input_mask"].sum()
    assert counts.predictions == arrays["masked_lm_weights"].sum()
    assert counts.random_next == arrays["next_sentence_labels"].sum()
    assert 0 < counts.cut_pairs <= counts.cut_tokens
    assert counts + counts == ExampleCounts(*(2 * value for value in vars(counts).values()))
    shapes = {name: values.shape for name, values in arrays.items()}
    rows = counts.examples
    assert shapes == {
        "input_word_ids": (rows, 24),
        "input_mask": (rows, 24),
        "input_type_ids": (rows, 24),
        "masked_lm_positions": (rows, 5),
        "masked_lm_ids": (rows, 5),
        "masked_lm_weights": (rows, 5),
        "next_sentence_labels": (rows, 1),
    }


def test_seeds_decide(chunk):
    settings = Settings(VOCAB, 24, 5)

    def ids(*seed: int) -> bytes:
        return make_examples(chunk, None, unit_seed(*seed), settings)[0]["input_word_ids"].tobytes()

    assert ids(1, 2, 3) == ids(1, 2, 3)
    assert len({ids(1, 2, 3), ids(1, 2, 4), ids(1, 3, 3), ids(2, 2, 3), ids(1, 0, 0)}) == 5


def test_one_sentence_gives_no_example_but_arrays_all_the_same():
    chunk = Chunk(np.array([5], np.int32), np.array([True]), np.array([0, 1]), np.array([0, 1]))
    arrays, counts = make_examples(chunk, None, unit_seed(1, 0, 0), Settings(VOCAB, 24, 5))
    assert counts == ExampleCounts(documents_without_pairs=1)
    assert {values.shape[0] for values in arrays.values()} == {0}


def test_the_shortest_sequence(chunk):
    arrays, _ = make_examples(chunk, None, unit_seed(1, 0, 0), Settings(VOCAB, 5, 1))
    assert np.all(arrays["input_mask"] == 1)
    assert np.all(arrays["masked_lm_weights"] == 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(max_seq_length=4), "max_seq_length is 4: .* from 5"),
        (dict(max_predictions_per_seq=0), "max_predictions_per_seq is 0"),
        (dict(masked_lm_prob=0.0), "masked_lm_prob is 0.0"),
        (dict(masked_lm_prob=15.0), "masked_lm_prob is 15.0"),
        (dict(short_seq_prob=-0.1), "short_seq_prob is -0.1"),
    ],
)
def test_useless_settings_are_errors(change, message):
    with pytest.raises(ValueError, match=message):
        Settings(VOCAB, **change)
