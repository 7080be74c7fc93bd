"""Several models as one."""

from collections.abc import Callable, Sequence

import keras


class Ensemble(keras.Model):
    """Models of one task, which read the same inputs; the output combines theirs.

    Args:
        members: the models.
        combine: maps the list of their outputs, and the inputs, to the output.

    Call: the inputs of a member -> an output like that of a member.

    Source: BERT (arXiv:1810.04805) table 2, whose best results are those of ensembles.
    """

    def __init__(self, members: Sequence[keras.Model], combine: Callable):
        super().__init__(name="ensemble")
        self.members, self._combine = list(members), combine
        self.built = True

    def call(self, inputs, training=None):
        return self._combine([model(inputs, training=training) for model in self.members], inputs)
