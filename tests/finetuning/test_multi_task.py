"""Several tasks at once: their batches, their losses, and a run folder for each."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from support import assert_same_state, tuning_options

from bert_tf.comparison.runs import read_groups
from bert_tf.config import BertConfig
from bert_tf.finetuning.features import Features, train_order
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.multi_task import MultiFeatures, MultiTask
from bert_tf.finetuning.registry import TASKS
from bert_tf.run_finetuning import run

CONFIG = BertConfig(20, 8, 1, 2, 16, max_position_embeddings=16, initializer_range=0.5)
MRPC, STSB = TASKS["mrpc"], TASKS["stsb"]


def _features(lengths: list[int], **targets: list) -> Features:
    random = np.random.default_rng(len(lengths))
    ids = tf.RaggedTensor.from_row_lengths(random.integers(0, 20, sum(lengths), np.int32), lengths)
    arrays = {name: np.array(values) for name, values in targets.items()}
    return Features(ids, tf.zeros_like(ids), arrays, None, pad_id=0, max_seq_length=16)


@pytest.mark.parametrize("batch_size, epoch", [(4, 3 + 6), (5, 2 + 5), (16, 1 + 2)])
def test_the_batches_of_all_tasks_are_shuffled(batch_size, epoch):
    """Oracles: algorithm 1 of MT-DNN, counted; `train_order`, which is tested on its own.

    The tasks have 11 and 25 examples: 2.75 and 6.25 batches of 4, 2.2 and 5 of 5, 0.7 and 1.6.
    """
    parts = {"mrpc": _features([3] * 11, labels=[0] * 11), "stsb": _features([3] * 25)}
    features = MultiFeatures.of(parts)
    order = features.train_order(batch_size, 3 * epoch, seed=1).reshape(-1, batch_size)
    tasks = features.targets["task"][order]
    assert (tasks == tasks[:, :1]).all()
    counts = [np.bincount(part[:, 0]).tolist() for part in np.split(tasks, 3)]
    assert counts[0] == counts[1] == counts[2] and sum(counts[0]) == epoch
    assert batch_size > 4 or counts[0] == [3, 6]
    assert (tasks[:epoch] != tasks[epoch : 2 * epoch]).any()
    for index, (start, count) in enumerate([(0, 11), (11, 25)]):
        own = order[tasks[:, 0] == index]
        expected = start + train_order(count, batch_size, len(own), seed=1)
        np.testing.assert_array_equal(own.ravel(), expected)


def test_the_loss_of_a_batch_is_that_of_its_task():
    """Oracle: the task's own model and objective, with the same weights.

    So are the predictions. The loss of a batch with both tasks is the mean over its examples.
    """
    together, random = MultiTask([MRPC, STSB]), np.random.default_rng(0)
    model = together.build_model(CONFIG)
    ids = tf.constant(random.integers(0, 20, [4, 8], np.int32))
    batch = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    batch |= {"example_weights": tf.ones([4]), "dropout_seed": tf.constant([1, 2])}
    targets = {"labels": tf.constant([0, 1, 1, 0]), "values": tf.constant([0.5, 4.0, 2.0, 5.0])}
    named = {"mrpc/labels": targets["labels"], "stsb/values": targets["values"]}
    outputs = together.objective.outputs(model, batch)

    def loss(tasks: list[int], training: bool = False) -> float:
        own = batch | named | {"task": tf.constant(tasks)}
        assert float(together.objective.counts(own)["loss"]) == 4
        return float(together.objective.sums(model, own, training)["loss"])

    for index, task in enumerate([MRPC, STSB]):
        alone = task.build_model(CONFIG)
        for weight, value in zip(alone.weights, model.models[task.name].weights, strict=True):
            weight.assign(value)
        for name, value in task.objective.outputs(alone, batch).items():
            np.testing.assert_allclose(outputs[f"{task.name}/{name}"], value, atol=1e-6)
        # The first head draws its seed of dropout as the task alone does.
        for training in (False, True)[: 2 - index]:
            expected = task.objective.sums(alone, batch | targets, training)["loss"]
            assert loss([index] * 4, training) == pytest.approx(float(expected), rel=1e-5)
    total = loss([0] * 4) + loss([1] * 4)
    assert loss([0, 1, 0, 1]) + loss([1, 0, 1, 0]) == pytest.approx(total, rel=1e-5)


@pytest.fixture(scope="module")
def options(files, tmp_path_factory):
    """Of a finished run on two tasks, of which imdb has no dev set."""
    folder = tmp_path_factory.mktemp("multi") / "both"
    options = tuning_options(files, folder, task="SST-2,imdb", num_train_epochs=2.0)
    results = run(options)
    assert results["eval_sst2_accuracy"] > 0.95 and results["eval_imdb_accuracy"] > 0.95
    mean = (results["eval_sst2_accuracy"] + results["eval_imdb_accuracy"]) / 2
    assert results["eval_mean"] == pytest.approx(mean)
    return options


@pytest.mark.parametrize("name", ["sst2", "imdb"])
def test_every_task_has_a_run_folder_of_its_own(options, name):
    """Oracles: the results of the run; the evaluation of a run of one task."""
    together = run(dataclasses.replace(options, do_train=False))
    own = dataclasses.replace(options, task=name, output_dir=f"{options.output_dir}/{name}")
    files = {group.task: group for group in read_groups(options.output_dir)[0]}
    scores = {metric: score.mean for metric, score in files[name].scores.items()}
    alone = run(dataclasses.replace(own, do_train=False))
    start = f"eval_{name}_"
    expected = {x.replace(start, "eval_"): y for x, y in together.items() if x.startswith(start)}
    assert {x: alone[x] for x in expected} == pytest.approx(expected, rel=1e-5)
    assert scores == pytest.approx({x: y for x, y in alone.items() if x in scores}, rel=1e-5)
    assert open_fine_tuned(own.output_dir, None, None, pairs=False)[1].name == name
    with pytest.raises(ValueError, match="both has several tasks: give the folder of one, .*sst2"):
        open_fine_tuned(options.output_dir, None, None, pairs=False)


def test_an_interrupted_run_resumes_exactly(options, tmp_path, run_killed_once):
    """Oracle: the uninterrupted run; the kill comes amid the first epoch."""
    again = dataclasses.replace(options, output_dir=str(tmp_path / "broken"))
    run_killed_once(again)
    assert_same_state(options.output_dir, again.output_dir)
    assert_same_state(*(f"{x.output_dir}/imdb/best" for x in (options, again)))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"task": "sst2,nothing"}, "no task 'nothing'"),
        ({"task": "sst2,swag"}, "--task=swag trains alone: only the tasks of GLUE and imdb"),
        ({"do_predict": True}, "--do_predict does not suit several tasks at once: omit it"),
        ({"lora_rank": 8}, "--lora_rank does not suit several tasks at once: omit it"),
        ({"train_file": "a.csv"}, "--train_file has no effect with --task=sst2: omit it"),
    ],
)
def test_what_does_not_suit_several_tasks(files, tmp_path, changes, match):
    """Oracle: the message."""
    with pytest.raises(ValueError, match=match):
        run(tuning_options(files, tmp_path / "out", **{"task": "sst2,imdb"} | changes))
