"""The layers of each architecture that `BertEncoder` computes."""

from bert_tf.config import BertConfig
from bert_tf.layers.bottleneck import BottleneckBlock, TrigramEmbeddings
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import EncoderBlock

_LAYERS = {"mobilebert": (TrigramEmbeddings, BottleneckBlock)}


def layers_of(config: BertConfig) -> tuple[type[BertEmbeddings], type[EncoderBlock]]:
    """Returns the classes of the embeddings and of the layers."""
    return _LAYERS.get(config.model_type, (BertEmbeddings, EncoderBlock))
