"""Predicts examples with the module of a fine-tuning task."""

import itertools
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.finetuning.serving import TextModule
from bert_tf.inference.answers import Answer, answer_of
from bert_tf.inference.examples import Example
from bert_tf.inference.lines import in_chunks
from bert_tf.text.tokenizer import WordPieceTokenizer


class Predictor:
    """Predicts examples in batches of similar length.

    Args:
        module: what `Task.serving` returns.
        batch_size: examples per call of the model.
        tokenizer, max_seq_length: of the module.

    Attributes:
        signature: the inputs of the model.
        num_truncated: number of examples that were truncated so far.
    """

    def __init__(
        self,
        module: tf.Module,
        batch_size: int,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
    ):
        self._tokenizer, self._max_seq_length = tokenizer, max_seq_length
        self.num_truncated = 0
        self.signature = module.serving.input_signature
        self._module, self._batch_size = module, batch_size
        labels = getattr(module, "labels", None)
        self._labels = () if labels is None else [name.decode() for name in labels.numpy()]

    def predict(self, examples: Sequence[Example]) -> list[Answer]:
        """Returns the answers to examples, in their order."""
        answers: list[Answer | None] = [None] * len(examples)
        order = sorted(range(len(examples)), key=lambda index: self._size(examples[index]))
        for _, same in itertools.groupby(order, lambda index: self._size(examples[index])[0]):
            for batch in in_chunks(same, self._batch_size):
                columns = [[examples[i][spec.name] for i in batch] for spec in self.signature]
                self._count_truncated(columns)
                outputs = self._module.serving(*map(tf.constant, columns))
                outputs = {name: values.numpy() for name, values in outputs.items()}
                for row, index in enumerate(batch):
                    own = {name: values[row] for name, values in outputs.items()}
                    text = examples[index][self.signature[0].name]
                    answers[index] = answer_of(own, self._labels, text)
        return answers

    def _count_truncated(self, columns: Sequence[Sequence[str]]) -> None:
        # Other modules read long texts in windows.
        if isinstance(self._module, TextModule):
            tokens = sum(self._tokenizer.tokenize_flat(x).row_lengths() for x in columns)
            limit = self._max_seq_length - len(columns) - 1
            self.num_truncated += int(tf.math.count_nonzero(tokens > limit))

    def _size(self, example: Example) -> tuple[int, int]:
        """Returns the number of strings, which is the same in a batch, and their length."""
        values = [example[spec.name] for spec in self.signature]
        strings = [s for value in values for s in ([value] if isinstance(value, str) else value)]
        return len(strings), sum(map(len, strings))
