"""What distillation compares: outputs of two models, computed once where they never change."""

import dataclasses
import hashlib
import io
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.objectives import MultiLabelObjective, RegressionObjective, SpanObjective
from bert_tf.finetuning.saved_run import PRECOMPUTED
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.provenance import check_same
from bert_tf.runs.run import Run
from bert_tf.training.trainer import Objective
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.files import read_file
from tfrecords.progress import say
from tfrecords.writer import atomic_write

HIDDEN, ATTENTION = "hidden", "attention"


class Outputs(NamedTuple):
    """What a model computed for a batch, in float32.

    Attributes:
        output: what the model returns.
        logits: its predictions: the output of a task model, or the `mlm_logits` [B, P, V] of a
            pre-trainer; None for an encoder.
        hidden: the embeddings and the output of every layer, [B, S, H], with a row for every
            choice; hidden[l] is the output of layer l, counted from 1. Empty if not asked for.
        scores: the attention scores of every layer before the softmax, [B, N, S, S]. Empty if not
            asked for.
    """

    output: Any
    logits: tf.Tensor | None
    hidden: list[tf.Tensor]
    scores: list[tf.Tensor]

    @property
    def num_layers(self) -> int:
        return len(self.hidden) - 1


def compute(
    model: keras.Model, batch: Mapping[str, tf.Tensor], reads: Collection[str], training: bool
) -> Outputs:
    """Calls a task model, a pre-trainer or an encoder; returns what `reads` names, and the logits.

    Attention scores are computed from the input of each layer, because the attention itself does
    not keep them.
    """
    encoder, rows = getattr(model, "encoder", model), encoder_inputs(model, batch)
    if isinstance(model, BertTaskModel):
        seeds = encoder.dropout_seeds(rows, training)
        outputs = encoder(rows, seeds=seeds, training=training)
        output = logits = model.logits(outputs, batch, seeds, training)
    else:
        output = outputs = model(batch, training=training)
        logits = tf.cast(outputs["mlm_logits"], tf.float32) if "mlm_logits" in outputs else None
    if not reads:
        return Outputs(output, logits, [], [])
    # With the seeds of the call above, so that the same elements are dropped.
    embeddings = encoder.embeddings(
        rows["input_word_ids"],
        rows["input_type_ids"],
        seeds=encoder.dropout_seeds(rows, training),
        training=training,
    )
    hidden = [embeddings, *outputs["encoder_outputs"]]
    scores = []
    if ATTENTION in reads:
        scores = [encoder.block(i).attention.scores(x) for i, x in enumerate(hidden[:-1])]
    return Outputs(output, logits, [tf.cast(x, tf.float32) for x in hidden], scores)


def encoder_inputs(model: keras.Model, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """Returns what the encoder of a model reads, with a row for every choice."""
    return model.rows(batch) if isinstance(model, BertTaskModel) else batch


def distributions(objective: Objective, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns logits whose softmax over the last axis is what the model predicts; or its numbers.

    | objective             | returns                                                 |
    |-----------------------|---------------------------------------------------------|
    | `MultiLabelObjective` | [B, C, 2]: for every class, whether it applies          |
    | `SpanObjective`       | [B, 2, S]: the start and the end, never at padding      |
    | `RegressionObjective` | [B]: numbers, in standard deviations                    |
    | others                | `logits`                                                |
    """
    if isinstance(objective, MultiLabelObjective):
        return tf.stack([logits, tf.zeros_like(logits)], axis=-1)
    if isinstance(objective, SpanObjective):
        padding = tf.cast(mask == 0, tf.float32)[:, :, tf.newaxis]
        return tf.transpose(logits - 1e9 * padding, [0, 2, 1])
    if isinstance(objective, RegressionObjective):
        return logits / objective.deviation
    return logits


Arrays = dict[str, np.ndarray]
_DIGEST_BYTES = hashlib.sha256().digest_size
# The fields of other encoders, and what a BERT has in their place.
_OTHER_FIELDS = {
    "bilstm": None,
    "intra_bottleneck_size": None,
    "num_feedforward_networks": None,
    "key_query_shared_bottleneck": False,
}


def computed_once(
    run_folder: str | None, name: str, inputs: object, compute: Callable[[], Arrays]
) -> Arrays:
    """Returns the result of `compute`; keeps it in the run folder and reads it there the next time.

    The file holds a checksum of the inputs and the arrays, then the arrays in NumPy's npz format.

    Args:
        run_folder: the run folder; None to keep nothing.
        name: the name of the file, such as "copies".
        inputs: everything that determines the result; different inputs differ in their `repr`.
    """
    if run_folder is None:
        return compute()
    path, key = os.path.join(run_folder, PRECOMPUTED, name), repr(inputs).encode()
    stored = _read(path)
    digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if digest == hashlib.sha256(key + content).digest():
        say(f"Read {path}.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    if stored:
        say(f"{path} is damaged or belongs to other flags or data: computing it again.")
    arrays, file = compute(), io.BytesIO()
    np.savez(file, **arrays)
    content = file.getvalue()
    atomic_write(path, hashlib.sha256(key + content).digest() + content)
    return arrays


def _read(path: str) -> bytes:
    """Returns the content of a file; empty if there is no such file."""
    return read_file(path) if tf.io.gfile.exists(path) else b""


def check_same_teacher(run_folder: str, teacher: Checkpoint) -> None:
    """Raises a ValueError unless a run resumes with its teacher.

    The teacher's checksum is kept in the run folder.
    """
    path, digest = os.path.join(run_folder, PRECOMPUTED, "teacher"), fingerprint(teacher)
    stored = _read(path).decode(errors="replace")
    if stored and Run(run_folder).has_checkpoint:
        then, now = ({teacher.path: {"sha256": x}} for x in (stored, digest))
        check_same(run_folder, then, now, "restore it, or choose another --output_dir")
    if stored != digest:
        atomic_write(path, digest)


def config_text(config: BertConfig) -> str:
    """Returns a configuration as text; it must not change, so that runs recognize their teachers.

    All kinds of encoders once had the same fields.
    """
    names = [field.name for field in dataclasses.fields(BertConfig)]
    values = {name: getattr(config, name) for name in names[:-1]}
    values |= {name: getattr(config, name, default) for name, default in _OTHER_FIELDS.items()}
    values[names[-1]] = getattr(config, names[-1])
    return f"BertConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def fingerprint(checkpoint: Checkpoint) -> str:
    """Returns a checksum of a model: its weights, configuration, vocabulary, casing and head."""
    spec = checkpoint.spec
    vocab = spec.vocab and spec.vocab.sha256
    rest = f"{vocab!r}, {spec.lower_case!r}, {checkpoint.head!r}"
    digest = hashlib.sha256(f"({config_text(spec.config)}, {rest})".encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.read()).tobytes())
    return digest.hexdigest()
