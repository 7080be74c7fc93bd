"""A module to export: strings -> the most probable of several choices."""

import tensorflow as tf

from bert_tf.finetuning.serving import without_shared_padding
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.packing import pack_segments, with_equal_rows
from bert_tf.text.tokenizer import WordPieceTokenizer


class ChoiceModule(tf.Module):
    """Maps strings `text` [B] and `choices` [B, K] to `probabilities` [B, K] and `index` [B].

    A call also takes a text of any other shape in place of [B].

    Args:
        model: a float32 model for multiple choice.
        max_seq_length: longer pairs of a text and a choice are truncated.

    Attributes:
        truncates: as in `TextModule`.
    """

    truncates = ("example", "--max_seq_length")

    def __init__(self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int):
        super().__init__()
        # Only the variables: Keras layers would be saved together with functions nobody calls.
        self._weights = [variable.value for variable in model.variables]
        self._tokenizer, self._max_seq_length = tokenizer, max_seq_length

        @tf.function(
            autograph=False,
            input_signature=[
                tf.TensorSpec([None], tf.string, "text"),
                tf.TensorSpec([None, None], tf.string, "choices"),
            ],
        )
        def serve(text, choices):
            text, choices = with_equal_rows(text, choices)
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

        @tf.function(
            autograph=False,
            input_signature=[
                tf.TensorSpec(None, tf.string, "text"),
                tf.TensorSpec(None, tf.string, "choices"),
            ],
        )
        def call(text, choices):
            shape = tf.shape(choices)
            outputs = serve(tf.reshape(text, [-1]), tf.reshape(choices, [-1, shape[-1]]))
            return {
                "probabilities": tf.reshape(outputs["probabilities"], shape),
                "index": tf.reshape(outputs["index"], tf.shape(text)),
            }

        self.__call__ = call
        self.serving = serve

    def num_truncated(self, text: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
        """Returns how many of some examples have a pair that is truncated."""
        texts = self._tokenizer.tokenize_flat(text).row_lengths()
        tokens = self._tokenizer.tokenize_flat(tf.reshape(choices, [-1])).row_lengths()
        longest = texts + tf.reduce_max(tf.reshape(tokens, tf.shape(choices)), axis=1)
        return tf.math.count_nonzero(longest > self._max_seq_length - 3)
