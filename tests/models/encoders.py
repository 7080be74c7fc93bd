"""Random weights and inputs for the tests of encoders."""

import keras
import numpy as np

from bert_tf.config import BertConfig, MobileBertConfig

SMALL = BertConfig(101, 48, 3, 4, 80, max_position_embeddings=40)
# Without dropout.
STILL = BertConfig(101, 48, 2, 4, 80, "gelu", 0.0, 0.0, 40)
MOBILE = MobileBertConfig(
    *(101, 48, 2, 4, 80, "relu", 0.0, 0.0, 40),
    embedding_size=16,
    intra_bottleneck_size=24,
    num_feedforward_networks=2,
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
