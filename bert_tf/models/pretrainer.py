"""The encoder with both pre-training heads, and the losses and metrics of pre-training."""

import keras
from keras import ops

from bert_tf.base.calling import checked
from bert_tf.base.tensorflow_ops import argmax
from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.layers.bert import DenseHead, MaskedLMHead
from bert_tf.layers.padding import places_of
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import POSITIONS, BertModel


class BertPretrainer(BertModel):
    """A `BertEncoder` with a masked-LM head and a next-sentence head.

    Args:
        config: sizes and rates; see `BertConfig`.
        rematerialize: as in `BertEncoder`.

    Call: the encoder's inputs and `masked_lm_positions` int [B, P] -> the encoder's outputs,
    `mlm_logits` [B, P, V] and `next_sentence_logits` [B, 2], whose class 1 is "random next". With
    `output_places`, int [M] (see `BertEncoder`), it scores these instead of `masked_lm_positions`,
    and returns only `mlm_logits` [M, V] and `next_sentence_logits`.

    Example:
        inputs = bert_tf.load_preprocessor("run")(["the [MASK] sat"])
        outputs = bert_tf.load("run").model(inputs | {"masked_lm_positions": [[2]]})

    Source: BERT (arXiv:1810.04805) section 3.1; google-research/bert run_pretraining.py.
    """

    reads = (POSITIONS,)
    arguments = ("rematerialize",)
    default_name = "pretrainer"

    @checked
    def __init__(self, config: BertConfig | str, rematerialize: str = "none", **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.rematerialize = rematerialize
        policy = dict(dtype=self.dtype_policy)
        self.encoder = BertEncoder(config, rematerialize, **policy)
        self.masked_lm = MaskedLMHead(config, name="masked_lm", **policy)
        self.next_sentence = DenseHead(config, 2, name="next_sentence", **policy)
        self.build()

    def build(self, input_shape=None) -> None:
        table = self.encoder.embeddings.word_embeddings.shape
        self.masked_lm.build((None, None, self.config.hidden_size), (None, None), table)
        self.next_sentence.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        outputs = self.encoder(inputs, training=training)
        next_sentence_logits = self.next_sentence(outputs["pooled_output"], training=training)
        table = self.encoder.embeddings.word_embeddings
        if "output_places" in inputs:
            mlm_logits, outputs = self.masked_lm(outputs["at_places"], None, table), {}
        else:
            mlm_logits = self.masked_lm(outputs["sequence_output"], inputs[POSITIONS], table)
        return outputs | {"mlm_logits": mlm_logits, "next_sentence_logits": next_sentence_logits}


class PretrainingObjective:
    """Masked-LM plus next-sentence loss, with the accuracies that the original reports.

    It is an `Objective` of `training.trainer`.

    Args:
        next_sentence: whether to learn from segment pairs. In sentence-order prediction (ALBERT,
            arXiv:1909.11942 section 3.1), segments are swapped rather than random. Without pairs,
            only the masked LM is trained (RoBERTa, arXiv:1907.11692 section 4.2).

    Source: google-research/bert run_pretraining.py `get_masked_lm_output`,
    `get_next_sentence_output`, `metric_fn`. The original adds 1e-5 to the weights that it divides
    the masked-LM sum by; this implementation does not.
    """

    def __init__(self, next_sentence: bool = True):
        kinds = ("masked_lm", "next_sentence") if next_sentence else ("masked_lm",)
        self.losses = tuple(f"{kind}_loss" for kind in kinds)
        self.measures = self.losses + tuple(f"{kind}_accuracy" for kind in kinds)

    def counts(self, batch: dict) -> dict:
        """Returns the numbers of masked tokens and of segment pairs in a batch."""
        tokens = ops.sum(batch["masked_lm_weights"])
        pairs = ops.sum(batch["example_weights"])
        return self._select(masked_lm=(tokens, tokens), next_sentence=(pairs, pairs))

    def sums(self, model: keras.Model, batch: dict, training: bool) -> dict:
        """Returns the summed losses and hits of a batch."""
        places = places_of(batch[POSITIONS], ops.shape(batch["input_word_ids"])[1])
        ids = ops.reshape(batch["masked_lm_ids"], (-1,))
        weights = ops.reshape(batch["masked_lm_weights"], (-1,))
        if model.encoder.skips_padding:
            kept = ops.nonzero(weights)[0]
            places, ids, weights = (ops.take(x, kept) for x in (places, ids, weights))
        outputs = model(batch | {"output_places": places}, training=training)
        if len(outputs["mlm_logits"].shape) == 3:
            # A caller that computed the outputs itself has them for all predictions.
            ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
        recompute = model.encoder.rematerialize != "none"
        masked_lm = _loss_and_hits(outputs["mlm_logits"], ids, weights, recompute)
        next_sentence = _loss_and_hits(
            outputs["next_sentence_logits"],
            batch["next_sentence_labels"],
            batch["example_weights"],
            recompute,
        )
        return self._select(masked_lm=masked_lm, next_sentence=next_sentence)

    def outputs(self, model: keras.Model, batch: dict) -> dict:
        """Returns `mlm_logits` [B, P, V] and `next_sentence_logits` [B, 2]."""
        outputs = model(batch, training=False)
        return {name: outputs[name] for name in ("mlm_logits", "next_sentence_logits")}

    def _select(self, *, masked_lm: tuple, next_sentence: tuple) -> dict:
        """Maps measures to the (loss, accuracy) of both kinds, without the measures not in use."""
        values = {
            "masked_lm_loss": masked_lm[0],
            "next_sentence_loss": next_sentence[0],
            "masked_lm_accuracy": masked_lm[1],
            "next_sentence_accuracy": next_sentence[1],
        }
        return {name: values[name] for name in self.measures}


def _loss_and_hits(logits, labels, weights, recompute):
    hits = ops.cast(ops.equal(argmax(logits), labels), "float32")
    losses = fused.cross_entropy(logits, labels, recompute)
    return ops.sum(losses * weights), ops.sum(hits * weights)
