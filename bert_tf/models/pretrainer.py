"""The encoder with both pre-training heads, and what pre-training measures."""

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.heads import DenseHead, MaskedLMHead


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(keras.Model):
    """A `BertEncoder` with a masked-LM and a next-sentence head.

    Args:
        config: sizes and rates; see `BertConfig`.
        rematerialize: as in `BertEncoder`.

    Call: the encoder's inputs and `masked_lm_positions` int [B, P] -> the encoder's outputs,
    `mlm_logits` [B, P, V] and `next_sentence_logits` [B, 2], whose class 1 is "random next".

    Source: BERT (arXiv:1810.04805) section 3.1; google-research/bert run_pretraining.py.
    """

    def __init__(
        self,
        config: BertConfig,
        rematerialize: str = "none",
        name: str = "pretrainer",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.config = config
        policy = dict(dtype=self.dtype_policy)
        self.encoder = BertEncoder(config, rematerialize, **policy)
        self.masked_lm = MaskedLMHead(
            config.vocab_size,
            config.hidden_act,
            config.layer_norm_eps,
            config.initializer_range,
            name="masked_lm",
            **policy,
        )
        self.next_sentence = DenseHead(
            2, initializer_range=config.initializer_range, name="next_sentence", **policy
        )
        self.build()

    def build(self, input_shape=None) -> None:
        table = self.encoder.embeddings.word_embeddings.shape
        self.masked_lm.build((None, None, self.config.hidden_size), (None, None), table)
        self.next_sentence.build((None, self.config.hidden_size))
        self.built = True

    def call(self, inputs, training=None):
        outputs = self.encoder(inputs, training=training)
        mlm_logits = self.masked_lm(
            outputs["sequence_output"],
            inputs["masked_lm_positions"],
            self.encoder.embeddings.word_embeddings,
        )
        next_sentence_logits = self.next_sentence(outputs["pooled_output"], training=training)
        return outputs | {"mlm_logits": mlm_logits, "next_sentence_logits": next_sentence_logits}

    def get_config(self):
        return self.encoder.get_config() | {"name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"config": BertConfig.from_dict(config["config"])})


class PretrainingObjective:
    """Masked-LM plus next-sentence loss, with the accuracies the original reports.

    An objective gives, for every measure, a sum over a batch and the count to divide it by; both
    add up over replicas and batches, so every mean is exact however the examples are divided.
    The loss to minimize is the total of the measures named in `losses`.

    Args:
        next_sentence: whether the pairs count. In sentence-order prediction (ALBERT,
            arXiv:1909.11942 section 3.1) they are swapped instead of random; without pairs the
            masked words are all there is to learn (RoBERTa, arXiv:1907.11692 section 4.2).

    Source: google-research/bert run_pretraining.py `get_masked_lm_output`,
    `get_next_sentence_output`, `metric_fn`. The original divides the masked-LM sum by its weights
    plus 1e-5; here there is no such constant.
    """

    def __init__(self, next_sentence: bool = True):
        kinds = ("masked_lm", "next_sentence") if next_sentence else ("masked_lm",)
        self.losses = tuple(f"{kind}_loss" for kind in kinds)
        self.measures = self.losses + tuple(f"{kind}_accuracy" for kind in kinds)

    def counts(self, batch: dict) -> dict:
        """The number of masked words and of pairs in a batch of `training_batches`."""
        words = ops.sum(batch["masked_lm_weights"])
        pairs = ops.sum(batch["example_weights"])
        return self._chosen(words, pairs, words, pairs)

    def sums(self, model: keras.Model, batch: dict, training: bool) -> dict:
        """The summed losses and hits of a batch."""
        outputs = model(batch, training=training)
        recompute = model.encoder.rematerialize != "none"
        words = _loss_and_hits(
            outputs["mlm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"], recompute
        )
        pairs = _loss_and_hits(
            outputs["next_sentence_logits"],
            batch["next_sentence_labels"],
            batch["example_weights"],
            recompute,
        )
        return self._chosen(words[0], pairs[0], words[1], pairs[1])

    def _chosen(self, word_loss, pair_loss, word_hits, pair_hits) -> dict:
        values = {
            "masked_lm_loss": word_loss,
            "next_sentence_loss": pair_loss,
            "masked_lm_accuracy": word_hits,
            "next_sentence_accuracy": pair_hits,
        }
        return {name: values[name] for name in self.measures}


def _loss_and_hits(logits, labels, weights, recompute):
    # Not ops.argmax, whose care for negative zeros takes several passes over all logits.
    best = ops.top_k(logits, 1)[1][..., 0]
    hits = ops.cast(ops.equal(best, labels), "float32")
    losses = fused.cross_entropy(logits, labels, recompute)
    return ops.sum(losses * weights), ops.sum(hits * weights)
