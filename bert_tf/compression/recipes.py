"""The recipes: a table of methods, each made of a student, the terms of a loss and a schedule.

Every recipe fine-tunes a student on a task; the teacher is a model that was fine-tuned on the same
task. Some also train a student of a pre-trained model on pre-training records, with the masked LM
in place of the task.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bert_tf import choices
from bert_tf.compression import losses
from bert_tf.compression.augmentation import MASKED_AND_SAMPLED, REPLACED, Changes
from bert_tf.compression.distillation import REPLACED_AFTER
from bert_tf.compression.losses import (
    ALWAYS,
    BELOW_LAST,
    EMBEDDINGS,
    LAST,
    PROGRESSIVE,
    PROJECTED,
    STACKED,
    Span,
    Term,
    teacher_layer,
)
from bert_tf.compression.outputs import ATTENTION, HIDDEN
from bert_tf.compression.pruning import HeadsTraining, ZeroingTraining
from bert_tf.compression.quantized_student import Q8BertTraining, QBertTraining
from bert_tf.compression.student import (
    BiLSTMTraining,
    DistillingTraining,
    SharingTraining,
    StudentTraining,
)


class Published(NamedTuple):
    """The row of a model in the survey, relative to BERT-base.

    It is `compression` times smaller, keeps `quality` of BERT-base's, and is `speed_up` times
    faster, if that is stated.

    Source: Compressing Large-Scale Transformer-Based Models (arXiv:2002.11985).
    """

    name: str
    compression: float
    quality: float
    speed_up: float | None


@dataclass(frozen=True)
class Recipe:
    """A method.

    Attributes:
        layers: maps the teacher's number of layers to the indices of those that the student starts
            with, counted from 0; all of them by default.
        labels: the factor of the task's own loss.
        labels_during: when that loss counts.
        replaces: whether training mixes layers of teacher and student; see `mixed_logits`.
        training: what the student is, and how it learns a task.
        changes: what --augment does to copies of texts.
    """

    paper: str
    layers: Callable[[int], Sequence[int]] = range
    labels: float = 1.0
    labels_during: Span = ALWAYS
    terms: tuple[Term, ...] = ()
    replaces: bool = False
    training: type[StudentTraining] = DistillingTraining
    changes: Changes = REPLACED
    published: tuple[Published, ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        """What the terms need besides the logits; see `outputs.compute`."""
        return frozenset(name for term in self.terms for name in term.reads)

    @property
    def predicts(self) -> bool:
        """Whether the loss reads predictions of the student."""
        return bool(self.labels) or any(term.predicts for term in self.terms)

    @property
    def equal(self) -> list[str]:
        """The values that the configurations of student and teacher must share."""
        equal = ["num_attention_heads"] if ATTENTION in self.reads else []
        if self.replaces or any(term.values == HIDDEN for term in self.terms):
            equal.append("hidden_size")
        return equal

    @property
    def absent(self) -> list[str]:
        """The values that neither of the two may have."""
        absent = ["pruned_heads"] if ATTENTION in self.reads else []
        if self.replaces or self.reads:
            absent.append("is_decoder")
        return absent

    @property
    def last_stage(self) -> float:
        """The share of the steps before the last stage; 0 without stages."""
        if self.replaces:
            return REPLACED_AFTER
        return max(start for start, _ in (self.labels_during, *(x.during for x in self.terms)))


def lowest(divisor: int) -> Callable[[int], Sequence[int]]:
    """Keeps the lowest layers, as many as one out of `divisor`."""
    return lambda layers: range(_kept(layers, divisor))


def spread(divisor: int) -> Callable[[int], Sequence[int]]:
    """Keeps one layer out of `divisor`: those that the student's layers are compared with."""

    def layers(num_teacher: int) -> list[int]:
        kept = _kept(num_teacher, divisor)
        return [teacher_layer(layer, kept, num_teacher) - 1 for layer in range(1, kept + 1)]

    return layers


def _kept(layers: int, divisor: int) -> int:
    return max(1, round(layers / divisor))


# Intermediate layers first, then predictions. With one learning rate that falls over both stages,
# the second begins near the rate that TinyBERT uses for it.
_FIRST, _SECOND = (0.0, 0.7), (0.7, 1.0)
_BOTTOM_UP, _AFTERWARDS = (0.0, 0.5), (0.5, 1.0)
# MobileBERT's 240,000 and 500,000 steps.
_TRANSFER, _DISTILLATION = (0.0, 1 / 3), (1 / 3, 1.0)


def _soft_labels(weight: float, temperature: float, during: Span = ALWAYS) -> Term:
    compare = functools.partial(losses.soft_labels, temperature=temperature)
    return Term("soft_labels", compare, weight, during=during)


def _imitated(during: Span) -> tuple[Term, ...]:
    """The terms of TinyBERT's intermediate layers."""
    return (
        Term("attention", losses.attention_error, 1.0, ATTENTION, during=during),
        Term("hidden", losses.hidden_error, 1.0, PROJECTED, during=during),
        Term("embeddings", losses.hidden_error, 1.0, PROJECTED, EMBEDDINGS, during),
    )


def _internal(layers: str) -> tuple[Term, ...]:
    return (
        Term("attention", losses.attention_divergence, 1.0, ATTENTION, layers, _BOTTOM_UP),
        Term("cosine", losses.first_token_cosine, 1.0, HIDDEN, layers, _BOTTOM_UP),
        _soft_labels(0.5, temperature=1.0, during=_AFTERWARDS),
    )


RECIPES: dict[str, Recipe] = {
    "layers": Recipe(
        "Sajjad et al., On the Effect of Dropping Layers (arXiv:2004.03844)",
        lowest(2),
        training=StudentTraining,
    ),
    # The weights are in the ratio of the authors' code, 5 : 2 : 1; on a task, labels are in the
    # place of the masked LM.
    "distilbert": Recipe(
        "Sanh et al., DistilBERT (arXiv:1910.01108)",
        spread(2),
        labels=0.25,
        terms=(
            _soft_labels(0.625, temperature=2.0),
            Term("cosine", losses.token_cosine, 0.125, HIDDEN, LAST),
        ),
        published=(Published("DistilBERT", 2.5, 0.90, 1.6),),
    ),
    "pkd6": Recipe(
        "Sun et al., Patient Knowledge Distillation (arXiv:1908.09355)",
        lowest(2),
        labels=0.5,
        terms=(
            _soft_labels(0.5, temperature=10.0),
            Term("patience", losses.patience, 100.0, HIDDEN, BELOW_LAST),
        ),
        published=(Published("BERT6-PKD", 1.6, 0.97, 1.9),),
    ),
    "pd": Recipe(
        "Turc et al., Well-Read Students Learn Better (arXiv:1908.08962)",
        lowest(2),
        labels=0.0,
        terms=(_soft_labels(1.0, temperature=1.0),),
        published=(Published("PD", 1.6, 0.98, 2.5),),
    ),
    "tinybert": Recipe(
        "Jiao et al., TinyBERT (arXiv:1909.10351)",
        spread(3),
        labels=0.0,
        terms=(*_imitated(_FIRST), _soft_labels(1.0, temperature=1.0, during=_SECOND)),
        published=(Published("TinyBERT", 7.5, 0.96, 9.4),),
    ),
    # The factors are those of the authors' commands; the student is chosen by the user.
    "mobilebert": Recipe(
        "Sun et al., MobileBERT (arXiv:2004.02984)",
        labels=0.5,
        labels_during=_DISTILLATION,
        terms=(
            Term("attention", losses.attention_divergence, 1.0, ATTENTION, STACKED, _TRANSFER),
            Term("hidden", losses.hidden_error, 100.0, PROJECTED, STACKED, _TRANSFER),
            _soft_labels(0.5, temperature=1.0, during=_DISTILLATION),
        ),
        published=(Published("MobileBERT", 4.3, 1.0, 4.0),),
    ),
    # On a task, the student learns from labels alone.
    "mixed-vocabulary": Recipe(
        "Zhao et al., Optimal Subwords and Shared Projections (arXiv:1909.11687v1)",
        training=StudentTraining,
        published=(Published("BERT-192", 5.7, 0.94, 22.0), Published("BERT-48", 62.0, 0.87, 77.0)),
    ),
    # The user chooses the student, which learns from labels alone.
    "albert": Recipe(
        "Lan et al., ALBERT (arXiv:1909.11942)",
        training=SharingTraining,
        published=(
            Published("ALBERT-base", 9.0, 0.97, 5.6),
            Published("ALBERT-xxlarge", 0.47, 1.07, 0.3),
        ),
    ),
    "internal": Recipe(
        "Aguilar et al., Knowledge Distillation from Internal Representations (arXiv:1910.03723)",
        spread(2),
        labels=0.5,
        labels_during=_AFTERWARDS,
        terms=_internal(STACKED),
        published=(Published("Aguilar et al.", 2.0, 0.94, None),),
    ),
    "theseus": Recipe(
        "Xu et al., BERT-of-Theseus (arXiv:2002.02925)",
        lowest(2),
        replaces=True,
        published=(Published("BERT-of-Theseus", 1.6, 0.98, None),),
    ),
    "heads": Recipe(
        "Michel et al., Are Sixteen Heads Really Better than One? (arXiv:1905.10650)",
        training=HeadsTraining,
    ),
    "weights": Recipe(
        "Gordon et al., Compressing BERT (arXiv:2002.08307)", training=ZeroingTraining
    ),
    "q8bert": Recipe(
        "Zafrir et al., Q8BERT (arXiv:1910.06188)",
        training=Q8BertTraining,
        published=(Published("Q8BERT", 4.0, 0.99, None),),
    ),
    "qbert": Recipe(
        "Shen et al., Q-BERT (arXiv:1909.05840)",
        training=QBertTraining,
        published=(Published("Q-BERT", 13.0, 0.99, None),),
    ),
    "bilstm": Recipe(
        "Tang et al., Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136)",
        labels=0.0,
        terms=(Term("outputs", losses.squared_error),),
        training=BiLSTMTraining,
        changes=MASKED_AND_SAMPLED,
        published=(Published("BiLSTM (Tang et al.)", 110.0, 0.91, 434.0),),
    ),
}
"""The recipes by the values of --recipe."""


RECIPES |= {
    "pkd3": replace(
        RECIPES["pkd6"],
        layers=lowest(4),
        published=(Published("BERT3-PKD", 2.4, 0.92, 3.7),),
    ),
    "internal-progressive": replace(
        RECIPES["internal"], terms=_internal(PROGRESSIVE), published=()
    ),
    "minibert": replace(
        RECIPES["pd"],
        paper="Tsai et al., Small and Practical BERT Models for Sequence Labeling "
        "(arXiv:1909.00100)",
        layers=lowest(4),
        published=(Published("MiniBERT", 6.0, 0.98, 27.0),),
    ),
}

GENERAL_RECIPES = {name: RECIPES[name] for name in choices.GENERAL_RECIPES} | {
    "tinybert": replace(RECIPES["tinybert"], terms=_imitated(ALWAYS))
}
"""The recipes for pre-training records."""
