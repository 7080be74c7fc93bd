"""Batches, compared with packing each example alone; windows over long texts."""

import dataclasses

import joblib
import numpy as np
import pytest
import tensorflow as tf
from support import calls_of

from bert_tf.finetuning import tokenizing as features
from bert_tf.finetuning.batches import eval_batches, padded_lengths, train_batches
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.tokenizing import _packer, encode_texts, make_windows, train_order
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENIZER = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, *"abcdefghij")))
LONGEST = 40
NAMES = ("input_word_ids", "input_mask", "input_type_ids")


def make_examples(count: int = 53, pairs: bool = True) -> TextExamples:
    random = np.random.default_rng(0)

    def text() -> bytes:
        return " ".join(random.choice(list("abcdefghij"), random.integers(1, 30))).encode()

    texts_b = [text() for _ in range(count)] if pairs else None
    # An example's label is its number.
    labels = np.arange(count, dtype=np.int32)
    return TextExamples([text() for _ in range(count)], texts_b, {"labels": labels})


def packed(examples: TextExamples) -> dict[str, np.ndarray]:
    columns = [texts for texts in (examples.texts_a, examples.texts_b) if texts is not None]
    segments = [TOKENIZER.tokenize_flat(texts) for texts in columns]
    values = pack_segments(segments, LONGEST, TOKENIZER.vocab)
    return {name: values[name].numpy() for name in NAMES}


def assert_rows(batch: dict, expected: dict[str, np.ndarray]) -> None:
    """Every row is its example, padded to the length of the batch."""
    length = batch["input_word_ids"].shape[1]
    real = batch["example_weights"] == 1
    np.testing.assert_array_equal(batch["example_index"], np.where(real, batch["labels"], -1))
    # Rows that only fill the batch are copies of some example.
    longest = expected["input_mask"][batch["labels"]].sum(axis=1).max()
    labels = batch["labels"][real]
    assert length in (min(-(-longest // 8) * 8, LONGEST), LONGEST)
    for name in NAMES:
        np.testing.assert_array_equal(batch[name][real], expected[name][labels][:, :length])
        assert not expected[name][labels][:, length:].any()


@pytest.mark.parametrize(("pairs", "device"), [(True, "CPU"), (False, "CPU"), (True, "TPU")])
def test_eval_batches_hold_every_example_once(pairs, device, monkeypatch):
    """Oracle: every example packed alone. The graph knows a static length."""
    monkeypatch.setattr(features, "_TEXTS_PER_CALL", 4)
    examples = make_examples(pairs=pairs)
    dataset = eval_batches(encode_texts(examples, TOKENIZER, LONGEST), 8, device=device)
    static = LONGEST if device == "TPU" else None
    assert dataset.element_spec["input_word_ids"].shape[1] == static
    batches, expected = list(dataset.as_numpy_iterator()), packed(examples)
    for batch in batches:
        assert_rows(batch, expected)
    assert {len(batch["labels"]) for batch in batches} == {8}
    assert (len({batch["input_word_ids"].shape[1] for batch in batches}) > 1) == (not static)
    seen = np.concatenate([batch["labels"][batch["example_weights"] == 1] for batch in batches])
    assert sorted(seen) == list(range(53))
    assert sum(batch["example_weights"].sum() for batch in batches) == 53


def test_train_batches_follow_the_order_and_can_be_continued():
    """Oracles: `train_order`; every example packed alone."""
    examples = make_examples()
    encoded, expected = encode_texts(examples, TOKENIZER, LONGEST), packed(examples)

    def take(skip: int = 0) -> list[dict]:
        return list(train_batches(encoded, 8, range(skip, 12), seed=5).as_numpy_iterator())

    batches = take()
    for batch in batches:
        assert_rows(batch, expected)
    seen = np.concatenate([batch["example_index"] for batch in batches])
    np.testing.assert_array_equal(seen, train_order(len(encoded), 8, 12, 5))
    tf.nest.map_structure(np.testing.assert_array_equal, take(skip=5), batches[5:])


@pytest.mark.parametrize(("count", "batch_size"), [(1, 4), (53, 8), (1000, 8), (4001, 32)])
def test_training_order_holds_every_example_once_per_epoch(count, batch_size):
    """Oracles: counting; NumPy's shuffled order, to which no example's length matters."""
    num_batches = -(-3 * count // batch_size)
    order = train_order(count, batch_size, num_batches, seed=1)
    assert order.shape == (num_batches * batch_size,)
    for epoch in range(3):
        assert sorted(order[epoch * count :][:count]) == list(range(count))
    np.testing.assert_array_equal(order[:count], np.random.default_rng((1, 0)).permutation(count))
    assert (train_order(count, batch_size, num_batches, seed=1) == order).all()
    if count > 53:
        assert (train_order(count, batch_size, num_batches, seed=2) != order).any()
        assert (order[:count] != order[count:][:count]).any()


@pytest.mark.parametrize("pipelines", [1, 2])
def test_replicas_of_a_step_share_its_length_and_its_rows(pipelines):
    """Oracle: the batches of one replica."""
    encoded = encode_texts(make_examples(), TOKENIZER, LONGEST)
    whole = list(eval_batches(encoded, 8).as_numpy_iterator())
    contexts = [tf.distribute.InputContext(pipelines, index, 4) for index in range(pipelines)]
    streams = [eval_batches(encoded, 8, context=c).as_numpy_iterator() for c in contexts]
    for expected in whole:
        parts = [next(stream) for stream in streams for _ in range(4 // pipelines)]
        length = expected["input_word_ids"].shape[1]
        assert {part["input_word_ids"].shape for part in parts} == {(2, length)}
        indices = np.concatenate([part["example_index"] for part in parts])
        assert sorted(indices) == sorted(expected["example_index"])
    assert not any(list(stream) for stream in streams)


def test_targets_per_token_are_padded_with_minus_one():
    """Oracle: the ids themselves as targets."""
    encoded = encode_texts(make_examples(), TOKENIZER, LONGEST)
    encoded = dataclasses.replace(encoded, targets={"copy": encoded.ids})
    for batch in eval_batches(encoded, 8).as_numpy_iterator():
        expected = np.where(batch["input_mask"], batch["input_word_ids"], -1)
        np.testing.assert_array_equal(batch["copy"], expected)
        assert "mean_tags" not in batch


def test_training_batches_say_how_many_tags_an_example_has():
    """Oracle: the lengths of all examples; tags of -1 do not count."""
    encoded = encode_texts(make_examples(), TOKENIZER, LONGEST)
    (batch,) = train_batches(encoded, 8, range(1), seed=0).as_numpy_iterator()
    assert "mean_tags" not in batch
    targets = encoded.ids.with_values(tf.where(encoded.ids.values == 2, -1, encoded.ids.values))
    encoded = dataclasses.replace(encoded, targets={"tags": targets})
    (batch,) = train_batches(encoded, 8, range(1), seed=0).as_numpy_iterator()
    expected = np.sum(targets.values.numpy() >= 0) / 53
    assert batch["mean_tags"].dtype == np.float32
    assert batch["mean_tags"] == pytest.approx([expected] * 8)


def test_equal_tokenizers_share_the_function_that_packs():
    """Oracle: the function itself; it takes seconds to trace."""
    vocab = Vocabulary((*TOKENIZER.vocab.tokens,))
    shared = _packer(TOKENIZER, LONGEST, 1)
    assert _packer(WordPieceTokenizer(vocab), LONGEST, 1) is shared
    for other in (
        WordPieceTokenizer(vocab, lower_case=False),
        WordPieceTokenizer(vocab, special_tokens_in_text=True),
        WordPieceTokenizer(Vocabulary((*vocab.tokens, "k"))),
    ):
        assert _packer(other, LONGEST, 1) is not shared


def test_counts_truncated_and_broken_texts(monkeypatch):
    monkeypatch.setattr(features, "_TEXTS_PER_CALL", 1)
    texts = [b"a b c d e", b"a b c d e f", b"a \xff b", "é".encode()]
    encoded = encode_texts(TextExamples(texts, None, {}), TOKENIZER, max_seq_length=7)
    cut, broken = encoded.notes
    assert cut == "1 (25.0%) truncated to 7 tokens"
    assert broken == "1 with bytes that are not UTF-8, which were dropped"
    assert encoded.advice(None) is encoded.advice(7) is None
    assert encoded.advice(8).startswith("The encoder can read 8 tokens: ")
    pairs = TextExamples(texts, [b"a", b"", b"", b"a b c d"], {})
    assert encode_texts(pairs, TOKENIZER, max_seq_length=8).num_truncated == 2


@pytest.mark.parametrize(
    ("text", "covered", "warns"),
    [
        ("a bc a. b b b b b b", "1.1 tokens per word, 0.0% [UNK]", False),
        ("d" + " b" * 19, "1.0 tokens per word, 5.0% [UNK]", False),
        ("d" + " b" * 18, "1.0 tokens per word, 5.3% [UNK]", True),
        ("bc bcc", "2.5 tokens per word, 0.0% [UNK]", False),
        ("bcc bcc", "3.0 tokens per word, 0.0% [UNK]", True),
        ("", "0.0 tokens per word, 0.0% [UNK]", False),
    ],
)
def test_how_the_vocabulary_covers_the_texts(text, covered, warns):
    """Oracle: by hand; "##c" continues a word, and a full stop is one."""
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "a", "b", "##c", ".")))
    found = encode_texts(TextExamples([text.encode()], None, {}), tokenizer, 32).describe()
    facts, *warning = found.split("\n")
    assert facts.startswith(f"1 example, {covered}")
    assert [covered in line and line.startswith("WARNING: ") for line in warning] == [True] * warns


def test_texts_are_tokenized_on_the_cores_that_the_process_may_use(monkeypatch):
    """Oracle: the quota of a container, which the machine's number of cores exceeds."""
    pool = calls_of(monkeypatch, features, "ThreadPoolExecutor")
    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    encode_texts(make_examples(2), TOKENIZER, LONGEST)
    assert [call.args for call in pool] == [(3,)]


def test_the_lengths_that_each_kind_of_device_is_given():
    """Oracles: by hand; the longest length allowed is 40."""
    examples = dataclasses.replace(
        encode_texts(make_examples(5), TOKENIZER, LONGEST),
        ids=tf.ragged.constant([[0] * length for length in (3, 8, 9, 33, 40)]),
    )
    for device, expected in {
        "CPU": [8, 8, 16, 40, 40],
        "GPU": [4, 8, 16, 40, 40],
        "TPU": [40] * 5,
    }.items():
        assert padded_lengths(examples, device).tolist() == expected


@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_every_token_is_predicted_once_with_the_most_context(size):
    """Oracle: the windows of each text and the contexts of its tokens, counted one by one."""
    lengths = [0, 1, size, size + 1, 2 * size, 29]
    splits = np.append(0, np.cumsum(lengths))
    windows = make_windows(tf.constant(splits), size)
    rows = list(zip(*(values.to_list() for values in windows), strict=True))
    central = [p for positions, are in rows for p, is_ in zip(positions, are, strict=True) if is_]
    assert central == list(range(splits[-1]))
    for begin, end in zip(splits, splits[1:], strict=False):
        own = [row for row in rows if row[0] and begin <= row[0][0] < end]
        assert all(row[0] == list(range(row[0][0], row[0][-1] + 1)) for row in own)
        assert {len(row[0]) for row in own} <= {min(size, end - begin)}
        for token in range(begin, end):
            contexts = {True: [], False: []}
            for positions, are in own:
                if token in positions:
                    place = positions.index(token)
                    contexts[are[place]].append(min(place, len(positions) - 1 - place))
            assert contexts[True] >= [max(contexts[False], default=0)]
