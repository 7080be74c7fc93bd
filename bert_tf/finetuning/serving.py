"""Modules to export: strings -> predictions for texts, pairs of texts, and choices."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert_tf.finetuning.objectives import Tensors
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.bert_preprocessor import pack_segments, with_equal_rows, without_shared_padding
from bert_tf.text.tokenizer import WordPieceTokenizer


class ServingModule(tf.Module):
    """A module to export. A call, and the signature `serving`, take strings and return outputs.

    A call also takes a single string, or strings of any other shape, in place of [B].

    Args:
        model: a float32 model.
        serve: maps strings to the outputs, [B, ...] each, in the graph.
        inputs: the names of the strings, and how many axes they have.
        labels: names for the user, in the variable `labels`; omitted if there are none.

    Attributes:
        truncates: what `num_truncated` counts, and the flag that sets how many tokens are read;
            None if nothing is truncated.
    """

    truncates: tuple[str, str] | None = None

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        serve: Callable[..., Tensors],
        inputs: Mapping[str, int],
        labels: Sequence[str] = (),
    ):
        super().__init__()
        if labels:
            self.labels = tf.Variable(labels, trainable=False, name="labels")
        # Only the variables: Keras layers would be saved together with functions nobody calls.
        self._weights = [variable.value for variable in model.variables]
        self._tokenizer = tokenizer
        signature = [tf.TensorSpec([None] * rank, tf.string, x) for x, rank in inputs.items()]

        @tf.function(autograph=False, input_signature=signature)
        def checked(*texts):
            # Servers do not compare shapes.
            pairs = zip(texts, signature, strict=True)
            return serve(*with_equal_rows(*(tf.ensure_shape(x, spec.shape) for x, spec in pairs)))

        self.__call__ = in_any_shape(checked)
        self.serving = checked

    @property
    def tokenizer(self) -> WordPieceTokenizer:
        """What tokenizes the strings; a SavedModel has it only in its graph."""
        return self._tokenizer


class TextModule(ServingModule):
    """Maps strings `text` [B], and `text_b` [B] for pairs, to a dict of outputs [B, ...].

    Args:
        pairs: whether an example is two texts.
        outputs: maps what the model returns to the outputs by name, in the graph.
        apart: whether the model reads each text of a pair alone; `outputs` then takes two results.
    """

    truncates = ("example", "--max_seq_length")

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
        *,
        pairs: bool,
        outputs: Callable[..., Tensors],
        apart: bool = False,
        labels: tuple[str, ...] = (),
    ):
        def serve(*texts):
            segments = [tokenizer.tokenize_flat(text) for text in texts]
            rows = [[segment] for segment in segments] if apart else [segments]
            inputs = [pack_segments(row, max_seq_length, tokenizer.vocab) for row in rows]
            return outputs(*(model(without_shared_padding(x), training=False) for x in inputs))

        names = ("text", "text_b") if pairs else ("text",)
        super().__init__(model, tokenizer, serve, dict.fromkeys(names, 1), labels)
        # Tokens of an example that are not special.
        self._apart, self._room = apart, max_seq_length - (3 if pairs and not apart else 2)

    def num_truncated(self, *texts: tf.Tensor) -> tf.Tensor:
        """Returns how many of some examples are truncated, given the inputs of `serving`."""
        tokens = tf.stack([self._tokenizer.tokenize_flat(x).row_lengths() for x in texts])
        combine = tf.reduce_max if self._apart else tf.reduce_sum
        return tf.math.count_nonzero(combine(tokens, axis=0) > self._room)


def in_any_shape(serve: tf.types.experimental.PolymorphicFunction) -> Callable[..., Tensors]:
    """Returns a function for strings of any shape in place of the [B] of `serve`."""
    signature = [tf.TensorSpec(None, spec.dtype, spec.name) for spec in serve.input_signature]

    @tf.function(autograph=False, input_signature=signature)
    def call(*texts):
        shape, rows = tf.shape(texts[0]), []
        for text, spec in zip(texts, serve.input_signature, strict=True):
            found = tf.shape(text)[: tf.rank(texts[0])]
            tf.debugging.assert_equal(found, shape, "the inputs have different shapes")
            last = tf.rank(text) - spec.shape.rank + 1
            rows.append(tf.reshape(text, tf.concat([[-1], tf.shape(text)[last:]], axis=0)))
        outputs = serve(*rows)
        return {
            name: tf.reshape(values, tf.concat([shape, tf.shape(values)[1:]], axis=0))
            for name, values in outputs.items()
        }

    return call


class ChoiceModule(ServingModule):
    """Maps strings `text` [B] and `choices` [B, K] to `probabilities` [B, K] and `index` [B]."""

    truncates = ("example", "--max_seq_length")

    def __init__(self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int):
        def serve(text, choices):
            shape = tf.shape(choices)
            rows = tf.repeat(tf.range(shape[0]), shape[1])
            segments = [
                tf.gather(tokenizer.tokenize_flat(text), rows),
                tokenizer.tokenize_flat(tf.reshape(choices, [-1])),
            ]
            inputs = pack_segments(segments, max_seq_length, tokenizer.vocab)
            inputs = {
                name: tf.reshape(values, [shape[0], shape[1], tf.shape(values)[1]])
                for name, values in without_shared_padding(inputs).items()
            }
            logits = model(inputs, training=False)
            return {
                "probabilities": tf.nn.softmax(logits),
                "index": tf.argmax(logits, axis=-1, output_type=tf.int32),
            }

        super().__init__(model, tokenizer, serve, {"text": 1, "choices": 2})
        self._max_seq_length = max_seq_length

    def num_truncated(self, text: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
        """Returns how many of some examples have a pair that is truncated."""
        texts = self._tokenizer.tokenize_flat(text).row_lengths()
        tokens = self._tokenizer.tokenize_flat(tf.reshape(choices, [-1])).row_lengths()
        longest = texts + tf.reduce_max(tf.reshape(tokens, tf.shape(choices)), axis=1)
        return tf.math.count_nonzero(longest > self._max_seq_length - 3)
