"""The words of raw text, and the module that tags them."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.finetuning.serving import ServingModule, Tensors
from bert_tf.finetuning.tagging.tags import BEGINS, ENDS, tag_entities
from bert_tf.finetuning.tokenizing import make_windows
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.bert_preprocessor import column_of, join_rows, join_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

_PUNCTUATION = r"[\p{P}!-/:-@\[-`{-~]"
# Stays inside a word if a letter or a digit is on both sides, as in U.N or Jean-Luc.
_INNER = r"[-.&/_@+]"
_APOSTROPHE = "['\u2019]"


class RawWords(NamedTuple):
    """The words of B texts.

    `ids` are the tokens of each text, int32 [B, (tokens)], and `first` the first token of each
    word, among all tokens of all texts, int64 [B, (words)]. `starts` and `limits` are the byte
    offsets of each word in its text, int64 [B, (words)].
    """

    ids: tf.RaggedTensor
    first: tf.RaggedTensor
    starts: tf.RaggedTensor
    limits: tf.RaggedTensor


def split_words(text: tf.Tensor, tokenizer: WordPieceTokenizer) -> RawWords:
    """Splits strings [B] into words and tokens.

    The tokenizer's words, which end at all punctuation, are joined where annotated corpora keep
    them together: "U.N" and "Jean-Luc" are one word, "Paris's" is "Paris" and "'s". Punctuation at
    either end of a word is a word of its own.
    """
    ids, starts, limits = tokenizer.tokenize_with_offsets(text)
    pieces = ids.values
    starts = tf.gather(starts.flat_values, pieces.row_starts())
    limits = tf.gather(limits.flat_values, pieces.row_limits() - 1)
    rows = ids.value_rowids()
    atoms = slices(text, rows, starts, limits)
    new = tf.where(~_continues(atoms, rows, starts, limits))[:, 0]
    last = following(new, tf.size(atoms)) - 1

    def ragged(values: tf.Tensor) -> tf.RaggedTensor:
        word_rows = tf.gather(rows, new)
        return tf.RaggedTensor.from_value_rowids(values, word_rows, tf.shape(text, tf.int64)[0])

    return RawWords(
        ids=ids.merge_dims(1, 2),
        first=ragged(tf.gather(pieces.row_starts(), new)),
        starts=ragged(tf.gather(starts, new)),
        limits=ragged(tf.gather(limits, last)),
    )


def known_words(words: tf.Tensor, tokenizer: WordPieceTokenizer) -> RawWords:
    """Splits words, strings [B, N], into tokens, each alone, as in training."""
    pieces = tokenizer.tokenize_flat(tf.reshape(words, [-1]))
    # A word of which cleaning leaves nothing is [UNK].
    missing = tf.cast(pieces.row_lengths() == 0, tf.int64)
    unknown = tf.fill([tf.reduce_sum(missing)], tokenizer.vocab.unk_id)
    pieces = join_rows(pieces, tf.RaggedTensor.from_row_lengths(unknown, missing))
    lengths, count = tf.cast(tf.strings.length(words), tf.int64), tf.shape(words)[1]
    limits = tf.cumsum(lengths + 1, axis=1) - 1
    places = (tf.reshape(pieces.row_starts(), tf.shape(words)), limits - lengths, limits)
    return RawWords(
        tf.RaggedTensor.from_row_splits(pieces.values, pieces.row_splits[::count]),
        *map(tf.RaggedTensor.from_tensor, places),
    )


def slices(text: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Returns parts of texts, strings [N], in memory that grows with the texts only.

    `tf.strings.substr` needs a copy of the whole text for each part. `rows` are the text of each
    part, and `starts` and `limits` its byte offsets there, int64 [N].
    """
    characters = tf.strings.bytes_split(text)
    first = tf.gather(characters.row_starts(), rows)
    parts = tf.ragged.range(first + starts, first + limits)
    return tf.strings.reduce_join(tf.gather(characters.values, parts), axis=-1)


def _continues(
    atoms: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, limits: tf.Tensor
) -> tf.Tensor:
    """Returns which of the tokenizer's words continue the word before, bool [words]."""

    def are(pattern: str) -> tf.Tensor:
        return tf.strings.regex_full_match(atoms, pattern)

    touches = (rows == previous(rows, -1)) & (starts == previous(limits, -1))
    letters = ~are(_PUNCTUATION) & ~are(r"\p{Han}")
    between = touches & previous(letters, False) & following(touches & letters, False)
    inner, apostrophe = between & are(_INNER), between & are(_APOSTROPHE)
    return inner | (letters & touches & previous(inner | apostrophe, False))


def previous(values: tf.Tensor, first: object) -> tf.Tensor:
    """Returns the value before each one; `first` for the first."""
    return tf.concat([tf.fill([1], tf.cast(first, values.dtype)), values], axis=0)[:-1]


def following(values: tf.Tensor, last: object) -> tf.Tensor:
    """Returns the value after each one; `last` for the last."""
    return tf.concat([values, tf.fill([1], tf.cast(last, values.dtype))], axis=0)[1:]


class TaggingModule(ServingModule):
    """Maps strings `text` [B] to the tags of their words, and to entities.

    Texts of any length are predicted in overlapping windows. The outputs are

    - `tag`, strings [B, N]; `probability`, float32 [B, N]; `start` and `end`, int64 [B, N], the
      byte offsets in the text: of each word;
    - `entity`, its text, and `entity_type`, strings [B, M]; `entity_probability`, float32 [B, M],
      the product over its words; `entity_start` and `entity_end`, int64 [B, M]: of each entity, if
      the tags are of entities.

    Shorter rows are padded with "" and 0.

    Args:
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
        names = tf.constant(labels)

        def tag(text, words):
            vocab = tokenizer.vocab
            rows, predicted = word_windows(words.ids, words.first.values, max_seq_length, vocab)
            ids = rows.to_tensor(vocab.pad_id)
            inputs = {
                "input_word_ids": ids,
                "input_mask": tf.ones_like(rows).to_tensor(),
                "input_type_ids": tf.zeros_like(ids),
            }
            logits = model(inputs, training=False)
            logits = tf.boolean_mask(logits, predicted.to_tensor(False))
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

        def serve(text):
            return tag(text, split_words(text, tokenizer))

        super().__init__(model, tokenizer, serve, {"text": 1}, labels)
        self._tag = tag

    def serve_words(self, words: tf.Tensor) -> Tensors:
        """Does what `serving` does, for texts whose words are known, strings [B, N].

        Spaces between the words make the texts to which the offsets refer.
        """
        text = tf.strings.reduce_join(words, axis=1, separator=" ")
        return self._tag(text, known_words(words, self._tokenizer))


def word_windows(
    ids: tf.RaggedTensor, first: tf.Tensor, max_seq_length: int, vocab: Vocabulary
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Lays windows over the words of texts, [CLS] and [SEP] around each.

    `ids` are the tokens of each text, [B, (tokens)], and `first` the first token of each word,
    among all tokens. Returns the ids of the windows, [W, (length)], and which of their outputs are
    the predictions of all words, in order, bool [W, (length)]: the first token of each word, in one
    window.
    """
    positions, central = make_windows(ids.row_splits, max_seq_length - 2)
    is_first = tf.scatter_nd(
        first[:, tf.newaxis], tf.ones_like(first), tf.shape(ids.values, tf.int64)
    )
    predicted = central.values & (tf.gather(is_first, positions.values) > 0)
    tokens = positions.with_values(tf.gather(ids.values, positions.values))
    special = column_of(False, central)
    packed, _ = join_segments([tokens], vocab)
    return packed, join_rows(special, central.with_values(predicted), special)


def _entities(
    text: tf.Tensor, rows: tf.Tensor, number: tf.Tensor, words: Tensors, labels: Sequence[str]
) -> dict[str, tf.RaggedTensor]:
    """Joins words, [words] each, to entities as conlleval does, whatever the scheme of the tags."""
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
