"""Removes the attention heads that a fine-tuned model needs least."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.features import Features
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.iteration import with_progress
from bert_tf.training.trainer import Objective


def head_importance(
    model: BertTaskModel, objective: Objective, features: Features, batch_size: int
) -> list[np.ndarray]:
    """Returns how sensitive the loss is to each head, normalized in each layer.

        I_h = mean_x |dL(x) / dg_h|,  divided by the Euclidean norm of the layer

    g_h = 1 is a factor on the output of head h, so that |dL(x) / dg_h| is, to first order, how much
    the loss of an example x changes without the head. There is no dropout.

    Args:
        objective: what the model was trained to minimize.
        features: the training examples.

    Returns:
        for every layer, the importance of its heads, float64 [N].

    Source: Are Sixteen Heads Really Better than One? (arXiv:1905.10650) equation 2 and section
    4.1.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def sensitivities(batch):
        blocks = [model.encoder.block(i) for i in range(model.config.num_hidden_layers)]
        gates = [tf.ones([batch_size, block.attention.num_heads]) for block in blocks]
        with tf.GradientTape() as tape:
            tape.watch(gates)
            outputs = gated_outputs(model, batch, gates)
            sums = objective.sums(lambda *_, **__: outputs, batch, False)
            # Each gate belongs to one example, so that the gradient of a sum is that of each.
            loss = tf.add_n([sums[name] for name in objective.losses])
        return [tf.reduce_sum(tf.abs(slope), axis=0) for slope in tape.gradient(loss, gates)]

    batches = eval_batches(features, batch_size)
    batches = with_progress(batches, "Importance of heads", total=len(batches))
    found = [sensitivities(batch) for batch in batches]
    totals = [np.sum(layer, axis=0, dtype=np.float64) for layer in zip(*found, strict=True)]
    return [layer / max(np.linalg.norm(layer), 1e-20) for layer in totals]


def gated_outputs(
    model: BertTaskModel, batch: Mapping[str, tf.Tensor], gates: Sequence[tf.Tensor]
) -> tf.Tensor:
    """Computes the output of a model with factors on the outputs of its heads.

    Args:
        gates: for every layer, the factors of each example, float32 [B, N].
    """
    encoder, rows = model.encoder, model.rows(batch)
    choices = tf.shape(batch["input_mask"])[1] if model.kind == "multiple_choice" else 1
    mask = rows["input_mask"]
    x = encoder.embeddings(rows["input_word_ids"], rows["input_type_ids"], training=False)
    allowed = encoder.attention_mask(mask)
    for index, factors in enumerate(gates):
        factors = tf.repeat(factors, choices, axis=0)
        x = encoder.block(index)(x, allowed, gates=factors, training=False)
    outputs = {"sequence_output": x, "pooled_output": encoder.pool(x, mask)}
    return model.logits(outputs, batch)


def least_important(importance: Sequence[np.ndarray], share: float) -> dict[int, list[int]]:
    """Chooses the places of the heads to remove, by layer.

    They are the least important ones of all layers together, except that the most important head
    of a layer always stays.

    Args:
        importance: see `head_importance`.
        share: how many of all heads to remove.
    """
    spared = {(layer, int(np.argmax(values))) for layer, values in enumerate(importance)}
    order = sorted(
        (value, layer, head)
        for layer, values in enumerate(importance)
        for head, value in enumerate(values)
        if (layer, head) not in spared
    )
    count = round(share * sum(map(len, importance)))
    chosen: dict[int, list[int]] = {}
    for _, layer, head in order[:count]:
        chosen.setdefault(layer, []).append(head)
    return {layer: sorted(chosen[layer]) for layer in sorted(chosen)}
