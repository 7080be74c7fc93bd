"""Computes any number of examples in one graph, in batches of similar length."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.finite import check_computed
from bert_tf.base.process import check_not_forked
from bert_tf.base.progress import with_progress
from bert_tf.inference.texts import in_groups
from bert_tf.text.coverage import CoverageCheck

# Batches of longer examples are smaller, because all windows of their texts are in memory at once.
_CHARACTERS = 4096
_COUNT = "num_truncated"


class Engine:
    """Computes what a module serves, for any number of examples. Threads may share it.

    TensorFlow traces one graph for batches of any size and length. It reads the weights whenever it
    runs, so training changes what it computes.

    Args:
        module: a `ServingModule`, or what a SavedModel or a file holds of one.

    Attributes:
        signature: the inputs of the module.
        truncates: as in `ServingModule`; None for a module that does not count.
    """

    def __init__(self, module: tf.Module):
        # What was loaded from a SavedModel lives only as long as its module.
        self._module = module
        self.signature = module.serving.input_signature
        self.truncates = getattr(module, "truncates", None)
        self._compute = module.serving
        self._check = CoverageCheck(getattr(module, "tokenizer", None))
        if self.truncates:
            # In one graph, which tokenizes the texts once.
            @tf.function(input_signature=self.signature, autograph=False)
            def compute(*columns):
                return module.serving(*columns) | {_COUNT: module.num_truncated(*columns)}

            self._compute = compute

    def run(
        self, rows: Sequence[tuple], batch_size: int, progress: str | None = None
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray], int]]:
        """Computes rows, each a string or a list of strings for every input.

        Args:
            batch_size: the most rows of a batch.
            progress: what a progress bar says, if the work takes more than a few seconds.

        Yields:
            for each batch, the indices of its rows, their outputs by name, [B, ...], and how many
            of them were truncated.
        """
        check_not_forked()
        self._check(text for row in rows for text in tf.nest.flatten(row))
        batches = [*_batches(rows, batch_size)]
        hidden = not progress or len(batches) == 1
        for batch in with_progress(batches, progress or "", len(batches), disable=hidden):
            columns = zip(*(rows[index] for index in batch), strict=True)
            outputs = self._compute(*map(tf.constant, columns))
            outputs = {name: values.numpy() for name, values in outputs.items()}
            num_truncated = int(outputs.pop(_COUNT, 0))
            check_computed(outputs)
            yield batch, outputs, num_truncated


def _batches(rows: Sequence[tuple], batch_size: int) -> Iterator[list[int]]:
    """Yields indices of rows with as many strings, in batches of similar length."""
    strings = [tf.nest.flatten(row) for row in rows]
    sizes = [(len(texts), sum(map(len, texts))) for texts in strings]
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for _, same in itertools.groupby(order, lambda i: sizes[i][0]):
        most = batch_size * _CHARACTERS
        yield from in_groups(same, lambda i: max(sizes[i][1], _CHARACTERS), most)
