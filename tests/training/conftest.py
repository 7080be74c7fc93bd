"""A small BERT to train, and 32 rows of data."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.training.checkpoints import Checkpointer
from bert_tf.training.optimizers import AdamW, make_schedule
from bert_tf.training.trainer import Trainer

_CONFIG = BertConfig(60, 32, 1, 2, 64, "gelu", 0.0, 0.0, max_position_embeddings=16)
_ROWS, _LENGTH, _PREDICTIONS = 32, 16, 3


@pytest.fixture(scope="session")
def examples() -> dict[str, np.ndarray]:
    """Rows with unequal numbers of masked tokens, for which replicas could go wrong."""
    generator = np.random.default_rng(0)
    return {
        "input_word_ids": generator.integers(0, 60, (_ROWS, _LENGTH), np.int32),
        "input_mask": np.ones((_ROWS, _LENGTH), np.int32),
        "input_type_ids": generator.integers(0, 2, (_ROWS, _LENGTH), np.int32),
        "masked_lm_positions": generator.integers(0, _LENGTH, (_ROWS, _PREDICTIONS), np.int32),
        "masked_lm_ids": generator.integers(0, 60, (_ROWS, _PREDICTIONS), np.int32),
        "masked_lm_weights": (generator.random((_ROWS, _PREDICTIONS)) > 0.5).astype(np.float32),
        "next_sentence_labels": generator.integers(0, 2, _ROWS, np.int32),
        "example_weights": (np.arange(_ROWS) < _ROWS - 3).astype(np.float32),
    }


@pytest.fixture(scope="session")
def config() -> BertConfig:
    return _CONFIG


@pytest.fixture(scope="session")
def make_trainer():
    def make(strategy, config=_CONFIG, **arguments) -> Trainer:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = BertPretrainer(config)
            optimizer = AdamW(model.trainable_weights)
        schedule = make_schedule(0.01, 20, 2)
        return Trainer(strategy, model, PretrainingObjective(), optimizer, schedule, **arguments)

    return make


@pytest.fixture(scope="session")
def make_iterator(examples):
    """A function (strategy, batch size, first step) -> the rows in order, repeatedly."""

    def make(strategy, batch_size=8, first_step=0):
        return iter(
            strategy.distribute_datasets_from_function(
                lambda context: (
                    tf.data.Dataset.from_tensor_slices(examples)
                    .repeat()
                    .skip(first_step * batch_size)
                    .batch(context.get_per_replica_batch_size(batch_size), drop_remainder=True)
                )
            )
        )

    return make


@pytest.fixture(scope="session")
def losses(make_trainer, make_iterator):
    def losses(strategy, **arguments) -> list[float]:
        trainer, iterator = make_trainer(strategy, **arguments), make_iterator(strategy)
        return [_one_loss(trainer, iterator) for _ in range(10)]

    return losses


def _one_loss(trainer, iterator) -> float:
    trainer.restart_means()
    assert trainer.train(iterator, 1) is None
    return trainer.training_means()["loss"]


@pytest.fixture(scope="session")
def make_checkpointer():
    def make(folder, trainer, max_to_keep=5) -> Checkpointer:
        return Checkpointer(str(folder), trainer.model, trainer.state, max_to_keep)

    return make
