"""The loop with BERT: replicas against one device, compiled against not, evaluation by hand."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.training.checkpoints import Checkpointer, load_weights
from bert_tf.training.loop import Trainer, fit
from bert_tf.training.optimizers import AdamW
from bert_tf.training.schedules import linear_warmup_and_decay
from bert_tf.training.strategy import check_batch_size, describe, make_strategy

CONFIG = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=16,
)
ROWS, LENGTH, PREDICTIONS = 32, 16, 3


def examples() -> dict[str, np.ndarray]:
    """With unequal numbers of masked words per row, which is where replicas could go wrong."""
    generator = np.random.default_rng(0)
    return {
        "input_word_ids": generator.integers(0, 60, (ROWS, LENGTH), np.int32),
        "input_mask": np.ones((ROWS, LENGTH), np.int32),
        "input_type_ids": generator.integers(0, 2, (ROWS, LENGTH), np.int32),
        "masked_lm_positions": generator.integers(0, LENGTH, (ROWS, PREDICTIONS), np.int32),
        "masked_lm_ids": generator.integers(0, 60, (ROWS, PREDICTIONS), np.int32),
        "masked_lm_weights": (generator.random((ROWS, PREDICTIONS)) > 0.5).astype(np.float32),
        "next_sentence_labels": generator.integers(0, 2, ROWS, np.int32),
        "example_weights": (np.arange(ROWS) < ROWS - 3).astype(np.float32),
    }


def make_trainer(strategy, config=CONFIG, jit_compile=None) -> Trainer:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = BertPretrainer(config)
        optimizer = AdamW(model.trainable_weights)
    schedule = linear_warmup_and_decay(0.01, 20, 2)
    return Trainer(
        strategy, model, PretrainingObjective(), optimizer, schedule, jit_compile=jit_compile
    )


def make_iterator(strategy, batch_size=8):
    return iter(
        strategy.distribute_datasets_from_function(
            lambda context: (
                tf.data.Dataset.from_tensor_slices(examples())
                .repeat()
                .batch(context.get_per_replica_batch_size(batch_size), drop_remainder=True)
            )
        )
    )


def losses(strategy, jit_compile=None) -> list[float]:
    trainer, iterator = make_trainer(strategy, jit_compile=jit_compile), make_iterator(strategy)
    return [trainer.means(trainer.train(iterator, 1))["loss"] for _ in range(10)]


@pytest.fixture(scope="module")
def one_device_losses() -> list[float]:
    return losses(make_strategy("cpu"))


def test_two_replicas_give_the_losses_of_one(one_device_losses):
    """Oracle: one device, the same global batch; dropout is 0."""
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert describe(mirrored) == "2 CPU replicas"
    np.testing.assert_allclose(losses(mirrored), one_device_losses, rtol=0, atol=1e-5)
    assert one_device_losses[-1] < one_device_losses[0] - 0.1


def test_a_compiled_step_gives_the_losses_of_one_that_is_not(one_device_losses):
    """Oracle: the step without XLA."""
    compiled = losses(make_strategy("cpu"), jit_compile=True)
    np.testing.assert_allclose(compiled, one_device_losses, rtol=0, atol=1e-4)


def test_many_steps_in_one_call_are_the_same_steps(one_device_losses):
    """Oracle: steps taken one at a time."""
    strategy = make_strategy("cpu")
    trainer, iterator = make_trainer(strategy), make_iterator(strategy)
    trainer.train(iterator, 9)
    last = trainer.means(trainer.train(iterator, 1))["loss"]
    assert last == pytest.approx(one_device_losses[-1], abs=1e-5)
    assert trainer.step.numpy() == 10


def test_evaluation_worked_in_numpy_whatever_the_batch_size():
    """Oracle: log-softmax in NumPy over the rows whose weight is 1."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    data = examples()
    outputs = trainer.model(data)
    words = np.asarray(outputs["mlm_logits"], np.float64)
    words -= np.log(np.exp(words).sum(-1, keepdims=True))
    pairs = np.asarray(outputs["next_sentence_logits"], np.float64)
    pairs -= np.log(np.exp(pairs).sum(-1, keepdims=True))
    word_weights, weights = data["masked_lm_weights"], data["example_weights"]
    labels, next_labels = data["masked_lm_ids"], data["next_sentence_labels"]
    word_losses = -np.take_along_axis(words, labels[..., None], -1)[..., 0]
    pair_losses = -np.take_along_axis(pairs, next_labels[:, None], -1)[:, 0]
    expected = {
        "masked_lm_loss": np.average(word_losses, weights=word_weights),
        "next_sentence_loss": np.average(pair_losses, weights=weights),
        "masked_lm_accuracy": np.average(words.argmax(-1) == labels, weights=word_weights),
        "next_sentence_accuracy": np.average(pairs.argmax(-1) == next_labels, weights=weights),
    }
    expected["loss"] = expected["masked_lm_loss"] + expected["next_sentence_loss"]
    for batch_size in (4, 32):
        batches = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
        results = trainer.evaluate(strategy.experimental_distribute_dataset(batches))
        assert results == pytest.approx(expected, abs=1e-5)


def test_gradients_are_clipped_as_one_vector():
    """Oracle: after the first step AdamW's m is 0.1 times the clipped gradient."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    trainer.clip_norm = 0.05
    trainer.train(make_iterator(strategy), 1)
    slots = trainer.optimizer.slots
    m = np.concatenate([slots[name].numpy().ravel() for name in slots if name.endswith("adam_m")])
    assert np.linalg.norm(m) == pytest.approx(0.1 * 0.05, rel=1e-4)


def test_a_checkpoint_restores_weights_moments_and_step(tmp_path):
    """Oracle: the run that was not interrupted."""
    strategy = make_strategy("cpu")
    whole, iterator = make_trainer(strategy), make_iterator(strategy)
    checkpointer = Checkpointer(str(tmp_path), whole.model, whole.optimizer, whole.step)
    assert checkpointer.restore() is None
    whole.train(iterator, 4)
    path = checkpointer.save()
    expected = whole.means(whole.train(iterator, 4))["loss"]

    resumed = make_trainer(strategy)
    resumed.model.set_weights([w + 1 for w in resumed.model.get_weights()])
    restored = Checkpointer(str(tmp_path), resumed.model, resumed.optimizer, resumed.step)
    assert restored.restore() == path == str(tmp_path / "ckpt-4")
    assert resumed.step.numpy() == 4
    # Four batches make an epoch of the 32 rows: the data stands where it did.
    found = resumed.means(resumed.train(make_iterator(strategy), 4))["loss"]
    assert found == expected


def test_weights_are_loaded_by_name_or_not_at_all(tmp_path):
    """Oracle: the saved model's weights; a wrong shape and a missing name are named."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    path = Checkpointer(str(tmp_path), trainer.model, trainer.optimizer, trainer.step).save()
    keras.utils.set_random_seed(5)
    encoder = BertPretrainer(CONFIG).encoder
    load_weights(path, encoder.weights)
    for ours, theirs in zip(encoder.weights, trainer.model.encoder.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())

    other = BertPretrainer(dataclasses.replace(CONFIG, intermediate_size=40))
    before = [weight.numpy() for weight in other.weights]
    with pytest.raises(ValueError, match=r"layer_0/intermediate_kernel has shape \(32, 64\) there"):
        load_weights(path, other.weights)
    deeper = BertPretrainer(dataclasses.replace(CONFIG, num_hidden_layers=3))
    with pytest.raises(ValueError, match="has no encoder/layer_2/"):
        load_weights(path, deeper.weights)
    for weight, value in zip(other.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_old_checkpoints_are_deleted_and_a_nan_is_not_saved(tmp_path):
    """Oracle: the files in the folder, after good steps and after a weight has become NaN."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    saved = Checkpointer(str(tmp_path), trainer.model, trainer.optimizer, trainer.step, 2)
    fit(trainer, make_iterator(strategy), 6, 8, saved, save_checkpoints_steps=2)
    assert sorted(p.stem for p in tmp_path.glob("*.index")) == ["ckpt-4", "ckpt-6"]
    trainer.model.encoder.pooler.dense_bias.assign(np.full(32, np.nan))
    with pytest.raises(ValueError, match="the loss is nan in the steps 7 to 7"):
        fit(trainer, make_iterator(strategy), 20, 8, saved, save_checkpoints_steps=20)
    assert sorted(p.stem for p in tmp_path.glob("*.index")) == ["ckpt-4", "ckpt-6"]


def test_missing_devices_are_named():
    with pytest.raises(ValueError, match="--strategy=gpu: TensorFlow finds no GPU here"):
        make_strategy("gpu")
    with pytest.raises(ValueError, match="--strategy=tpu: no TPU on this machine"):
        make_strategy("tpu")
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with pytest.raises(ValueError, match="--train_batch_size=7 is not a multiple of the 2 repl"):
        check_batch_size(mirrored, "train_batch_size", 7)


@pytest.mark.parametrize("damage", ["data cut", "data lost", "index cut", "byte flipped"])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    """Oracle: the file that was damaged."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    path = Checkpointer(str(tmp_path), trainer.model, trainer.optimizer, trainer.step).save()
    data, index = tmp_path / "ckpt-0.data-00000-of-00001", tmp_path / "ckpt-0.index"
    content = bytearray(data.read_bytes())
    if damage == "data cut":
        data.write_bytes(content[: len(content) // 2])
    if damage == "data lost":
        data.unlink()
    if damage == "index cut":
        index.write_bytes(index.read_bytes()[:-20])
    if damage == "byte flipped":
        content[len(content) // 2] ^= 0xFF
        data.write_bytes(content)
    again = make_trainer(strategy)
    checkpointer = Checkpointer(str(tmp_path), again.model, again.optimizer, again.step)
    with pytest.raises(OSError, match=f"{path} is damaged or incomplete"):
        checkpointer.restore()
    with pytest.raises(OSError, match=f"{path} is damaged or incomplete"):
        # The flipped byte is in the optimizer's moments or in the weights; all are read here.
        load_weights(path, again.model.weights)
        checkpointer.restore()


def test_a_lost_state_file_does_not_start_a_run_over(tmp_path):
    """Oracle: the checkpoint that is there all the same."""
    strategy = make_strategy("cpu")
    trainer = make_trainer(strategy)
    checkpointer = Checkpointer(str(tmp_path), trainer.model, trainer.optimizer, trainer.step)
    checkpointer.save()
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(OSError, match='`checkpoint` is lost or damaged; write .*"ckpt-0"'):
        Checkpointer(str(tmp_path), trainer.model, trainer.optimizer, trainer.step).restore()


def test_a_deeper_checkpoint_is_of_another_model(tmp_path):
    """Oracle: the layer that this model lacks."""
    strategy = make_strategy("cpu")
    deeper = make_trainer(strategy, dataclasses.replace(CONFIG, num_hidden_layers=3))
    path = Checkpointer(str(tmp_path), deeper.model, deeper.optimizer, deeper.step).save()
    with pytest.raises(ValueError, match="has encoder/layer_2/.* besides; it is of another model"):
        load_weights(path, BertPretrainer(CONFIG).encoder.weights)
