"""A fine-tuned classifier as one SavedModel, from raw strings to probabilities."""

import tensorflow as tf

from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.packing import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer


class TextClassifier(tf.Module):
    """Strings `text` [B], and `text_b` [B] for pairs, to `probabilities` and `label`.

    A call, and the signature `serving`, return a dict of `probabilities` float32 [B, C], whose
    columns are in the order of the variable `labels`, and `label`, strings [B], the likeliest.

    Args:
        model: a float32 model whose classes are `labels`.
        max_seq_length: longer texts are cut.
        pairs: whether an example is two texts.
    """

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        labels: tuple[str, ...],
        max_seq_length: int,
        pairs: bool,
    ):
        super().__init__()
        self.labels = tf.Variable(labels, trainable=False, name="labels")
        # The variables only: the Keras layers would be saved with functions nobody calls.
        self._weights = [variable.value for variable in model.variables]
        self._tokenizer = tokenizer
        names = ("text", "text_b") if pairs else ("text",)

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec([None], tf.string, n) for n in names]
        )
        def classify(*texts):
            segments = [tokenizer.tokenize_flat(text) for text in texts]
            inputs = pack_segments(segments, max_seq_length, tokenizer.vocab)
            # Padding that all rows have costs time and changes nothing.
            longest = tf.maximum(1, tf.reduce_max(tf.reduce_sum(inputs["input_mask"], axis=1)))
            inputs = {name: values[:, :longest] for name, values in inputs.items()}
            probabilities = tf.nn.softmax(model(inputs, training=False))
            label = tf.gather(self.labels, tf.argmax(probabilities, axis=-1))
            return {"probabilities": probabilities, "label": label}

        self.__call__ = classify
        self.serving = classify
