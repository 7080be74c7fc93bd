"""Batches, against the packing of every example by itself."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import encode, eval_batches, train_batches
from bert_tf.finetuning.task import Examples
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.packing import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

TOKENIZER = WordPieceTokenizer(
    Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"))
)
LONGEST = 40
NAMES = ("input_word_ids", "input_mask", "input_type_ids")


def make_examples(count: int = 53, pairs: bool = True) -> Examples:
    random = np.random.default_rng(0)

    def text() -> bytes:
        return " ".join(random.choice(list("abcdefghij"), random.integers(1, 30))).encode()

    texts_b = [text() for _ in range(count)] if pairs else None
    # The label is the example's number, so that it can be told.
    return Examples([text() for _ in range(count)], texts_b, np.arange(count, dtype=np.int32))


def packed(examples: Examples) -> dict[str, np.ndarray]:
    columns = [texts for texts in examples[:2] if texts is not None]
    segments = [TOKENIZER.tokenize_flat(texts) for texts in columns]
    values = pack_segments(segments, LONGEST, TOKENIZER.vocab)
    return {name: values[name].numpy() for name in NAMES}


def assert_rows(batch: dict, expected: dict[str, np.ndarray]) -> None:
    """Every row is its example's, padded to the batch's own length."""
    length = batch["input_word_ids"].shape[1]
    real = batch["example_weights"] == 1
    # The rows that only fill the batch are copies of some example.
    longest = expected["input_mask"][batch["labels"]].sum(axis=1).max()
    labels = batch["labels"][real]
    assert length in (min(-(-longest // 16) * 16, LONGEST), LONGEST)
    for name in NAMES:
        np.testing.assert_array_equal(batch[name][real], expected[name][labels][:, :length])
        assert not expected[name][labels][:, length:].any()


@pytest.mark.parametrize("pairs", [True, False])
def test_eval_batches_hold_every_example_once(pairs):
    examples = make_examples(pairs=pairs)
    batches = list(eval_batches(encode(examples, TOKENIZER, LONGEST, ""), 8).as_numpy_iterator())
    for batch in batches:
        assert_rows(batch, packed(examples))
    assert {len(batch["labels"]) for batch in batches} == {8}
    assert len({batch["input_word_ids"].shape[1] for batch in batches}) > 1
    seen = np.concatenate([batch["labels"][batch["example_weights"] == 1] for batch in batches])
    assert sorted(seen) == list(range(53))
    assert sum(batch["example_weights"].sum() for batch in batches) == 53


def test_train_batches_are_shuffled_anew_each_epoch_and_can_be_continued():
    examples = make_examples(48)
    encoded = encode(examples, TOKENIZER, LONGEST, "")

    def take(seed: int = 5, skip: int = 0) -> list[dict]:
        batches = train_batches(encoded, 8, seed, skip).as_numpy_iterator()
        return list(itertools.islice(batches, 12 - skip // 8))

    batches = take()
    for batch in batches:
        assert_rows(batch, packed(examples))
    labels = np.stack([batch["labels"] for batch in batches])
    first, second = labels[:6].flatten(), labels[6:].flatten()
    assert sorted(first) == sorted(second) == list(range(48))
    assert first.tolist() != second.tolist() != list(range(48))
    tf.nest.map_structure(np.testing.assert_array_equal, take(), batches)
    tf.nest.map_structure(np.testing.assert_array_equal, take(skip=40), batches[5:])
    assert take(seed=6)[0]["labels"].tolist() != labels[0].tolist()


def test_static_length_is_known_to_the_graph():
    encoded = encode(make_examples(), TOKENIZER, LONGEST, "")
    dataset = eval_batches(encoded, 8, static_length=True)
    assert dataset.element_spec["input_word_ids"].shape == [8, LONGEST]
    for batch in dataset.as_numpy_iterator():
        assert_rows(batch, packed(make_examples()))


def test_padding_does_not_change_the_logits():
    config = BertConfig(15, 16, 2, 2, 32, max_position_embeddings=LONGEST)
    model = BertTaskModel(config, 3)
    examples = make_examples()
    expected = model(packed(examples)).numpy()
    for batch in eval_batches(encode(examples, TOKENIZER, LONGEST, ""), 16).as_numpy_iterator():
        real = batch["example_weights"] == 1
        logits = model(batch).numpy()[real]
        np.testing.assert_allclose(logits, expected[batch["labels"][real]], atol=1e-6)


def test_counts_truncated_and_broken_texts():
    texts = [b"a b c d e", b"a b c d e f", b"a \xff b", "é".encode()]
    examples = Examples(texts, None, np.zeros(4, np.int32))
    encoded = encode(examples, TOKENIZER, max_seq_length=7, description="")
    assert (encoded.truncated, encoded.not_utf8) == (1, 1)
    pairs = Examples(texts, [b"a", b"", b"", b"a b c d"], np.zeros(4, np.int32))
    assert encode(pairs, TOKENIZER, max_seq_length=8, description="").truncated == 2
