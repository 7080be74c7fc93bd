"""From examples to batches: tokenized once, kept without padding, padded a batch at a time."""

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert_tf.finetuning.task import Examples
from bert_tf.text.packing import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer

_TEXTS_AT_ONCE = 512
# Batches are as long as their longest example, rounded up to this: few different shapes.
_LENGTH_STEP = 16


@dataclass(frozen=True)
class EncodedExamples:
    """Packed examples without padding, [N, (length)], and what packing met with.

    `truncated` counts examples that were too long, `not_utf8` texts with bytes that were dropped.
    """

    ids: tf.RaggedTensor
    types: tf.RaggedTensor
    labels: np.ndarray
    truncated: int
    not_utf8: int
    pad_id: int
    max_seq_length: int

    def __len__(self) -> int:
        return len(self.labels)


def encode(
    examples: Examples, tokenizer: WordPieceTokenizer, max_seq_length: int, description: str
) -> EncodedExamples:
    """Tokenizes and packs examples, showing progress under `description`."""
    columns = [texts for texts in (examples.texts_a, examples.texts_b) if texts is not None]

    def pack(*texts):
        segments = [tokenizer.tokenize_flat(text) for text in texts]
        pieces = tf.add_n([segment.row_lengths() for segment in segments])
        too_long = pieces + len(segments) + 1 > max_seq_length
        packed = pack_segments(segments, max_seq_length, tokenizer.vocab)
        mask = tf.cast(packed["input_mask"], tf.bool)
        ids = tf.ragged.boolean_mask(packed["input_word_ids"], mask)
        types = tf.ragged.boolean_mask(packed["input_type_ids"], mask)
        return ids, types, tf.math.count_nonzero(too_long)

    dataset = tf.data.Dataset.from_tensor_slices(tuple(columns)).batch(_TEXTS_AT_ONCE)
    chunks = []
    with tqdm(total=len(examples), desc=description, unit="example", leave=False) as bar:
        for chunk in dataset.map(pack, tf.data.AUTOTUNE):
            chunks.append(chunk)
            bar.update(int(chunk[0].nrows()))
    ids, types, truncated = zip(*chunks, strict=True)
    return EncodedExamples(
        ids=tf.concat(ids, 0),
        types=tf.concat(types, 0),
        labels=examples.labels,
        truncated=int(sum(truncated)),
        not_utf8=sum(not _is_utf8(text) for texts in columns for text in texts),
        pad_id=tokenizer.vocab.pad_id,
        max_seq_length=max_seq_length,
    )


def train_batches(
    examples: EncodedExamples,
    batch_size: int,
    seed: int,
    skip: int = 0,
    static_length: bool = False,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Endless batches, in another order in every epoch; the same seed gives the same batches.

    Args:
        batch_size: over all replicas.
        skip: examples to pass over, for going on after an interruption.
        static_length: pad every batch to `max_seq_length`, as a TPU needs it.
        context: of `distribute_datasets_from_function`.

    Returns:
        Dicts of `input_word_ids`, `input_mask`, `input_type_ids` int32 [B, S], `labels` int32 [B]
        and `example_weights` float32 [B].
    """
    rows = tf.data.Dataset.range(len(examples)).shuffle(len(examples), seed).repeat().skip(skip)
    return _batches(rows, examples, batch_size, static_length, context)


def eval_batches(
    examples: EncodedExamples,
    batch_size: int,
    static_length: bool = False,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Every example once, short ones first; rows of weight 0 fill the last batch.

    Arguments and returns are those of `train_batches`.
    """
    # Neighbours of like length need little padding.
    rows = np.argsort(examples.ids.row_lengths().numpy(), kind="stable")
    missing = math.ceil(len(rows) / batch_size) * batch_size - len(rows)
    rows = tf.data.Dataset.from_tensor_slices(np.append(rows, np.full(missing, -1)))
    return _batches(rows, examples, batch_size, static_length, context)


def _batches(rows, examples, batch_size, static_length, context) -> tf.data.Dataset:
    if context:
        rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        batch_size = context.get_per_replica_batch_size(batch_size)
    labels = tf.constant(examples.labels)
    longest = examples.max_seq_length

    def batch(rows):
        real = rows >= 0
        rows = tf.maximum(rows, 0)
        ids, types = (tf.gather(x, rows) for x in (examples.ids, examples.types))
        lengths = ids.row_lengths()
        length = longest
        if not static_length:
            steps = -(-tf.reduce_max(lengths) // _LENGTH_STEP)
            length = tf.minimum(steps * _LENGTH_STEP, longest)

        def padded(values, padding):
            dense = values.to_tensor(padding)
            fill = [[0, 0], [0, tf.cast(length, tf.int32) - tf.shape(dense)[1]]]
            dense = tf.pad(dense, fill, constant_values=padding)
            return tf.ensure_shape(dense, [batch_size, longest if static_length else None])

        return {
            "input_word_ids": padded(ids, examples.pad_id),
            "input_mask": padded(tf.ones_like(ids), 0),
            "input_type_ids": padded(types, 0),
            "labels": tf.gather(labels, rows),
            "example_weights": tf.cast(real, tf.float32),
        }

    batches = rows.batch(batch_size, drop_remainder=True).map(batch, tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
