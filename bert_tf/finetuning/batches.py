"""Batches of tokenized examples, padded only as far as necessary.

A batch is a dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S], or [B, K, S]
for K rows per example;
`example_index`, int32 [B], the number of each row's example, or -1 for a row that only fills the
batch; `example_weights`, float32 [B], 0 for such rows; and the targets, those per token padded
with -1. If there is a target `tags`, training batches have `mean_tags`, float32 [B]: how many of
them an example of the training data has on average.
"""

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.tokenizing import Features

# Batches on a CPU are padded to a multiple of this, so that there are few different shapes.
_LENGTH_STEP = 8


@tf.autograph.experimental.do_not_convert
def train_batches(
    features: Features,
    batch_size: int,
    steps: range,
    seed: int,
    *,
    device: str = "CPU",
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns batches of examples that are reshuffled in every epoch; the seed decides the order.

    `batch_size` counts the examples per step, over all replicas. `steps` are those to take, counted
    from 0 at the start of the run; a resumed run skips some. `device` is for which to pad; see
    `padded_lengths`. `context` comes from `distribute_datasets_from_function`.
    """
    order = features.train_order(batch_size, steps.stop, seed)[steps.start * batch_size :]
    rows, batch_size = _share(tf.data.Dataset.from_tensor_slices(order), batch_size, context)
    rows = rows.batch(batch_size, drop_remainder=True)
    lengths = tf.constant(padded_lengths(features, device))
    batches = rows.map(lambda rows: (rows, tf.reduce_max(tf.gather(lengths, rows))))
    batches = _pad(batches, features, batch_size, device)
    if "tags" not in features.targets:
        return batches
    mean = np.count_nonzero(features.targets["tags"].flat_values >= 0) / len(features)
    means = np.full(batch_size, mean, np.float32)
    return batches.map(lambda batch: batch | {"mean_tags": means})


@tf.autograph.experimental.do_not_convert
def eval_batches(
    features: Features,
    batch_size: int,
    *,
    device: str = "CPU",
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns batches with every example once, ordered by length.

    The batches of all replicas in one step have the same length, so that `Trainer.predict` can
    gather them. The arguments are those of `train_batches`.
    """
    lengths = padded_lengths(features, device)
    # Neighbors of similar length need little padding.
    rows = np.argsort(features.lengths, kind="stable")
    rows = np.append(rows, np.full(-len(rows) % batch_size, -1))
    longest = lengths[np.maximum(rows, 0)].reshape(-1, batch_size).max(axis=1)
    dataset = tf.data.Dataset.from_tensor_slices((rows, np.repeat(longest, batch_size)))
    dataset, batch_size = _share(dataset, batch_size, context)
    batches = dataset.batch(batch_size, drop_remainder=True)
    batches = batches.map(lambda rows, lengths: (rows, lengths[0]))
    return _pad(batches, features, batch_size, device)


def padded_lengths(features: Features, device: str) -> np.ndarray:
    """Returns the length, int32 [N], to which each example has to be padded.

    It is a multiple of 8 on a "CPU", a power of two on a "GPU", for which XLA compiles each length
    anew, and `max_seq_length` on a "TPU", which allows only one.
    """
    lengths, longest = features.lengths, features.max_seq_length
    if device == "TPU":
        rounded = np.full(len(lengths), longest)
    elif device == "GPU":
        rounded = 2 ** np.ceil(np.log2(lengths))
    else:
        rounded = -(-lengths // _LENGTH_STEP) * _LENGTH_STEP
    return np.minimum(rounded, longest).astype(np.int32)


def batch_sizes(features: Features, device: str) -> tuple[np.ndarray, int]:
    """Returns each example's tokens in all rows, int [N], and its places with the most padding."""
    places = int(padded_lengths(features, device).max())
    if features.ids.shape.rank == 2:
        return features.lengths, places
    tokens = tf.reduce_sum(features.ids.row_lengths(axis=2), axis=1).numpy()
    return tokens, places * features.ids.shape[1]


def _share(
    rows: tf.data.Dataset, batch_size: int, context: tf.distribute.InputContext | None
) -> tuple[tf.data.Dataset, int]:
    """Returns the rows and the batch size of one input pipeline."""
    if not context:
        return rows, batch_size
    rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
    return rows, context.get_per_replica_batch_size(batch_size)


def _pad(
    batches: tf.data.Dataset, features: Features, batch_size: int, device: str
) -> tf.data.Dataset:
    """Maps (row numbers [B], length) to batches."""
    static = features.max_seq_length if device == "TPU" else None
    rows_per_example = features.ids.shape[1:-1]

    def pad(values, length, padding):
        if not isinstance(values, tf.RaggedTensor):
            return values
        # -1 stands for the size that the values have.
        dense = values.to_tensor(padding, shape=[-1] * (values.shape.rank - 1) + [length])
        return tf.ensure_shape(dense, [batch_size, *rows_per_example, static])

    def make_batch(numbers, length):
        rows = tf.maximum(numbers, 0)
        ids = tf.gather(features.ids, rows)
        batch = {
            "input_word_ids": pad(ids, length, features.vocab.pad_id),
            "input_mask": pad(tf.ones_like(ids), length, 0),
            "input_type_ids": pad(tf.gather(features.types, rows), length, 0),
            "example_index": tf.cast(numbers, tf.int32),
            "example_weights": tf.cast(numbers >= 0, tf.float32),
        }
        targets = features.targets.items()
        return batch | {name: pad(tf.gather(values, rows), length, -1) for name, values in targets}

    return batches.map(make_batch, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
