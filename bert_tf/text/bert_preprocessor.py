"""From text to the inputs of an encoder: [CLS] a [SEP] or [CLS] a [SEP] b [SEP], padded."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.calling import checked
from bert_tf.text.operations import tf_text
from bert_tf.text.sentencepiece import make_tokenizer
from tfrecords.vocabulary import Vocabulary, VocabularyLike


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPreprocessor(keras.layers.Layer):
    """Turns texts, or pairs of texts, into the inputs of a `BertEncoder`.

    The layer works eagerly, in `tf.data`, and as the first layer of a Keras model. Its
    configuration, and so a `.keras` file, contains the vocabulary.

    Neither a TPU nor XLA can compute with strings: there, map a `tf.data` dataset with the layer,
    and train a model that begins with the encoder. Keras does not compile a model that contains the
    layer with XLA unless `jit_compile=True`.

    Args:
        vocab: the vocabulary, the path of a vocab.txt, or the tokens in the order of their ids.
            (In the configuration of a layer, a dict if there are added tokens.)
        lower_case: whether to lower-case text and strip accents, for "uncased" vocabularies.
        seq_length: length of the inputs; longer texts are truncated. At most the encoder's
            max_position_embeddings.

    Call: texts [B], and for pairs other texts [B] as the second argument: a tensor or array of
    strings, a list, a pandas Series, or a single string. Returns a dict of `input_word_ids`,
    `input_mask` and `input_type_ids`, int32 [B, seq_length]; see `pack_segments`.

    Keras itself takes strings only as tensors or object arrays: pass `fit` and `predict`
    `np.array(texts, dtype=object)`, whether `texts` is a list or a Series.

    Example:
        preprocessor = bert_tf.load_preprocessor("run")
        text = keras.Input([], dtype="string")
        outputs = bert_tf.load("run").encoder(preprocessor(text))
        model = keras.Model(text, keras.layers.Dense(1)(outputs["pooled_output"]))

    Raises:
        ValueError: `vocab` lacks a special token, or `seq_length` is too small.
    """

    @checked
    def __init__(
        self,
        vocab: VocabularyLike | Mapping[str, Any],
        lower_case: bool,
        seq_length: int = 128,
        name: str = "preprocessor",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        # Keras would convert strings to numbers, and compile them with XLA.
        self._convert_input_args = False
        self.supports_jit = False
        if isinstance(vocab, Mapping):
            vocab = Vocabulary.from_values(vocab["lines"], vocab)
        _check_length(seq_length, 3)
        self.tokenizer = make_tokenizer(vocab, lower_case)
        self.seq_length = seq_length
        self.built = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.seq_length} tokens per example, {self.tokenizer})"

    def __call__(self, text, text_b=None, **kwargs):
        texts = [text] if text_b is None else [text, text_b]
        return super().__call__(*map(_batch, texts), **kwargs)

    def call(self, *texts):
        segments = [self.tokenizer.tokenize_flat(text) for text in texts]
        return pack_segments(segments, self.seq_length, self.tokenizer.vocab)

    def dataset(
        self,
        text,
        labels=None,
        text_b=None,
        *,
        others: Mapping[str, Any] = MappingProxyType({}),
        batch_size: int = 32,
        shuffle: bool = False,
        drop_remainder: bool = False,
    ) -> tf.data.Dataset:
        """Returns batches of token ids, for `fit`, `evaluate` and `predict` on any device.

        A model that begins with the encoder takes them: on several replicas, on a TPU and with XLA.

        Args:
            text, text_b: N texts, or pairs, of any kind that a call takes.
            labels: N labels; a list, an array or a Series.
            others: further inputs of the model by name, N values each.
            shuffle: whether to shuffle all texts, in another order in every epoch; the order
                follows `keras.utils.set_random_seed`.
            drop_remainder: whether to drop a last batch with fewer than `batch_size` texts, for
                which XLA would compile the step again. TPUs need it to train.

        Example:
            preprocessor = bert_tf.load_preprocessor("run", seq_length=64)
            data = preprocessor.dataset(["a moving film", "dull"], [1, 0], shuffle=True)

        Raises:
            ValueError: the numbers of texts and of other values differ, or a text is missing.
        """
        texts = [_batch(text)] if text_b is None else [_batch(text), _batch(text_b)]
        others = {name: np.asarray(values) for name, values in others.items()}
        rows = (tuple(texts), others, *([] if labels is None else [np.asarray(labels)]))
        if len(sizes := {len(x) for x in tf.nest.flatten(rows)}) > 1:
            raise ValueError(f"texts, labels and others have different sizes: {sorted(sizes)}")
        data = tf.data.Dataset.from_tensor_slices(rows)
        if shuffle:
            data = data.shuffle(len(texts[0]))
        data = data.batch(batch_size, drop_remainder=drop_remainder)

        def encode(texts, others, *labels):
            # TPUs compile a step for a static number of rows.
            rows = [texts[0].shape[0], self.seq_length]
            ids = {name: tf.ensure_shape(x, rows) for name, x in self(*texts).items()}
            return {**ids, **others}, *labels

        return data.map(encode, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def compute_output_spec(self, text, text_b=None):
        shape = (text.shape[0], self.seq_length)
        names = ("input_word_ids", "input_mask", "input_type_ids")
        return {name: keras.KerasTensor(shape, "int32") for name in names}

    def get_config(self):
        vocab = self.tokenizer.vocab
        lines, others = list(vocab.lines), vocab.tokenizer_values()
        return super().get_config() | {
            "vocab": {"lines": lines, **others} if others else lines,
            "lower_case": self.tokenizer.lower_case,
            "seq_length": self.seq_length,
        }


def _batch(text) -> tf.Tensor | keras.KerasTensor:
    """Returns texts as a tensor [B], before Keras would add pages of text to an error."""
    if not (tf.is_tensor(text) or isinstance(text, keras.KerasTensor)):
        text = np.asarray(text, dtype=object)
        missing = [x for x in text.flat if not isinstance(x, str | bytes)]
        if missing:
            raise ValueError(f"a text is {missing[0]!r}, not a string: leave it out, or fill it in")
        text = tf.constant(text, tf.string)
    if text.ndim == 0:
        text = text[None]
    if text.ndim != 1:
        raise ValueError(f"the preprocessor takes strings [batch], not of shape {text.shape}")
    return text


def pack_segments(
    segments: Sequence[tf.RaggedTensor], seq_length: int | tf.Tensor, vocab: Vocabulary
) -> dict[str, tf.Tensor]:
    """Joins, truncates and pads one or two segments.

    Truncation removes tokens from the end of the longer segment until both have the same length,
    then from both in turn (`_truncate_seq_pair` of google-research/bert).

    Args:
        segments: one or two ragged tensors, int32 [B, (tokens)] or [B, (words), (tokens)].
        seq_length: int or int32 scalar; must leave room for one token of each segment.
        vocab: the vocabulary, which has the ids of [PAD], [CLS] and [SEP].

    Returns:
        `input_word_ids`, `input_mask` (1 for tokens, 0 for padding) and `input_type_ids` (1 in the
        second segment, including its [SEP]), all int32 [B, seq_length].

    Example:
        tokenizer = bert_tf.load("run").tokenizer
        questions, answers = tokenizer.tokenize(["who?"]), tokenizer.tokenize(["nobody"])
        inputs = bert_tf.pack_segments([questions, answers], 64, tokenizer.vocab)

    Raises:
        ValueError: there are not one or two segments, or `seq_length` is too small.
        tf.errors.InvalidArgumentError: `seq_length` is too small and known only at run time, or the
            segments have different numbers of rows.
    """
    if len(segments) not in (1, 2):
        raise ValueError(f"got {len(segments)} segments, expected one or two")
    special = len(segments) + 1
    _check_length(seq_length, special + len(segments))
    segments = [x if x.shape.rank == 2 else x.merge_dims(1, -1) for x in segments]
    # Given different numbers of rows, the trimmer drops rows or ends the process.
    segments = with_equal_rows(*segments)
    trimmed = tf_text.RoundRobinTrimmer(seq_length - special).trim(segments)
    ids, types = join_segments(trimmed, vocab)
    ids, mask = tf_text.pad_model_inputs(ids, seq_length, pad_value=vocab.pad_id)
    types, _ = tf_text.pad_model_inputs(types, seq_length)
    packed = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    return {name: tf.cast(values, tf.int32) for name, values in packed.items()}


def join_segments(
    segments: Sequence[tf.RaggedTensor], vocab: Vocabulary
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the ids and types of [CLS] a [SEP] b [SEP], int32 [B, (length)]."""
    parts = [column_of(vocab.cls_id, segments[0])]
    for segment in segments:
        parts += [segment, column_of(vocab.sep_id, segment)]
    types = [tf.ones_like(part) * (max(0, place - 1) // 2) for place, part in enumerate(parts)]
    return join_rows(*parts), join_rows(*types)


def join_rows(*parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Joins the rows of ragged tensors like `tf.concat`, which makes oneDNN print an error."""
    lengths = [part.row_lengths() for part in parts]
    total, places = tf.add_n(lengths), []
    starts = tf.cumsum(total, exclusive=True)
    for part, length in zip(parts, lengths, strict=True):
        shifts = tf.repeat(starts - part.row_starts(), length)
        places.append(tf.cast(shifts, tf.int32) + tf.range(tf.size(shifts)))
        starts += length
    values = tf.dynamic_stitch(places, [part.values for part in parts])
    return tf.RaggedTensor.from_row_lengths(values, total, validate=False)


def column_of(value: int, like: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns a ragged tensor with one value in each row of another."""
    values = tf.fill(tf.shape(like.row_starts()), tf.cast(value, like.dtype))
    return tf.RaggedTensor.from_row_lengths(values, tf.ones_like(like.row_starts()), validate=False)


def without_shared_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Cuts the encoder's inputs [B, S] to the longest row: shared padding only costs time."""
    longest = tf.maximum(1, tf.reduce_max(tf.reduce_sum(inputs["input_mask"], axis=1)))
    return {name: values[:, :longest] for name, values in inputs.items()}


def with_equal_rows(*values: tf.Tensor | tf.RaggedTensor) -> list[tf.Tensor | tf.RaggedTensor]:
    """Returns the values, and first checks that their numbers of rows are equal."""
    rows = [
        x.nrows() if isinstance(x, tf.RaggedTensor) else tf.shape(x, tf.int64)[0] for x in values
    ]
    message = "the inputs have different numbers of rows"
    checks = [tf.debugging.assert_equal(rows[0], other, message) for other in rows[1:]]
    with tf.control_dependencies(checks):
        return [tf.identity(x) for x in values]


def _check_length(seq_length: int | tf.Tensor, least: int) -> None:
    static = tf.get_static_value(seq_length) if tf.is_tensor(seq_length) else seq_length
    message = f"the special tokens and one token per segment need a length of at least {least}"
    if static is None:
        tf.debugging.assert_greater_equal(seq_length, least, message)
    elif static < least:
        raise ValueError(f"seq_length {static} is too small: {message}")
