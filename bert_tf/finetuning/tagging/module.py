"""Modules to export: from strings to the tags of their words."""

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.finetuning.serving import Tensors, in_any_shape
from bert_tf.finetuning.tagging.raw_words import following, previous, slices, split_words
from bert_tf.finetuning.tagging.tags import BEGINS, ENDS, tag_entities
from bert_tf.finetuning.windows import make_windows, surround
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer


class TaggingModule(tf.Module):
    """Maps strings `text` [B] to the tags of their words, and to entities.

    Texts of any length are predicted in overlapping windows. A call, and the signature `serving`,
    return a dict of

    - `tag`, strings [B, N]; `probability`, float32 [B, N]; `start` and `end`, int64 [B, N], the
      byte offsets in the text: of each word;
    - `entity`, its text, and `entity_type`, strings [B, M]; `entity_probability`, float32 [B, M],
      the product over its words; `entity_start` and `entity_end`, int64 [B, M]: of each entity, if
      the tags are of entities.

    Shorter rows are padded with "" and 0. A call also takes a single string, or strings of any
    other shape, in place of [B].

    Args:
        model: a float32 model.
        max_seq_length: the length of the windows.
        labels: the tags, also in the variable `labels`.
    """

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
        labels: Sequence[str],
    ):
        super().__init__()
        self.labels = tf.Variable(labels, trainable=False, name="labels")
        # Only the variables: Keras layers would be saved together with functions nobody calls.
        self._weights = [variable.value for variable in model.variables]
        self._tokenizer = tokenizer
        names = tf.constant(labels)

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="text")]
        )
        def serve(text):
            words = split_words(text, tokenizer)
            logits = _word_logits(model, words.ids, words.first.values, tokenizer, max_seq_length)
            number = tf.argmax(logits, axis=-1)
            probability = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
            flat = {
                "tag": tf.gather(names, number),
                "probability": probability,
                "start": words.starts.values,
                "end": words.limits.values,
            }
            outputs = {name: words.first.with_values(values) for name, values in flat.items()}
            if tag_entities(labels):
                outputs |= _entities(text, words.first.value_rowids(), number, flat, labels)
            return {name: values.to_tensor() for name, values in outputs.items()}

        self.__call__ = in_any_shape(serve)
        self.serving = serve


def _word_logits(
    model: BertTaskModel,
    ids: tf.RaggedTensor,
    first: tf.Tensor,
    tokenizer: WordPieceTokenizer,
    max_seq_length: int,
) -> tf.Tensor:
    """Returns the logits of all words of all texts, [words, C].

    Args:
        ids: the tokens of each text, [B, (tokens)].
        first: the first token of each word, among all tokens.
    """
    windows = make_windows(ids.row_splits, max_seq_length - 2)
    is_first = tf.scatter_nd(
        first[:, tf.newaxis], tf.ones_like(first), tf.shape(ids.values, tf.int64)
    )
    positions = windows.positions.values
    chosen = windows.central.values & (tf.gather(is_first, positions) > 0)
    chosen = surround(windows.central.with_values(chosen), False, False)
    tokens = windows.positions.with_values(tf.gather(ids.values, positions))
    tokens = surround(tokens, tokenizer.vocab.cls_id, tokenizer.vocab.sep_id)
    word_ids = tokens.to_tensor(tokenizer.vocab.pad_id)
    inputs = {
        "input_word_ids": word_ids,
        "input_mask": tf.ones_like(tokens).to_tensor(),
        "input_type_ids": tf.zeros_like(word_ids),
    }
    return tf.boolean_mask(model(inputs, training=False), chosen.to_tensor(False))


def _entities(
    text: tf.Tensor, rows: tf.Tensor, number: tf.Tensor, words: Tensors, labels: Sequence[str]
) -> dict[str, tf.RaggedTensor]:
    """Joins words to entities as conlleval does: I-X after another tag begins an entity.

    The tags may be of any scheme.

    Args:
        rows: the text of each word, int64 [words].
        number: the tag of each word, [words].
        words: what is known of each word, [words] each.
    """
    inside = tf.gather([label != "O" for label in labels], number)
    begins = tf.gather([label[0] in BEGINS for label in labels], number)
    ends = tf.gather([label[0] in ENDS for label in labels], number)
    kind = tf.gather([label[2:] for label in labels], number)
    same = previous(inside, False) & (kind == previous(kind, "")) & (rows == previous(rows, -1))
    new = inside & ~(same & ~begins & ~previous(ends, False))
    # A word ends an entity unless the next one continues it.
    last = inside & (following(new, True) | ~following(inside, False))
    index = tf.cumsum(tf.cast(new, tf.int32)) - 1
    rows, starts = tf.boolean_mask(rows, new), tf.boolean_mask(words["start"], new)
    limits = tf.boolean_mask(words["end"], last)
    probabilities = tf.boolean_mask(words["probability"], inside)
    flat = {
        "entity": slices(text, rows, starts, limits),
        "entity_type": tf.boolean_mask(kind, new),
        "entity_start": starts,
        "entity_end": limits,
        "entity_probability": tf.math.segment_prod(probabilities, tf.boolean_mask(index, inside)),
    }
    count = tf.shape(text, tf.int64)[0]
    return {n: tf.RaggedTensor.from_value_rowids(x, rows, count) for n, x in flat.items()}
