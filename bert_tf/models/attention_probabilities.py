"""What the tokens of a text attend to."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from bert_tf.models.encoder import BertEncoder


def attention_probabilities(encoder: BertEncoder, inputs: Mapping[str, Any]):
    """Returns the attention probabilities of every layer and head.

    Training and inference never keep them, so they are computed here from the input of each layer.

    Args:
        encoder: the encoder, or that of another model: `bert_tf.load(path).encoder`.
        inputs: its inputs, int [B, S]; see `BertEncoder`.

    Returns:
        float32 [L, B, N, S, S] without dropout. [l, b, n, i] is how much token i attends to each
        token in head n of layer l: it adds up to 1 and is 0 for padding, and all 0 for a head that
        was removed. A text of 512 tokens takes 151 MB in `base`.

    Example:
        model, tokenizer, config = bert_tf.load("run")
        tokens = tokenizer.tokenize(["a text"])
        inputs = bert_tf.pack_segments([tokens], tokens.flat_values.shape[0] + 2, tokenizer.vocab)
        probabilities = bert_tf.attention_probabilities(model.encoder, inputs)

    Source: Attention Is All You Need (arXiv:1706.03762) section 3.2.1.
    """
    inputs = encoder.named_inputs(inputs)
    embeddings = encoder.embeddings(
        inputs["input_word_ids"], inputs["input_type_ids"], training=False
    )
    outputs = encoder(inputs, training=False)["encoder_outputs"]
    mask = encoder.attention_mask(inputs["input_mask"])
    return ops.stack(
        [
            _all_heads(encoder, index, encoder.block(index).attention.probabilities(x, mask))
            for index, x in enumerate([embeddings, *outputs[:-1]])
        ]
    )


def _all_heads(encoder: BertEncoder, layer: int, probabilities):
    """Adds zeros in the places of removed heads: [B, n, S, S] -> [B, N, S, S]."""
    kept, count = encoder.config.kept_heads(layer), encoder.config.num_attention_heads
    if len(kept) == count:
        return probabilities
    padded = ops.pad(probabilities, ((0, 0), (0, 1), (0, 0), (0, 0)))
    places = [kept.index(head) if head in kept else len(kept) for head in range(count)]
    return ops.take(padded, places, axis=1)
