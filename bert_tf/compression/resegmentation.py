"""Rows of a student's tokens in which some words have the tokens of its teacher."""

import dataclasses

import tensorflow as tf

from bert_tf.config import ModelSpec
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.trainer import Batch
from bert_tf.weights.checkpoint import VocabularyMapping
from tfrecords.dynamic_masking import TRAINING, DynamicMasking, mask_batch
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, continues_word

# The probability that a word has the tokens of the student.
_STUDENTS_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class MixedRows:
    """Turns rows of a student's tokens into mixed rows, with tokens of student and teacher.

    In a mixed row, the teacher's tokens keep their ids, and the ids of the student's follow them,
    from `first_id` on. Special tokens have the teacher's ids.

    A word keeps the student's tokens if the teacher's vocabulary has no tokens for it, or more than
    the student's, for which the row would have no room. An [UNK] also stays, because its word is
    not known.

    The student reads the records; the teacher's text has the same casing. `masked_lm_prob` is the
    share of a mixed row's tokens to predict: single tokens, however the records are masked.

    Source: Extreme Language Model Compression with Optimal Subwords and Shared Projections
    (arXiv:1909.11687v1) section 3.1.
    """

    student: ModelSpec
    teacher: ModelSpec
    masked_lm_prob: float

    @property
    def first_id(self) -> int:
        """The id in mixed rows of the student's first token."""
        return self.teacher.config.vocab_size

    def segment(self, batch: Batch) -> Batch:
        """Adds what `mix` chooses from to a batch of records; runs in `tf.data`.

        Returns:
            the batch with int32 [B, S]: `word_numbers`, which count the words of a row from 0;
            `student_tokens`, the ids of a mixed row if all words have the student's tokens;
            `teacher_tokens`, if they have the teacher's, with -1 where a word has fewer of them.
        """
        ids, positions = batch["input_word_ids"], batch["masked_lm_positions"]
        # As they were before they were masked.
        shown = tf.gather(ids, positions, batch_dims=1)
        hidden = tf.where(batch["masked_lm_weights"] > 0, batch["masked_lm_ids"] - shown, 0)
        rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, tf.newaxis], tf.shape(positions))
        ids = tf.tensor_scatter_nd_add(ids, tf.stack([rows, positions], axis=-1), hidden)
        tokens = self.student.vocab.tokens
        special = tf.gather(tf.constant([token in SPECIAL_TOKENS for token in tokens]), ids)
        # Where a row was cut, a word may have lost its first tokens.
        starts = tf.gather(tf.constant([not continues_word(token) for token in tokens]), ids)
        starts |= tf.pad(special[:, :-1], [[0, 0], [1, 0]], constant_values=True)
        # Special tokens have the ids of the teacher.
        theirs, first = self.teacher.vocab.ids, self.first_id
        known = [theirs[x] if x in SPECIAL_TOKENS else first + i for i, x in enumerate(tokens)]
        student = tf.gather(tf.constant(known), ids)
        # What a token contributes to its word; special tokens contribute nothing.
        parts = ["" if x in SPECIAL_TOKENS else x[2 * continues_word(x) :] for x in tokens]
        texts = tf.gather(tf.constant(parts), ids)
        teacher = self._teacher_tokens(*(tf.reshape(x, [-1]) for x in (student, starts, texts)))
        return batch | {
            "word_numbers": tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1,
            "student_tokens": student,
            "teacher_tokens": tf.reshape(teacher, tf.shape(ids)),
        }

    def _teacher_tokens(self, student: tf.Tensor, starts: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Returns `teacher_tokens`, given ids, word starts and texts of tokens, all flat."""
        first = tf.where(starts)[:, 0]
        words = tf.RaggedTensor.from_row_starts(student, first, validate=False)
        word = words.value_rowids()
        text = tf.strings.unsorted_segment_join(texts, word, tf.shape(first, tf.int64)[0])
        tokenizer = WordPieceTokenizer(self.teacher.vocab, self.student.lower_case)
        found = tokenizer.tokenize_flat(text)
        count = found.row_lengths()
        unknown = tf.reduce_any(found == self.teacher.vocab.unk_id, axis=1)
        fits = (count > 0) & (count <= words.row_lengths()) & ~unknown
        found, first = tf.ragged.boolean_mask(found, fits), tf.boolean_mask(first, fits)
        places = tf.ragged.range(first, first + found.row_lengths()).values
        kept = tf.where(tf.gather(fits, word), -1, student)
        return tf.tensor_scatter_nd_update(kept, places[:, tf.newaxis], found.values)

    def mix(self, batch: Batch, seed: tf.Tensor) -> Batch:
        """Chooses the tokens of every word of a segmented batch at random, and masks the rows.

        `seed` is int32 [2]. Returns the features of masked records.
        """
        numbers, mask, vocab = batch["word_numbers"], batch["input_mask"], self.teacher.vocab
        draws = tf.random.stateless_uniform(tf.shape(numbers), seed) < _STUDENTS_SHARE
        chosen = tf.gather(draws, numbers, batch_dims=1)
        ids = tf.where(chosen, batch["student_tokens"], batch["teacher_tokens"])
        real = (ids >= 0) & (mask > 0)
        # Moves the tokens of a row to its beginning, in their order; its free places follow.
        order = tf.argsort(tf.cast(~real, tf.int32), axis=1, stable=True)
        ids = tf.where(real, ids, vocab.pad_id)
        types = tf.where(real, batch["input_type_ids"], 0)
        rows = {
            "input_word_ids": tf.gather(ids, order, batch_dims=1),
            "input_mask": tf.gather(tf.cast(real, mask.dtype), order, batch_dims=1),
            "input_type_ids": tf.gather(types, order, batch_dims=1),
            "next_sentence_labels": batch["next_sentence_labels"],
        }
        size = self.first_id + self.student.config.vocab_size
        masking = DynamicMasking(
            vocab.mask_id, vocab.cls_id, vocab.sep_id, size, self.masked_lm_prob
        )
        predictions = batch["masked_lm_positions"].shape[1]
        return mask_batch(rows, predictions, masking, TRAINING, tf.bitcast(seed, tf.int64), 0)


def both_vocabularies(teacher: ModelSpec, student: ModelSpec) -> VocabularyMapping:
    """Returns how the teacher's tables grow by the student's tokens, each from its pieces' mean."""
    first, rows = teacher.config.vocab_size, student.config.vocab_size
    tokens = student.vocab.tokens
    # A table may have more rows than the vocabulary has tokens.
    starts_from = {first + row: (teacher.vocab.unk_id,) for row in range(len(tokens), rows)}
    starts_from |= {first + row: _split(token, teacher.vocab) for row, token in enumerate(tokens)}
    return VocabularyMapping(first, first + rows, starts_from)


def _split(token: str, vocab: Vocabulary) -> tuple[int, ...]:
    """Returns the ids of a token's pieces in another vocabulary: the longest first, or [UNK]."""
    prefix, rest = ("##", token[2:]) if continues_word(token) else ("", token)
    ids = []
    while rest:
        lengths = range(len(rest), 0, -1)
        length = next((n for n in lengths if prefix + rest[:n] in vocab.ids), None)
        if length is None:
            return (vocab.unk_id,)
        ids.append(vocab.ids[prefix + rest[:length]])
        prefix, rest = "##", rest[length:]
    return tuple(ids)
