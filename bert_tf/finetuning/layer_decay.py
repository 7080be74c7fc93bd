"""Layer-wise decay of the learning rate."""

import re
from collections.abc import Sequence

import keras


def rate_factors(weights: Sequence[keras.Variable], num_layers: int, decay: float) -> list[float]:
    """Returns the factor on the learning rate of each weight: 1 for the head, less below it.

    The factor is decay^1 for the pooler, decay^2 for the last layer, and so on down to
    decay^(num_layers + 2) for the embeddings.

    Args:
        weights: the weights of a model with a `BertEncoder` named "encoder".
        num_layers: the number of layers with weights of their own.

    Source: ELECTRA (arXiv:2003.10555) appendix B; google-research/electra model/optimization.py
    `_get_layer_lrs`.
    """
    return [decay ** _distance(weight.path, num_layers) for weight in weights]


def _distance(path: str, num_layers: int) -> int:
    """Returns how far below the head a weight is."""
    if layer := re.search(r"(?:^|/)encoder/layer_(\d+)/", path):
        return num_layers + 1 - int(layer[1])
    for name, distance in (("pooler", 1), ("embeddings", num_layers + 2)):
        if re.search(rf"(?:^|/)encoder/{name}/", path):
            return distance
    return 0
