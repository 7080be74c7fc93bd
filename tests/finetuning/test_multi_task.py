"""Several tasks at once: their batches, their losses, and a run folder for each."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from support import tuning_options

from bert_tf.comparison.comparing import read_groups
from bert_tf.config import BertConfig
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.multi_task import MultiFeatures, MultiTask
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.tokenizing import Features, train_order
from bert_tf.run_finetuning import run

CONFIG = BertConfig(20, 8, 1, 2, 16, max_position_embeddings=16, initializer_range=0.5)


@pytest.mark.parametrize(("batch_size", "shares"), [(4, [3, 6]), (5, [2, 5]), (32, [1, 1])])
def test_the_batches_of_all_tasks_are_shuffled(batch_size, shares):
    """Oracles: algorithm 1 of MT-DNN, counted for 11 and 25 examples; the order of each alone."""
    ids = tf.ragged.constant([[1]] * 25, dtype=tf.int32)
    parts = {str(n): Features(ids[:n], ids[:n], {}, None, None, 16) for n in (11, 25)}
    features, total = MultiFeatures.of(parts), sum(shares)
    order = features.train_order(batch_size, 3 * total, seed=1).reshape(-1, batch_size)
    tasks = features.targets["task"][order]
    assert (tasks == tasks[:, :1]).all()
    assert [np.bincount(part[:, 0]).tolist() for part in np.split(tasks, 3)] == [shares] * 3
    assert total == 2 or (tasks[:total] != tasks[total : 2 * total]).any()
    for index, (start, count) in enumerate([(0, 11), (11, 25)]):
        expected = start + train_order(count, batch_size, 3 * shares[index], seed=1)
        np.testing.assert_array_equal(order[tasks[:, 0] == index].ravel(), expected)


def test_the_loss_of_a_batch_is_that_of_its_task():
    """Oracle: the task's own model and objective; with both tasks, the mean over the examples."""
    tasks = [TASKS["mrpc"], TASKS["stsb"]]
    together = MultiTask(tasks)
    model, objective = together.build_model(CONFIG), together.objective
    ids = tf.constant(np.random.default_rng(0).integers(0, 20, [4, 8], np.int32))
    batch = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    batch["example_weights"] = tf.ones([4])
    targets = {"labels": tf.constant([0, 1, 1, 0]), "values": tf.constant([0.5, 4.0, 2.0, 5.0])}
    named = {"mrpc/labels": targets["labels"], "stsb/values": targets["values"]}

    def loss(which: list[int]) -> float:
        own = batch | named | {"task": tf.constant(which)}
        sums, counts = objective.sums(model, own, training=False), objective.counts(own)
        return float(sums["loss"] / counts["loss"])

    for index, task in enumerate(tasks):
        alone = task.build_model(CONFIG)
        for weight, value in zip(alone.weights, model.models[task.name].weights, strict=True):
            weight.assign(value)
        (predicted,) = task.objective.outputs(alone, batch).values()
        np.testing.assert_allclose(objective.outputs(model, batch)[task.name], predicted, 1e-5)
        expected = task.objective.sums(alone, batch | targets, training=False)["loss"] / 4
        assert loss([index] * 4) == pytest.approx(float(expected), rel=1e-5)
    total = loss([0] * 4) + loss([1] * 4)
    assert loss([0, 1, 0, 1]) + loss([1, 0, 1, 0]) == pytest.approx(total, rel=1e-5)


def test_constant_predictions_of_a_task_are_a_problem():
    """Oracle: the tasks alone, of which the first one's model predicts one class."""
    ids = tf.ragged.constant([[1]] * 4, dtype=tf.int32)
    targets = {"mrpc": {"labels": np.array([0, 0, 0, 1])}, "stsb": {"values": np.arange(4.0)}}
    parts = {name: Features(ids, ids, x, None, None, 16) for name, x in targets.items()}
    tasks, features = [TASKS[name] for name in parts], MultiFeatures.of(parts)
    outputs = {"mrpc": np.array([[0.0, 1.0]] * 8), "stsb": np.arange(8.0)}
    problem = tasks[0].problem({"logits": outputs["mrpc"][:4]}, parts["mrpc"])
    assert MultiTask(tasks).problem(outputs, features) == f"mrpc: {problem}"
    outputs["mrpc"][0] = [2, 1]
    assert MultiTask(tasks).problem(outputs, features) is None


@pytest.fixture(scope="module")
def options(files, tmp_path_factory):
    """Of a finished run on two tasks, of which imdb has no dev set."""
    folder = tmp_path_factory.mktemp("multi") / "both"
    options = tuning_options(files, folder, task="SST-2, imdb", num_train_epochs=2.0)
    results = run(options)
    both = [results["eval_sst2_accuracy"], results["eval_imdb_accuracy"]]
    assert min(both) > 0.95 and results["eval_mean"] == pytest.approx(np.mean(both))
    return options


@pytest.mark.slow
def test_every_task_has_a_run_folder_of_its_own(options):
    """Oracles: the evaluations of the run and of the folder, a run of one task."""
    together = run(options)
    for name in ("sst2", "imdb"):
        (group,) = (x for x in read_groups(options.output_dir)[0] if x.task == name)
        folder = f"{options.output_dir}/{name}"
        # Without flags for the encoder and for data.
        alone = run(FineTuningOptions(task=name, do_eval=True, output_dir=folder))
        for metric, score in group.scores.items():
            expected = together[metric.replace("eval_", f"eval_{name}_")]
            assert [alone[metric], score.mean] == pytest.approx([expected] * 2, rel=1e-5)
        assert open_fine_tuned(folder, None, None, pairs=False)[1].name == name
    with pytest.raises(ValueError, match="both has several tasks: give the folder of one, .*sst2"):
        open_fine_tuned(options.output_dir, None, None, pairs=False)
    changes = dict(do_train=False, output_dir=f"{options.output_dir}-evaluated")
    with pytest.raises(ValueError, match="both has several tasks: give the folder of one"):
        run(dataclasses.replace(options, init_checkpoint=options.output_dir, **changes))
    one = f"{options.output_dir}/sst2"
    with pytest.raises(ValueError, match="evaluated holds no fine-tuned weights to evaluate"):
        run(dataclasses.replace(options, init_checkpoint=one, **changes))
    changes = dict(from_=options.output_dir, to="run", output_dir=changes["output_dir"])
    with pytest.raises(ValueError, match="both has several tasks: give the folder of one"):
        convert(ConversionOptions(**changes))
