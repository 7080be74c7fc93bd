"""The points of a preprocessor: the interface of TensorFlow Hub's text preprocessors.

Source: tensorflow/hub docs/common_saved_model_apis/text.md; tensorflow/models
official/nlp/tools/export_tfhub_lib.py `create_preprocessing`.
"""

import tensorflow as tf

from bert_tf.weights.formats.saved_model import read_asset
from export.checks import points as shared
from export.checks.points import Points, Subject, expect
from tfrecords.vocabulary import SPIECE, Vocabulary

POINTS = Points()
_TEXTS = ["a b c, d e f", "", "g"]
_NAMES = ("input_mask", "input_type_ids", "input_word_ids")
# Numbers of tokens in segments, and a length: all fit; the first, the second or both are cut.
_CASES = (
    ((3,), 8),
    ((9,), 8),
    ((3, 2), 16),
    ((9, 2), 10),
    ((2, 9), 10),
    ((9, 8), 11),
    ((9, 9), 12),
)


def _vocab(subject: Subject) -> Vocabulary:
    """Returns the vocabulary among the assets; raises a ValueError if there is none."""
    for path in subject.assets():
        if path.endswith((".txt", SPIECE)):
            return read_asset(path)
    raise ValueError(f"no vocabulary, *.txt or {SPIECE}, in assets")


def _expect_same(found: dict, expected: dict) -> None:
    names = [name for name in _NAMES if not _equal(found[name], expected[name])]
    expect(not names, f"other {', '.join(names)}")


def _equal(found: tf.Tensor, expected: tf.Tensor) -> bool:
    return found.shape == expected.shape and bool(tf.reduce_all(found == expected))


@POINTS(f"a call maps strings [batch] to {', '.join(_NAMES)}, int32 [batch, length]")
def root(subject: Subject) -> None:
    outputs = subject.model(tf.constant(_TEXTS))
    expect(set(outputs) == set(_NAMES), f"outputs {', '.join(sorted(outputs))}")
    shape = (len(_TEXTS), outputs["input_word_ids"].shape[-1])
    shared.expect_tensors(outputs, dict.fromkeys(_NAMES, shape), "int32")


@POINTS("a call is tokenize, then bert_pack_inputs")
def root_is_its_parts(subject: Subject) -> None:
    model, texts = subject.model, tf.constant(_TEXTS)
    expected = model(texts)
    length = tf.shape(expected["input_word_ids"])[1]
    _expect_same(model.bert_pack_inputs([model.tokenize(texts)], seq_length=length), expected)
    _expect_same(model.bert_pack_inputs([model.tokenize(texts)]), expected)


@POINTS("tokenize maps strings [batch] to int32 [batch, (words), (word pieces)]")
def tokens(subject: Subject) -> None:
    tokens = subject.model.tokenize(tf.constant(_TEXTS))
    expect(isinstance(tokens, tf.RaggedTensor), f"a {type(tokens).__name__}")
    found = {"type": tokens.dtype.name, "rank": tokens.shape.rank, "batch": int(tokens.nrows())}
    shared.expect_equal(found, {"type": "int32", "rank": 3, "batch": len(_TEXTS)})


@POINTS("tokenize finds the words of the vocabulary in assets")
def words(subject: Subject) -> None:
    """Looks up words that every casing keeps; a SentencePiece model may divide some."""
    vocab = _vocab(subject)
    named = zip(vocab.tokens, vocab.begins_word, strict=True)
    words = [vocab.decode([vocab.ids[x]]) for x, begins in named if begins]
    words = [x for x in words if x.isascii() and x.isalpha() and x.islower()][:50]
    found = subject.model.tokenize(tf.constant(words)).to_list()
    pairs = [*zip(words, found, strict=True)]
    if vocab.sentencepiece:
        wrong = [word for word, ids in pairs if [*map(vocab.decode, ids)] != [word]]
    else:
        wrong = [word for word, ids in pairs if ids != [[vocab.ids[word]]]]
    expect(not wrong, f"other tokens for {', '.join(wrong[:3])}")


@POINTS(
    "tokenize.get_special_tokens_dict() gives the ids and the size of that vocabulary as "
    "int32 scalars"
)
def special_tokens(subject: Subject) -> None:
    tensors, vocab = subject.model.tokenize.get_special_tokens_dict(), _vocab(subject)
    expected = {
        "vocab_size": len(vocab),
        "padding_id": vocab.pad_id,
        "start_of_sequence_id": vocab.cls_id,
        "end_of_segment_id": vocab.sep_id,
        "mask_id": vocab.mask_id,
    }
    shared.expect_names(expected, tensors)
    shared.expect_equal({name: int(value) for name, value in tensors.items()}, expected)
    shared.expect_tensors(tensors, dict.fromkeys(expected, ()), "int32")


@POINTS("tokenize_with_offsets, if it exists, adds where tokens start and end in bytes, int64")
def offsets(subject: Subject) -> None:
    if not hasattr(subject.model, "tokenize_with_offsets"):
        return
    text = "a b c, d"
    tokens, starts, limits = subject.model.tokenize_with_offsets(tf.constant([text]))
    types = {"starts": starts.dtype, "limits": limits.dtype}
    shared.expect_equal(types, dict.fromkeys(types, tf.int64))
    same = tokens.to_list() == subject.model.tokenize(tf.constant([text])).to_list()
    expect(same, "other tokens than tokenize")
    pairs = zip(starts.flat_values.numpy(), limits.flat_values.numpy(), strict=True)
    # The mark of a word's beginning may be a token of its own, without a place.
    found = [text[start:limit] for start, limit in pairs if start < limit]
    expect(found == ["a", "b", "c", ",", "d"], f"{found} in {text!r}")


@POINTS(
    "bert_pack_inputs makes [CLS] a [SEP] b [SEP] of one or two RaggedTensors of rank 2 or 3, "
    "and truncates the longer one first"
)
def packs(subject: Subject) -> None:
    """Compares with `_truncate_seq_pair` of google-research/bert, for both ranks."""
    tensors = subject.model.tokenize.get_special_tokens_dict()
    special = {name: int(value) for name, value in tensors.items()}
    for sizes, length in _CASES:
        segments = [[100 * part + i for i in range(n)] for part, n in enumerate(sizes, 1)]
        flat = [tf.ragged.constant([x], dtype=tf.int32) for x in segments]
        nested = [tf.ragged.constant([[[i] for i in x]], dtype=tf.int32) for x in segments]
        expected = _packed(segments, length, special)
        for inputs in (flat, nested):
            outputs = subject.model.bert_pack_inputs(inputs, seq_length=tf.constant(length))
            found = {name: outputs[name][0].numpy().tolist() for name in _NAMES}
            place = f"for segments of {sizes} tokens and seq_length={length}, "
            shared.expect_equal(found, expected, place)


def _packed(segments: list[list[int]], length: int, special: dict[str, int]) -> dict:
    """Packs segments, which it shortens."""
    while sum(map(len, segments)) > length - len(segments) - 1:
        max(reversed(segments), key=len).pop()
    ids, types = [special["start_of_sequence_id"]], [0]
    for index, segment in enumerate(segments):
        ids += [*segment, special["end_of_segment_id"]]
        types += [index] * (len(segment) + 1)
    padding = length - len(ids)
    return {
        "input_word_ids": ids + [special["padding_id"]] * padding,
        "input_mask": [1] * len(ids) + [0] * padding,
        "input_type_ids": types + [0] * padding,
    }


@POINTS("bert_pack_inputs takes any seq_length")
def any_length(subject: Subject) -> None:
    tokens = subject.model.tokenize(tf.constant(_TEXTS))
    for inputs in ([tokens], [tokens, tokens]):
        for length in (5, 64, 1000):
            outputs = subject.model.bert_pack_inputs(inputs, seq_length=tf.constant(length))
            shapes = {tuple(outputs[name].shape) for name in _NAMES}
            found = f"shapes {shapes} for {len(inputs)} segments and seq_length={length}"
            expect(shapes == {(len(_TEXTS), length)}, found)


@POINTS("hub.KerasLayer takes the model, tokenize and bert_pack_inputs")
def preprocessor_layer(subject: Subject) -> None:
    import tensorflow_hub as hub

    model, texts = subject.model, tf.constant(_TEXTS)
    tokens = hub.KerasLayer(model.tokenize)(texts)
    layer = hub.KerasLayer(model.bert_pack_inputs, arguments={"seq_length": 16})
    expected = model.bert_pack_inputs([model.tokenize(texts)], seq_length=tf.constant(16))
    hub.KerasLayer(model)(texts)
    _expect_same(layer([tokens]), expected)


@POINTS("serving_default gives the same outputs")
def preprocessor_serving(subject: Subject) -> None:
    texts = tf.constant(_TEXTS)
    shared.expect_served(subject, subject.model(texts), _equal, texts)


@POINTS("saved again, moved and loaded, the model gives the same outputs")
def preprocessor_moves(subject: Subject) -> None:
    texts = tf.constant(_TEXTS)
    with shared.saved_again(subject) as (model, _):
        _expect_same(model(texts), subject.model(texts))
