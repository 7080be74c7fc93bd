"""The architectures that `BertEncoder` computes: one module for each kind of layers.

make_embeddings(config, **named), make_block(config, index, **named)
    create the embeddings and a layer; `named` are Keras' arguments and those of rematerialization
multiplications(config, length, predictions)
    counts those of a forward pass without pooler and next-sentence head; see `models.flops`
"""

from types import ModuleType

from bert_tf.config import BertConfig
from bert_tf.models import bert, mobilebert

_MODULES = {"mobilebert": mobilebert}


def architecture_of(config: BertConfig) -> ModuleType:
    """Returns the module of the architecture that a configuration describes."""
    return _MODULES.get(config.model_type, bert)
