"""Figures of what a model learns and computes.

Each function draws one picture and returns its figure, which a notebook shows when it is the
value of a cell, and which `figure.savefig("picture.png")` writes. With `ax`, it draws into
axes of your own and returns their figure. If pyplot made them, pyplot shows that figure
itself: end the line with a semicolon to see it only once.
"""

from bert_tf.plots.architecture import encoder_layers, pretraining_and_finetuning, task_example
from bert_tf.plots.attention import attention, attention_heads
from bert_tf.plots.confusion import confusion_matrix
from bert_tf.plots.curves import learning_curves
from bert_tf.plots.embeddings import embedding_map, embedding_sum
from bert_tf.plots.words import masked_example, word_probabilities

__all__ = [
    "attention",
    "attention_heads",
    "confusion_matrix",
    "embedding_map",
    "embedding_sum",
    "encoder_layers",
    "learning_curves",
    "masked_example",
    "pretraining_and_finetuning",
    "task_example",
    "word_probabilities",
]
