"""The names of the weights in Hugging Face's BERT, ALBERT and MobileBERT models."""

from collections.abc import Mapping

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.formats import albert
from bert_tf.weights.names import weights
from bert_tf.weights.table import Row

# The ends of the paths of weights that PyTorch stores as [out, in].
_TRANSPOSED = ("kernel", "own_embeddings")
# How names begin, by the model's type, in place of BERT's beginnings.
_BEGINNINGS = {"albert": albert.HUGGINGFACE_NAMES, "mobilebert": {"bert.": "mobilebert."}}
# Older files also hold the tied weights of the masked-LM head.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def rows(config: BertConfig, kind: str | None, prefix: bool = True, old: bool = False) -> list[Row]:
    """Returns the table as a file spells it.

    Args:
        kind: the kind of the head.
        prefix: whether names of the encoder begin with the type, as in all models with heads.
        old: whether LayerNorms have "gamma" and "beta", as in files of before 2019.
    """
    type_name = config.model_type

    def spelled(name: str) -> str:
        name = albert.renamed(name, _BEGINNINGS.get(type_name, {}))
        if kind == "span" and name.startswith("classifier."):
            name = name.replace("classifier.", "qa_outputs.")
        if old:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            name = name.replace("LayerNorm.bias", "LayerNorm.beta")
        return name if prefix else name.removeprefix(f"{type_name}.")

    return [
        Row(weight, spelled(weight.huggingface), weight.path.endswith(_TRANSPOSED))
        for weight in weights(config)
    ]


def copies(path: str, type_name: str, theirs: Mapping[str, Tensor]) -> list[str]:
    """Returns the names of tensors that add nothing: tied weights and positions.

    Args:
        path: the folder, for messages.
        type_name: the model's type in transformers.
    """
    found = []
    for names in _TIED.items():
        copy, original = (albert.renamed(n, _BEGINNINGS.get(type_name, {})) for n in names)
        if copy in theirs and original in theirs:
            found.append(copy)
            if not np.array_equal(theirs[copy].read(), theirs[original].read()):
                raise ValueError(
                    f"{path}: {copy} differs from {original}: only tied weights are supported"
                )
    for name in ("embeddings.position_ids", f"{type_name}.embeddings.position_ids"):
        if name in theirs:
            found.append(name)
            positions = theirs[name].read().ravel()
            if not np.array_equal(positions, np.arange(len(positions))):
                raise ValueError(f"{path}: {name} is not 0, 1, 2, ...: this is not supported")
    return found
