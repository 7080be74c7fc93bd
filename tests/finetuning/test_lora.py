"""LoRA: what trains, what the best weights hold, and the adapters alone."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from support import assert_same_state, one_device, save_run, tuning_options, two_replicas

import bert_tf
from bert_tf.checkpoint import open_checkpoint
from bert_tf.config import BertConfig, Head, MobileBertConfig
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.finetuning.lora import LoraModel
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import run
from bert_tf.runs.run import Run
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Trainer

CONFIG = BertConfig(
    20, 8, 2, 2, 16, max_position_embeddings=16, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)  # fmt: skip
LOSSES = [1.385470, 0.647839, 0.761670, 0.773625, 0.635718]
# Of A and B of queries and values, layer by layer, then of pooler and head, kernel before bias.
NORMS = [1.921594, 0.579767, 1.375714, 0.453276, 2.256769, 0.715850, 2.023949, 0.448200,
         4.661800, 1.918621, 2.145881, 0.308625]  # fmt: skip


def _batches():
    random = np.random.default_rng(1)
    for _ in range(5):
        lengths = random.integers(3, 9, 4)
        yield {
            "input_word_ids": random.integers(0, 20, [4, 8]).astype(np.int32),
            "input_mask": (np.arange(8) < lengths[:, None]).astype(np.int32),
            "input_type_ids": random.integers(0, 2, [4, 8]).astype(np.int32),
            "labels": random.integers(0, 2, 4).astype(np.int32),
            "example_weights": np.ones(4, np.float32),
        }


@pytest.mark.parametrize("make_strategy", [one_device, two_replicas])
def test_trains_as_peft_does(make_strategy):
    """Oracle: peft 0.21.2 with transformers 5.24 and torch 2.14, on the same weights and batches.

    There, `LoraConfig(r=2, lora_alpha=3, target_modules=["query", "value"], modules_to_save=
    ["pooler", "classifier"])` wraps a BertForSequenceClassification; `clip_grad_norm_` clips to 1,
    and torch's AdamW (1e-6, no decay of biases) takes the steps. Of the digits of float32, Adam
    loses some where gradients are small.
    """
    strategy, random = make_strategy(), np.random.default_rng(0)
    with strategy.scope():
        model = LoraModel(BertTaskModel(CONFIG, 2), rank=2, alpha=3.0, trains_pooler=True)
        for weight in model.weights:
            if not weight.path.endswith("_b"):
                weight.assign(random.normal(0, 0.5, weight.shape))
        optimizer = AdamW(model.trainable_weights, bias_correction=True)
    frozen = [weight.numpy() for weight in model.non_trainable_weights]
    objective, rate = ClassificationObjective(), tf.constant(0.05)
    trainer = Trainer(strategy, model, objective, optimizer, lambda step: rate)
    losses = []
    for batch in _batches():
        trainer.restart_means()
        batches = tf.data.Dataset.from_tensor_slices(batch).batch(4)
        trainer.train(iter(strategy.experimental_distribute_dataset(batches)), 1)
        losses.append(trainer.training_means()["loss"])
    assert losses == pytest.approx(LOSSES, abs=2e-6)
    norms = [np.linalg.norm(weight) for weight in model.trainable_weights]
    assert norms == pytest.approx(NORMS, rel=3e-5)
    for weight, before in zip(model.non_trainable_weights, frozen, strict=True):
        np.testing.assert_array_equal(weight, before)


MOBILE = MobileBertConfig(
    20, 8, 1, 2, 8, max_position_embeddings=16, embedding_size=8, intra_bottleneck_size=4,
    num_feedforward_networks=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip


@pytest.mark.parametrize("config", [CONFIG, MOBILE])
def test_the_sums_are_those_of_the_paper(config):
    """Oracles: equation 3 of the paper in NumPy, for queries, which come first, and values; peft's
    range of A. Training computes what an evaluation computes with the sums in place.
    """
    model = LoraModel(BertTaskModel(config, 3, "tagger"), 2, 3.0, Head("tagger").reads_pooler)
    assert {w.path.partition("/")[0] for w in model.trainable_weights} == {"lora", "task_model"}
    weights, batch = {weight.path: weight for weight in model.weights}, next(_batches())
    assert 0.7 * 8**-0.5 < abs(weights["lora/layer_0_query_a"].numpy()).max() < 8**-0.5
    start = model.task_model(batch)
    np.testing.assert_array_equal(model(batch, training=True), start)
    for path, weight in weights.items():
        if path.endswith("_b"):
            weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    pairs = ([weights[f"lora/layer_0_{x}_{y}"].numpy() for y in "ab"] for x in ("query", "value"))
    query, value = (1.5 * a @ b for a, b in pairs)
    zeros = np.zeros_like(query)
    expected = {"qkv": [query, zeros, value]}
    if config is MOBILE:
        expected = {"qk": [query, zeros], "value": [value]}
    paths = {f"encoder/layer_0/attention/{x}_kernel": y for x, y in expected.items()}
    totals = {x: weights[x].numpy() + np.concatenate(y, axis=1) for x, y in paths.items()}
    training = model(batch, training=True).numpy()
    with model.merged():
        np.testing.assert_array_equal(model.task_model(batch), training)
        for path, total in totals.items():
            np.testing.assert_allclose(weights[path], total, atol=1e-6)
    assert not np.allclose(training, start)
    np.testing.assert_array_equal(model.task_model(batch), start)


@pytest.fixture(scope="module")
def options(files, pretrained, tmp_path_factory):
    """Of a finished run whose initial checkpoint has no pooler."""
    folder = tmp_path_factory.mktemp("lora")
    spec = Run(pretrained).spec
    base = save_run(folder / "base", BertEncoder(spec.config), spec.vocab, spec.lower_case)
    options = tuning_options(
        files, folder / "sst2", init_checkpoint=base, bert_config_file=None, vocab_file=None,
        num_train_epochs=2.0, lora_rank=4, learning_rate=3e-2,
    )  # fmt: skip
    assert run(options)["eval_accuracy"] > 0.95
    return options


def test_the_best_weights_are_merged_and_the_adapters_stand_alone(
    options, pack, sentences, tmp_path
):
    """Oracles: base + 16 / 4 A B in NumPy; the model that every other command opens.

    The adapters have what trained; the base may move, but no other model takes its place.
    """
    base = open_checkpoint(options.init_checkpoint).tensors
    best, task, _ = open_fine_tuned(options.output_dir, None, None, pairs=False)
    with np.load(f"{options.output_dir}/adapters.npz") as file:
        arrays = dict(file)
    description = json.loads(str(arrays.pop("description")))
    assert (description["task"], description["rank"]) == ("sst2", 4)
    assert description["base"] == options.init_checkpoint
    query, value = (
        4 * arrays[f"lora/layer_0_{x}_a"] @ arrays[f"lora/layer_0_{x}_b"]
        for x in ("query", "value")
    )
    product = np.concatenate([query, np.zeros_like(query), value], axis=1)
    assert abs(product).max() > 1e-2
    for path, tensor in best.tensors.items():
        expected = arrays[path] if path in arrays else base[path].read()
        if path.endswith("qkv_kernel"):
            expected = expected + product
        np.testing.assert_allclose(tensor.read(), expected, atol=1e-6, err_msg=path)
    parts = {path.rpartition("/")[0] for path in arrays}
    assert parts == {"lora", "encoder/pooler", "task_model/head"}

    moved = str(shutil.copytree(options.init_checkpoint, tmp_path / "moved"))
    model, tokenizer, _ = bert_tf.load_adapters(options.output_dir, moved)
    inputs = pack([text for text, _ in sentences(20, seed=1)])
    expected = load_task_model(task, best)(inputs)
    np.testing.assert_allclose(model(inputs), expected, atol=1e-6)
    assert tokenizer.vocab == best.spec.vocab
    with pytest.raises(ValueError, match="adapters.npz belongs to .*/base, which .*best/ckpt"):
        bert_tf.load_adapters(options.output_dir, f"{options.output_dir}/best")
    with pytest.raises(ValueError, match="bert_config.json holds no adapters .*: give the"):
        bert_tf.load_adapters(f"{moved}/bert_config.json", moved)


def test_an_interrupted_run_resumes_exactly(options, tmp_path, run_killed_once):
    """Oracle: the uninterrupted run, also its adapters; the kill comes amid the first epoch."""
    again = dataclasses.replace(options, output_dir=str(tmp_path / "broken"))
    run_killed_once(again)
    assert_same_state(options.output_dir, again.output_dir)
    files = [np.load(f"{x.output_dir}/adapters.npz") for x in (options, again)]
    for name in files[0]:
        np.testing.assert_array_equal(files[0][name], files[1][name])
