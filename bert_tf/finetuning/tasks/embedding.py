"""Vectors of texts: similar texts get vectors with a large cosine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import EMBEDDING, BertConfig, Head
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.metrics import rank_right_texts
from bert_tf.finetuning.objectives import RankingObjective, SimilarityObjective
from bert_tf.finetuning.serving import Tensors
from bert_tf.finetuning.task import Outputs
from bert_tf.finetuning.tasks.text_task import RegressionTask, TextTask
from bert_tf.finetuning.tokenizing import Features, encode_rows
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.names import part_of


def with_settings(head: Head, options: FineTuningOptions) -> Head:
    """Returns a head for vectors, with the values of --pooling and --normalize that are given."""
    given = {"pooling": options.pooling, "normalize": options.normalize}
    return replace(head, kind=EMBEDDING, **{x: given[x] for x in given if given[x] is not None})


class _EmbeddingTask(TextTask):
    """Trains a `BertEmbedder`, which reads every text alone; the exported module compares two."""

    head: Head
    apart = True
    predicted = "the value, which their cosine stands for"

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        """Returns those of the encoder, and of the dense layer after the pooling."""
        return model.encoder.weights + [x for x in model.weights if part_of(x.path) == "head"]

    @staticmethod
    def encode(
        examples: TextExamples, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """Tokenizes the texts of each example; ids and types are [N, K, (length)]."""
        columns = _columns(examples)
        texts = [text for row in zip(*columns, strict=True) for text in row]
        rows = TextExamples(texts, None, {}, notes=examples.notes)
        return encode_rows(rows, len(columns), "texts", examples, tokenizer, max_seq_length)

    def serve(self, vectors: tf.Tensor, others: tf.Tensor) -> Tensors:
        """Returns `value`, float32 [B]."""
        vectors, others = (tf.math.l2_normalize(x, axis=-1) for x in (vectors, others))
        cosines = tf.reduce_sum(vectors * others, axis=-1)
        return {"value": cosines * self.head.deviation + self.head.mean}


def _columns(examples: TextExamples) -> list[list[bytes]]:
    """Returns the K texts of each example, by column; a text without another one is its own."""
    columns = [examples.texts_a, examples.texts_b or examples.texts_a, examples.negatives]
    return [column for column in columns if column]


def _check_pairs(texts: np.ndarray) -> tuple[str, ...]:
    """Returns notes on pairs that teach nothing, which must not be all; texts are numbered."""
    found = {"the same text twice": texts[:, 0] == texts[:, 1]}
    if texts.shape[1] > 2:
        found["the right text as the wrong one"] = texts[:, 2] == texts[:, 1]
    # Nothing is wrong for any text then.
    constant = (("the same first text", 0), ("the same second text", 1))
    alike = {what: texts[:, column] == texts[0, column] for what, column in constant}
    for what, same in (found | alike).items():
        if len(texts) > 1 and same.all():
            raise ValueError(f"all {len(texts):,} pairs hold {what}: there is nothing to learn")
    return tuple(f"{same.sum():,} with {what}" for what, same in found.items() if same.any())


@dataclass(frozen=True, kw_only=True)
class SimilarityTask(_EmbeddingTask, RegressionTask):
    """Predicts a number for a pair of texts as the cosine of their vectors.

    Source: Sentence-BERT (arXiv:1908.10084) section 3, "regression objective function".
    """

    @property
    def objective(self) -> SimilarityObjective:
        return SimilarityObjective(self.head.mean, self.head.deviation)


@dataclass(frozen=True, kw_only=True)
class RankingTask(_EmbeddingTask):
    """Finds the text that belongs to another one among those of all examples.

    The target is `texts`, int [N, K]: the number of each text; equal texts have the same. A missing
    wrong text has -1.

    Source: sentence-transformers MultipleNegativesRankingLoss; without second texts, unsupervised
    SimCSE (arXiv:2104.08821), in which the other text is the same one under another dropout mask.
    """

    head: Head
    temperature: float
    metric: str = "mrr@10"
    metrics = ("mrr@10", "recall@1", "recall@5", "recall@10", "loss")

    @property
    def objective(self) -> RankingObjective:
        return RankingObjective(self.temperature)

    def featurize(
        self, examples: TextExamples, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        features = super().featurize(examples, tokenizer, max_seq_length)
        numbers: dict[bytes, int] = {}
        columns = [[numbers.setdefault(x, len(numbers)) for x in c] for c in _columns(examples)]
        first, second = (f"{len(set(column)):,} distinct" for column in columns[:2])
        notes = (*features.notes, f"{first} first and {second} second texts")
        texts = np.array(columns, np.int32).T
        notes += _check_pairs(texts) if examples.texts_b else ()
        missing = [not text.strip() for text in examples.negatives or ()]
        texts[: len(missing), -1][missing] = -1
        return replace(features, targets={"texts": texts}, notes=notes)

    def check_steps(
        self, features: Features, batch_size: int, replicas: int, config: BertConfig
    ) -> str | None:
        texts, rows = features.targets["texts"], batch_size // replicas
        if rows * (texts.shape[1] - 1) < 2:
            raise ValueError(
                f"--train_batch_size={batch_size} leaves one pair per step and device, so there "
                f"are no other candidates: use at least {2 * replicas}"
            )
        same = np.array_equal(texts[:, 0], texts[:, 1])
        if same and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
            raise ValueError(
                "--label_type=pairs without second texts needs dropout, but the configuration has "
                "none: give --text_b_column, or a --bert_config_file with hidden_dropout_prob 0.1"
            )
        if replicas == 1:
            return None
        return (
            f"each text is compared with those of {rows} of {batch_size} examples, those on the "
            f"same device, so results depend on the number of devices ({replicas})"
        )

    def inputs(self, features: Features) -> Features:
        """Returns the distinct first and second texts, which have the lowest numbers."""
        texts = features.targets["texts"]
        numbers, first = np.unique(texts, return_index=True)
        first = first[numbers >= 0][: texts[:, :2].max() + 1]
        ids, types = (
            tf.RaggedTensor.from_uniform_row_length(tf.gather(x.merge_dims(0, 1), first), 1)
            for x in (features.ids, features.types)
        )
        return replace(features, ids=ids, types=types, targets={})

    def decode(self, outputs: Outputs, features: Features) -> Outputs:
        """Returns what `metrics.rank_right_texts` does."""
        texts = features.targets["texts"]
        return rank_right_texts(outputs["vectors"][texts[:, :2]], texts, self.temperature)

    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """Returns the mean reciprocal rank, the recalls and the mean loss of the distinct queries.

        `recall@k` is the share of the queries with a right text among the first k. Ranks after the
        tenth count 0 in `mrr@10`.
        """
        _, first = np.unique(features.targets["texts"][:, 0], return_index=True)
        ranks = outputs["ranks"][first]
        recalls = {f"recall@{k}": float(np.mean(ranks <= k)) for k in (1, 5, 10)}
        reciprocal = float(np.mean(np.where(ranks <= 10, 1 / ranks, 0.0)))
        return {"mrr@10": reciprocal, **recalls, "loss": float(np.mean(outputs["losses"][first]))}

    def prediction_columns(self, outputs: Outputs, features: Features) -> dict[str, Sequence]:
        """Returns the columns rank, that of the right text that ranks first, and its cosine."""
        return {"rank": outputs["ranks"], "cosine": outputs["cosines"]}
