"""Packing against the original's truncation; `BertPreprocessor` against its two parts."""

import itertools

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from bert_tf.text.bert_preprocessor import BertPreprocessor, pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

PAD, UNK, CLS, SEP, MASK = range(5)
# U+2028 is a token of bert-base-chinese.
VOCAB = Vocabulary((*SPECIAL_TOKENS, "\u2028", "A", "É", "中", *"abcde", "##b", "##É"))
TEXTS = ["A b", "", "ÉÉ 中abc", "a b c d e a b c"]
OTHERS = ["b", "c d e a b", "", "e d c b a"]


def assert_equal(actual: dict, expected: dict) -> None:
    assert set(actual) == set(expected)
    for name in expected:
        assert actual[name].dtype == tf.int32
        np.testing.assert_array_equal(actual[name], expected[name])


@pytest.mark.parametrize(
    ("texts", "lower_case"), [([TEXTS], False), ([TEXTS, OTHERS], True)], ids=["single", "pairs"]
)
def test_equals_tokenizer_and_packing(texts, lower_case):
    """Oracle: `WordPieceTokenizer` and `pack_segments`."""
    layer = BertPreprocessor(VOCAB.tokens, lower_case=lower_case, seq_length=9)
    tokenizer = WordPieceTokenizer(VOCAB, lower_case)
    expected = pack_segments([tokenizer.tokenize_flat(x) for x in texts], 9, VOCAB)
    assert_equal(layer(*texts), expected)
    for other in (
        np.array,
        lambda x: np.array(x, object),
        pd.Series,
        lambda x: pd.Series(x, dtype=object),
    ):
        assert_equal(layer(*map(other, texts)), expected)
    for alone in (str, tf.constant):
        first = {name: x[:1] for name, x in expected.items()}
        assert_equal(layer(*(alone(x[0]) for x in texts)), first)
    batches = tf.data.Dataset.from_tensors(tuple(map(tf.constant, texts))).map(layer)
    assert_equal(next(iter(batches)), expected)
    symbolic = layer(*[keras.Input([], dtype="string") for _ in texts])
    found = {name: (x.shape, x.dtype) for name, x in symbolic.items()}
    assert found == dict.fromkeys(expected, ((None, 9), "int32"))
    assert_equal(BertPreprocessor.from_config(layer.get_config())(*texts), expected)


@pytest.mark.slow
def test_datasets_hold_what_calls_return():
    """Oracle: the layer; the labels and numbers beside the texts, also in another order."""
    layer = BertPreprocessor(VOCAB.tokens, lower_case=True, seq_length=9)
    numbers = np.array([5.0, 6.0, 7.0, 8.0])
    series = pd.Series(TEXTS, index=[7, 3, 3, 1])
    data = layer.dataset(series, [0, 1, 2, 3], OTHERS, others={"n": numbers}, batch_size=3)
    assert [len(labels) for _, labels in data] == [3, 1]
    inputs, labels = next(iter(data.unbatch().batch(4)))
    assert (labels.numpy().tolist(), inputs.pop("n").numpy().tolist()) == ([0, 1, 2, 3], [*numbers])
    assert_equal(inputs, layer(TEXTS, OTHERS))

    options = dict(batch_size=2, shuffle=True, drop_remainder=True)
    keras.utils.set_random_seed(1)
    data = layer.dataset(TEXTS[:3], pd.Series([0, 1, 2]), **options)
    assert data.element_spec[0]["input_mask"].shape == (2, 9)
    orders = [labels.numpy().tolist() for _ in range(9) for _, labels in data]
    assert len({*map(tuple, orders)}) > 2
    for inputs, labels in data:
        assert_equal(inputs, layer([TEXTS[label] for label in labels]))
    keras.utils.set_random_seed(1)
    again = layer.dataset(TEXTS[:3], [0, 1, 2], **options)
    assert [labels.numpy().tolist() for _ in range(9) for _, labels in again] == orders


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        (
            pd.Series(["a", None]),
            [0, 1],
            "a text is nan, not a string: leave it out, or fill it in",
        ),
        (["a", "b"], [0], r"have different sizes: \[1, 2\]"),
    ],
)
def test_texts_that_are_no_strings_are_named_in_a_line(text, labels, message):
    layer = BertPreprocessor(VOCAB.tokens, lower_case=True, seq_length=9)
    with pytest.raises(ValueError, match=message) as caught:
        layer.dataset(text, labels)
    assert "\n" not in str(caught.value)


def ragged(rows):
    return tf.ragged.constant(rows, ragged_rank=1, dtype=tf.int32)


def truncate_seq_pair(a, b, room):
    a, b = list(a), list(b)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    return a, b


@pytest.mark.parametrize("seq_length", [5, 6, 9, 10, 24])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_pairs_are_truncated_as_in_the_original(seq_length, as_tensor):
    """Oracle: `truncate_seq_pair`, and the sequence put together by hand."""
    lengths = list(itertools.product(range(10), repeat=2))
    first = [list(range(100, 100 + n)) for n, _ in lengths]
    second = [list(range(200, 200 + n)) for _, n in lengths]
    length = tf.constant(seq_length) if as_tensor else seq_length
    packed = pack_segments([ragged(first), ragged(second)], length, VOCAB)
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        a, b = truncate_seq_pair(a, b, seq_length - 3)
        padding = [0] * (seq_length - len(a) - len(b) - 3)
        ids = [CLS, *a, SEP, *b, SEP]
        types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert packed["input_word_ids"][row].numpy().tolist() == ids + padding
        assert packed["input_mask"][row].numpy().tolist() == [1] * len(ids) + padding
        assert packed["input_type_ids"][row].numpy().tolist() == types + padding
    assert {values.dtype for values in packed.values()} == {tf.int32}


def test_tokens_grouped_by_word_are_flattened():
    """Oracle: a worked example."""
    words = tf.ragged.constant([[[7, 8], [9]], [], [[]]], ragged_rank=2, dtype=tf.int32)
    packed = pack_segments([words], 6, VOCAB)
    rows = [[CLS, 7, 8, 9, SEP, PAD], [CLS, SEP, 0, 0, 0, 0], [CLS, SEP, 0, 0, 0, 0]]
    np.testing.assert_array_equal(packed["input_word_ids"], rows)
    assert not np.any(packed["input_type_ids"])


def test_special_ids_come_from_the_vocabulary():
    """Oracle: the positions of the special tokens in the vocabulary."""
    vocab = Vocabulary(("a", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]"))
    packed = pack_segments([ragged([[0]]), ragged([[]])], 6, vocab)
    np.testing.assert_array_equal(packed["input_word_ids"], [[3, 0, 2, 2, 5, 5]])


def test_graphs_for_static_and_dynamic_lengths():
    """Oracles: the static shape, a worked example, and no error of oneDNN."""
    pack = tf.function(lambda a, b, length: pack_segments([a, b], length, VOCAB))
    spec = tf.RaggedTensorSpec([None, None], tf.int32)
    static = pack.get_concrete_function(spec, spec, 8)
    assert {tuple(shape) for shape in static.output_shapes.values()} == {(None, 8)}
    assert "Transpose" not in str(static.graph.as_graph_def())
    a = ragged([[7, 8, 9]])
    found = pack(a, a, tf.constant(7))["input_word_ids"]
    np.testing.assert_array_equal(found, [[CLS, 7, 8, SEP, 7, 8, SEP]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 5"):
        pack(a, a, tf.constant(4))


def test_invalid_input_is_named():
    """Oracle: the message names the value or the shape, and the limit."""
    layer, a = BertPreprocessor(VOCAB, lower_case=False, seq_length=4), ragged([[7]])
    for call, arguments, message in (
        (pack_segments, ([a], 2, VOCAB), "seq_length 2 is too small: .* at least 3"),
        (pack_segments, ([a, a], tf.constant(4), VOCAB), "seq_length 4 is too small: .* least 5"),
        (pack_segments, ([a, a, a], 9, VOCAB), "got 3 segments"),
        (layer, ([["a"]],), r"takes strings \[batch\], not of shape \(1, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call(*arguments)


@pytest.mark.parametrize("rows", [(1, 2), (2, 1), (0, 1)])
@pytest.mark.parametrize("graph", [False, True])
def test_segments_with_different_numbers_of_rows_are_an_error(rows, graph):
    """Oracle: the error itself; without the check, rows disappear or the process ends."""

    @tf.function(autograph=False, input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)] * 2)
    def pack(*segments):
        return pack_segments(segments, 9, VOCAB)

    segments = [tf.RaggedTensor.from_tensor(tf.ones([count, 3], tf.int32)) for count in rows]
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of rows"):
        (pack if graph else pack.python_function)(*segments)
