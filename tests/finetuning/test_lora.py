"""LoRA: what trains, what the best weights hold, and the adapters alone."""

import dataclasses
import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from support import one_device, one_line, save_run, tuning_options, two_replicas

import bert_tf
from bert_tf.config import BertConfig, Head, MobileBertConfig
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.finetuning.lora import LoraModel
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import run
from bert_tf.runs.run import Run
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Trainer
from bert_tf.weights.opening import open_checkpoint

_NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
CONFIG = BertConfig(20, 8, 2, 2, 16, max_position_embeddings=16, **_NO_DROPOUT)
LOSSES = [1.385470, 0.647839, 0.761670, 0.773625, 0.635718]
# Of A and B of queries and values, layer by layer, then of pooler and head, kernel before bias.
NORMS = [1.921594, 0.579767, 1.375714, 0.453276, 2.256769, 0.715850, 2.023949, 0.448200,
         4.661800, 1.918621, 2.145881, 0.308625]  # fmt: skip


def _batches():
    random = np.random.default_rng(1)
    for _ in range(5):
        lengths = random.integers(3, 9, 4)
        yield {
            "input_word_ids": random.integers(0, 20, [4, 8]),
            "input_mask": np.int64(np.arange(8) < lengths[:, None]),
            "input_type_ids": random.integers(0, 2, [4, 8]),
            "labels": random.integers(0, 2, 4),
            "example_weights": np.ones(4, np.float32),
        }


@pytest.mark.parametrize("make_strategy", [one_device, two_replicas])
@pytest.mark.slow
def test_trains_as_peft_does(make_strategy):
    """Oracle: peft 0.21.2 with transformers 5.24 and torch 2.14, on the same weights and batches.

    There, `LoraConfig(r=2, lora_alpha=3, target_modules=["query", "value"], modules_to_save=
    ["pooler", "classifier"])` wraps a BertForSequenceClassification; `clip_grad_norm_` clips to 1,
    and torch's AdamW (1e-6, no decay of biases) takes the steps.
    """
    strategy, random = make_strategy(), np.random.default_rng(0)
    with strategy.scope():
        model = LoraModel(BertTaskModel(CONFIG, 2), rank=2, alpha=3.0, trains_pooler=True)
        for weight in model.weights:
            if not weight.path.endswith("_b"):
                weight.assign(random.normal(0, 0.5, weight.shape))
        optimizer = AdamW(model.trainable_weights, bias_correction=True)
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


def test_mobilebert_has_values_apart():
    """Oracles: equation 3 of the paper in NumPy; peft's range of A; a tagger reads no pooler."""
    sizes = dict(embedding_size=8, intra_bottleneck_size=4, num_feedforward_networks=1)
    config = MobileBertConfig(20, 8, 1, 2, 8, **sizes)
    model = LoraModel(BertTaskModel(config, 3, "tagger"), 2, 3.0, Head("tagger").reads_pooler)
    assert {w.path.partition("/")[0] for w in model.trainable_weights} == {"lora", "task_model"}
    weights = {weight.path: weight for weight in model.weights}
    for name in ("query", "value"):
        weights[f"lora/layer_0_{name}_b"].assign([[1, 2, 3, 4], [5, 6, 7, 8]])
    before = {path: weight.numpy() for path, weight in weights.items()}
    assert 0.7 * 8**-0.5 < abs(before["lora/layer_0_query_a"]).max() < 8**-0.5
    with model.merged():
        for path, name in (("qk_kernel", "query"), ("value_kernel", "value")):
            a, b = (before[f"lora/layer_0_{name}_{x}"] for x in "ab")
            path = f"encoder/layer_0/attention/{path}"
            expected = before[path]
            expected[:, :4] += 1.5 * a @ b
            np.testing.assert_allclose(weights[path], expected, atol=1e-5)


@pytest.fixture(scope="module")
def options(files, pretrained, tmp_path_factory):
    """Of a finished run whose initial checkpoint has no pooler."""
    folder, spec = tmp_path_factory.mktemp("lora"), Run(pretrained).spec
    base = save_run(folder / "base", BertEncoder(spec.config), spec.vocab, spec.lower_case)
    flags = dict(init_checkpoint=base, bert_config_file=None, vocab_file=None, learning_rate=3e-2)
    options = tuning_options(files, folder / "sst2", **flags, lora_rank=4, num_train_epochs=2.0)
    assert run(options)["eval_accuracy"] > 0.95
    return options


def test_the_best_weights_are_merged_and_the_adapters_stand_alone(options, pack, tmp_path):
    """Oracles: base + 16 / 4 A B in NumPy; the model that other commands open; the base moved."""
    base = open_checkpoint(options.init_checkpoint).tensors
    best, task, _ = open_fine_tuned(options.output_dir, None, None, pairs=False)
    adapters = f"{options.output_dir}/adapters.npz"
    arrays = dict(np.load(adapters))
    assert json.loads(str(arrays.pop("description")))["task"] == "sst2"
    parts = {path.rpartition("/")[0] for path in arrays}
    assert parts == {"lora", "encoder/pooler", "task_model/head"}
    pairs = ([arrays[f"lora/layer_0_{x}_{y}"] for y in "ab"] for x in ("query", "value"))
    query, value = (4 * a @ b for a, b in pairs)
    product = np.concatenate([query, np.zeros_like(query), value], axis=1)
    assert abs(product).max() > 1e-2
    for path, tensor in best.tensors.items():
        expected = arrays[path] if path in arrays else base[path].read()
        expected = expected + (product if path.endswith("qkv_kernel") else 0)
        np.testing.assert_allclose(tensor.read(), expected, atol=1e-6, err_msg=path)

    moved = str(shutil.copytree(options.init_checkpoint, tmp_path / "moved"))
    model, inputs = bert_tf.load_adapters(adapters, moved), pack(["good a b", "bad c"])
    np.testing.assert_allclose(model(inputs), load_task_model(task, best)(inputs), atol=1e-6)
    with pytest.raises(ValueError, match="npz was trained on .*/base: give that, not .*best/ckpt"):
        bert_tf.load_adapters(adapters, f"{options.output_dir}/best")
    # A checkpoint of training holds the frozen weights and the adapters apart.
    (name,) = {path.stem for path in pathlib.Path(options.output_dir).glob("ckpt-*.index")}
    match = f"{name} is from the middle of a --lora_rank training.*give the run folder"
    with pytest.raises(ValueError, match=match):
        open_checkpoint(f"{options.output_dir}/{name}")


def test_a_rank_that_no_matrix_has(options, tmp_path):
    """Oracle: the size of the model's hidden layers, and one more."""
    size = Run(options.init_checkpoint).config.hidden_size
    changed = dataclasses.replace(options, output_dir=str(tmp_path / "run"), lora_rank=size + 1)
    with one_line(f"--lora_rank={size + 1} is larger than the hidden size, {size}, and"):
        run(changed)


@pytest.mark.slow
def test_adapters_of_vectors(options, pack, tmp_path, capsys):
    """Oracle: the vectors of `load_embedder`, also after a conversion."""
    path = tmp_path / "pairs.csv"
    path.write_text("text,b\n" + "a,good a\nb,bad b\n" * 8)
    flags = dict(task="csv", label_type="pairs", text_b_column="b", data_dir=None)
    flags |= dict(train_file=str(path), dev_file=str(path), output_dir=f"{tmp_path}/run")
    run(dataclasses.replace(options, **flags, pooling="cls", num_train_epochs=1.0))
    vectors = bert_tf.load_adapters(f"{tmp_path}/run/adapters.npz", options.init_checkpoint)
    texts = ["good a b", "bad c"]
    expected = bert_tf.load_embedder(f"{tmp_path}/run").encode(texts)
    np.testing.assert_allclose(vectors(pack(texts)), expected, atol=1e-5)
    folder = f"{tmp_path}/folder"
    convert(ConversionOptions(from_=f"{tmp_path}/run", to="huggingface", output_dir=folder))
    assert "lora/" not in capsys.readouterr().out.rpartition("Wrote ")[2]
    np.testing.assert_allclose(bert_tf.load_embedder(folder).encode(texts), expected, atol=1e-5)


def test_a_file_that_holds_no_adapters(options, tmp_path):
    """Oracle: the message names the file."""
    adapters = pathlib.Path(f"{options.output_dir}/adapters.npz").read_bytes()
    path = tmp_path / "a.npz"
    np.savez(tmp_path / "other.npz", a=1)
    other = (tmp_path / "other.npz").read_bytes()
    for content in b"", b"text", adapters[:1000], other:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="a.npz is damaged, or not the adapters.npz of a run"):
            bert_tf.load_adapters(str(path), options.init_checkpoint)
    arrays = dict(np.load(io.BytesIO(adapters)))
    description, name = json.loads(str(arrays["description"])), "task_model/head/dense_bias"
    for changes, match in (
        ({name: arrays[name] * np.nan}, f"NaN or infinity in {name}"),
        ({name: np.zeros(3, np.float32)}, f"{name} has shape .3,. there"),
        ({"lora/layer_0_key_a": arrays[name]}, "has an additional lora/layer_0_key_a"),
        ({"description": json.dumps(description | {"rank": 2})}, "is damaged, or not the"),
        ({"description": json.dumps(description | {"alpha": None})}, "is damaged, or not the"),
        ({"description": json.dumps({"rank": 4, "alpha": 1})}, "is damaged, or not the"),
    ):
        np.savez(path, **arrays | changes)
        with pytest.raises(ValueError, match=f"a.npz.* {match}"):
            bert_tf.load_adapters(str(path), options.init_checkpoint)
