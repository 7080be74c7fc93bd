"""Random weights and inputs for the tests of encoders."""

import keras
import numpy as np

from bert_tf.config import BertConfig

SMALL = BertConfig(
    vocab_size=101,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=40,
)


def randomize(model: keras.Model) -> keras.Model:
    """Sets all weights to random values, so that every bias and normalization is tested."""
    generator = np.random.default_rng(0)
    for weight in model.weights:
        values = generator.normal(0.0, 0.2, weight.shape)
        weight.assign(values + weight.path.endswith("gamma"))
    return model


def random_inputs(config: BertConfig, batch: int = 3, length: int = 17) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    mask = np.arange(length) < generator.integers(length // 2, length + 1, (batch, 1))
    return {
        "input_word_ids": generator.integers(0, config.vocab_size, (batch, length)) * mask,
        "input_mask": mask.astype(np.int32),
        "input_type_ids": generator.integers(0, 2, (batch, length)) * mask,
    }
