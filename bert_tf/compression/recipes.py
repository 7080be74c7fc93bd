"""The recipes: a table of methods, each made of a student, the terms of a loss and a schedule.

Every recipe fine-tunes a student on a task; the teacher is a model that was fine-tuned on the same
task. Some also train a student of a pre-trained model on pre-training records, with the masked LM
in place of the task. Importing this does not import TensorFlow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

# Shares of the steps of a run.
Span = tuple[float, float]
ALWAYS = (0.0, 1.0)

# What a term compares: predictions, hidden states, those that are projected to the teacher's width,
# or attention scores.
LOGITS, HIDDEN, PROJECTED, ATTENTION = "logits", "hidden", "projected", "attention"

# The layers of the student to compare. The last two divide a span among the layers, from the lowest
# to the highest: a STACKED layer stays active once it has begun, PROGRESSIVE layers take turns.
EMBEDDED, LAST, BELOW_LAST, EVERY = "embeddings", "last", "below last", "every"
STACKED, PROGRESSIVE = "stacked", "progressive"

REPLACED_AFTER = 2 / 3
"""The share of the steps after which a student whose layers replace its teacher's trains alone."""


class Term(NamedTuple):
    """A term of the loss: the sum over its layers or, for `BELOW_LAST`, their mean."""

    name: str  # in the metrics
    compare: str  # one of the functions in `losses`
    weight: float = 1.0  # its factor in the loss
    values: str = LOGITS
    layers: str = EVERY
    during: Span = ALWAYS  # the part of the run in which it counts
    temperature: float | None = None

    @property
    def predicts(self) -> bool:
        """Whether it compares predictions."""
        return self.values == LOGITS

    @property
    def reads(self) -> tuple[str, ...]:
        """What it needs besides the logits; see `losses.compute`."""
        if self.predicts:
            return ()
        return (HIDDEN, ATTENTION) if self.values == ATTENTION else (HIDDEN,)


@dataclass(frozen=True)
class Loss:
    """What a student minimizes: the loss of its task, and terms that compare it with its teacher.

    `labels` is the factor of the task's own loss, which counts during `labels_during`. `replaces`
    says whether training mixes layers of teacher and student; see `mixed_logits`.
    """

    labels: float = 1.0
    labels_during: Span = ALWAYS
    terms: tuple[Term, ...] = ()
    replaces: bool = False

    @property
    def compares(self) -> bool:
        """Whether training needs the teacher."""
        return bool(self.terms) or self.replaces

    @property
    def reads(self) -> frozenset[str]:
        """What the terms need besides the logits; see `losses.compute`."""
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


@dataclass(frozen=True)
class Recipe:
    """A method. `compress` has tables of how the students of some of them start and train.

    The student starts with one out of `divisor` layers of the teacher, the lowest ones or, if they
    are `spread`, those that its layers are compared with.
    """

    paper: str
    loss: Loss = Loss()
    divisor: int = 1
    spread: bool = False
    has_default: bool = True  # whether there is a student if the flags name none
    shares_layers: bool = False  # whether the student's layers must share their weights
    samples: bool = False  # whether --augment also masks words, and keeps only some of a copy
    unsuited: tuple[str, ...] = ()  # flags that do not suit the student

    def layers(self, count: int) -> Sequence[int]:
        """Returns which of `count` layers the student starts with, counted from 0."""
        kept = max(1, round(count / self.divisor))
        if not self.spread:
            return range(kept)
        return [teacher_layer(layer, kept, count) - 1 for layer in range(1, kept + 1)]


def teacher_layer(layer: int, num_student: int, num_teacher: int) -> int:
    """Returns the teacher's layer for a student's layer; both count from 1, and 0 maps to 0."""
    return round(layer * num_teacher / num_student)


# Intermediate layers first, then predictions. With one learning rate that falls over both stages,
# the second begins near the rate that TinyBERT uses for it.
_FIRST, _SECOND = (0.0, 0.7), (0.7, 1.0)
_BOTTOM_UP, _AFTERWARDS = (0.0, 0.5), (0.5, 1.0)
# MobileBERT's 240,000 and 500,000 steps.
_TRANSFER, _DISTILLATION = (0.0, 1 / 3), (1 / 3, 1.0)


def _soft_labels(weight: float, temperature: float, during: Span = ALWAYS) -> Term:
    return Term("soft_labels", "soft_labels", weight, during=during, temperature=temperature)


def _imitated(during: Span) -> tuple[Term, ...]:
    """The terms of TinyBERT's intermediate layers."""
    return (
        Term("attention", "attention_error", 1.0, ATTENTION, during=during),
        Term("hidden", "hidden_error", 1.0, PROJECTED, during=during),
        Term("embeddings", "hidden_error", 1.0, PROJECTED, EMBEDDED, during),
    )


def _internal(layers: str) -> Loss:
    return Loss(
        0.5,
        _AFTERWARDS,
        (
            Term("attention", "attention_divergence", 1.0, ATTENTION, layers, _BOTTOM_UP),
            Term("cosine", "first_token_cosine", 1.0, HIDDEN, layers, _BOTTOM_UP),
            _soft_labels(0.5, temperature=1.0, during=_AFTERWARDS),
        ),
    )


# The factors are those of the authors' commands.
_MOBILEBERT = (
    Term("attention", "attention_divergence", 1.0, ATTENTION, STACKED, _TRANSFER),
    Term("hidden", "hidden_error", 100.0, PROJECTED, STACKED, _TRANSFER),
    _soft_labels(0.5, temperature=1.0, during=_DISTILLATION),
)
# The weights are in the ratio of the authors' code, 5 : 2 : 1, with labels as the masked LM.
_DISTILBERT = (
    _soft_labels(0.625, temperature=2.0),
    Term("cosine", "token_cosine", 0.125, HIDDEN, LAST),
)
_PATIENT = Loss(
    0.5,
    terms=(
        _soft_labels(0.5, temperature=10.0),
        Term("patience", "patience", 100.0, HIDDEN, BELOW_LAST),
    ),
)
_PREDICTIONS = Loss(0.0, terms=(_soft_labels(1.0, temperature=1.0),))

_PKD6 = Recipe("Sun et al., Patient Knowledge Distillation (arXiv:1908.09355)", _PATIENT, divisor=2)
_INTERNAL = Recipe(
    "Aguilar et al., Knowledge Distillation from Internal Representations (arXiv:1910.03723)",
    _internal(STACKED),
    divisor=2,
    spread=True,
)

RECIPES = {
    "layers": Recipe(
        "Sajjad et al., On the Effect of Dropping Layers (arXiv:2004.03844)", divisor=2
    ),
    "distilbert": Recipe(
        "Sanh et al., DistilBERT (arXiv:1910.01108)",
        Loss(0.25, terms=_DISTILBERT),
        divisor=2,
        spread=True,
    ),
    "pkd6": _PKD6,
    "pkd3": replace(_PKD6, divisor=4),
    "pd": Recipe(
        "Turc et al., Well-Read Students Learn Better (arXiv:1908.08962)",
        _PREDICTIONS,
        divisor=2,
    ),
    "tinybert": Recipe(
        "Jiao et al., TinyBERT (arXiv:1909.10351)",
        Loss(0.0, terms=(*_imitated(_FIRST), _soft_labels(1.0, temperature=1.0, during=_SECOND))),
        divisor=3,
        spread=True,
    ),
    "mobilebert": Recipe(
        "Sun et al., MobileBERT (arXiv:2004.02984)",
        Loss(0.5, _DISTILLATION, _MOBILEBERT),
        has_default=False,
    ),
    # On a task, the student learns from labels alone.
    "mixed-vocabulary": Recipe(
        "Zhao et al., Optimal Subwords and Shared Projections (arXiv:1909.11687v1)",
        has_default=False,
    ),
    "albert": Recipe(
        "Lan et al., ALBERT (arXiv:1909.11942)",
        has_default=False,
        shares_layers=True,
    ),
    "internal": _INTERNAL,
    "internal-progressive": replace(_INTERNAL, loss=_internal(PROGRESSIVE)),
    "theseus": Recipe(
        "Xu et al., BERT-of-Theseus (arXiv:2002.02925)",
        Loss(replaces=True),
        divisor=2,
    ),
    "heads": Recipe(
        "Michel et al., Are Sixteen Heads Really Better than One? (arXiv:1905.10650)",
        unsuited=("init_checkpoint", "preset", "bert_config_file"),
    ),
    "weights": Recipe(
        "Gordon et al., Compressing BERT (arXiv:2002.08307)",
        unsuited=("freeze_encoder",),
    ),
    "q8bert": Recipe(
        "Zafrir et al., Q8BERT (arXiv:1910.06188)",
    ),
    "qbert": Recipe(
        "Shen et al., Q-BERT (arXiv:1909.05840)",
        unsuited=("init_checkpoint", "student_layers", "preset", "bert_config_file"),
    ),
    "minibert": Recipe(
        "Tsai et al., Small and Practical BERT Models for Sequence Labeling (arXiv:1909.00100)",
        _PREDICTIONS,
        divisor=4,
    ),
    "bilstm": Recipe(
        "Tang et al., Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136)",
        Loss(0.0, terms=(Term("outputs", "squared_error"),)),
        samples=True,
        unsuited=("student_layers", "preset", "bert_config_file", "layer_decay"),
    ),
}
"""The recipes by the values of --recipe."""

GENERAL_RECIPES = {
    "distilbert": RECIPES["distilbert"],
    "tinybert": replace(RECIPES["tinybert"], loss=Loss(0.0, terms=_imitated(ALWAYS))),
    "mobilebert": RECIPES["mobilebert"],
    "mixed-vocabulary": RECIPES["mixed-vocabulary"],
}
"""The recipes for pre-training records."""
