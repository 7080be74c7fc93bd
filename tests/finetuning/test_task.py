"""The splits of tasks, from TFDS and held out; a task of another kind is an addition."""

import dataclasses
import types

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds
from support import tuning_options

from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.examples import TextExamples, _targets, draw_examples, hold_out
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.objectives import TaggingObjective
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.finetuning.tokenizing import Features, encode_texts
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.reports import read_results
from tfrecords.vocabulary import load_vocab


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [name for name in TASKS if name != "swag"])
def test_tfds_has_the_fields_and_labels_we_name(name, monkeypatch):
    monkeypatch.setattr("bert_tf.finetuning.examples.prepare_dataset", lambda builder: None)
    # mock_data makes random examples that follow each dataset's own definition.
    task = TASKS[name]
    with tfds.testing.mock_data(num_examples=20):
        names = ["train", *task.dev_splits, *task.test_splits]
        splits = task.read_splits(names, DataFiles())
        label = tfds.builder(task.tfds.name).info.features["label"]
    assert list(splits) == names
    assert sum(len(splits[name]) for name in splits) == 20 * (len(names) - (not task.has_dev))
    for examples in splits.values():
        assert isinstance(examples.texts_a[0], bytes)
        assert task.pairs == (examples.texts_b is not None)
        assert examples.ids == (examples.ids and sorted(examples.ids, key=int))
    labels = task.head.labels
    assert tuple(getattr(label, "names", ())) == labels
    if labels:
        assert set(splits["train"].targets["labels"]) == set(range(len(labels)))
    else:
        assert splits["train"].targets["values"].dtype == np.float32


def test_tfds_marks_test_sets_without_labels():
    """Oracle: tensorflow-datasets' -1 in GLUE's test sets, for classes and for numbers."""
    assert _targets(np.full(3, -1)) == _targets(np.full(3, -1.0)) == {}
    assert _targets(np.array([0, -1]))["labels"].tolist() == [0, -1]


def test_predictions_of_one_class_are_reported():
    """Oracle: the counts. Only predictions that the labels do not explain are a problem."""
    task = TASKS["sst2"]

    def problem(predicted: list[int], labels: list[int]) -> str | None:
        features = types.SimpleNamespace(targets={"labels": np.array(labels)})
        return task.problem({"logits": np.eye(2)[predicted]}, features)

    labels = [0] * 96 + [1] * 104
    assert problem(labels, labels) is None
    assert problem([0] * 20 + [1] * 180, labels) is None
    assert problem([1] * 200, [1] * 200) is None
    for ones in (198, 200):
        found = problem([0] * (200 - ones) + [1] * ones, labels)
        assert f'"positive" for {ones} of 200 examples, but that is right for 104: it' in found


def test_hold_out_takes_a_tenth_of_every_group():
    """Oracle: the counts; the texts are the examples' numbers."""
    labels = np.array([0] * 300 + [1] * 100, np.int32)
    texts = [str(index).encode() for index in range(400)]
    pairs = TextExamples(texts, texts, {"labels": labels})
    rest, held_out = hold_out(pairs)
    assert np.bincount(rest.targets["labels"]).tolist() == [270, 90]
    assert np.bincount(held_out.targets["labels"]).tolist() == [30, 10]
    assert sorted(rest.texts_a + held_out.texts_a) == sorted(texts)
    for part in (rest, held_out):
        assert part.texts_a == part.texts_b
        expected = [int(text) >= 300 for text in part.texts_a]
        assert [label == 1 for label in part.targets["labels"]] == expected
    # A class of one example stays in training, where it can be learned.
    rare = TextExamples(texts, None, {"labels": np.append(labels[:-1], 2)})
    kept, tenth = hold_out(rare)
    assert np.bincount(kept.targets["labels"])[2] == 1 and len(tenth) == 40
    assert tenth.notes[1].startswith("1 kept in training as the only example of a class")
    with pytest.raises(ValueError, match="cannot hold out any of 2 training examples, because"):
        hold_out(rare.take(np.array([0, 399])))
    single = TextExamples(texts, None, {"labels": labels})
    again = hold_out(single)[1]
    assert again.texts_a == held_out.texts_a and again.texts_b is None


def test_the_seed_draws_training_examples():
    """Oracles: the texts are the examples' numbers; what a random sample is."""
    labels = np.arange(400, dtype=np.int32)
    examples = TextExamples([str(index).encode() for index in labels], None, {"labels": labels})
    one, again, other = (draw_examples(examples, 100, seed) for seed in (1, 1, 2))
    for drawn in (one, other):
        numbers = [*map(int, drawn.texts_a)]
        assert numbers == sorted({*numbers}) == drawn.targets["labels"].tolist()
        assert len(numbers) == 100 and 150 < np.mean(numbers) < 250
    assert one.texts_a == again.texts_a != other.texts_a
    assert draw_examples(examples, 400, 1).texts_a == examples.texts_a
    with pytest.raises(ValueError, match="there are 400 training examples, fewer than 1,000: draw"):
        draw_examples(examples, 1000, 1)
    with pytest.raises(ValueError, match="--num_train_examples does not suit this --task: omit it"):
        draw_examples(range(400), 100, 1)


@pytest.mark.parametrize(
    ("sizes", "first", "total"),
    [
        ([60, 4], [5, 1], 6),
        ([30, 30, 1], [3, 3, 0], 6),
        ([20] + [1] * 20, [3] + [0] * 20, 3),
        ([2], [1], 1),
        ([5, 5], [], 1),
        ([3] * 10, [], 3),
        ([2] * 50, [], 10),
        ([15, 15], [], 3),
        # Large classes give a tenth, or one less beside small ones.
        ([1000] + [9] * 7, [99], 106),
        ([100] + [2] * 12, [9], 12),
        ([25, 3, 3], [2], 3),
    ],
)
def test_every_class_gives_its_share_of_a_tenth(sizes, first, total):
    """Oracle: by hand, a tenth of all, rounded, one at least; of every class while it is enough.

    Chance chooses between the other classes, which give as many as each other or one more.
    """
    labels = np.repeat(np.arange(len(sizes)), sizes)
    examples = TextExamples([b"a"] * len(labels), None, {"labels": labels})
    tenth, again = (hold_out(examples)[1] for _ in range(2))
    counts = np.bincount(tenth.targets["labels"], minlength=len(sizes)).tolist()
    assert (counts[: len(first)], sum(counts)) == (first, total)
    others = counts[len(first) :]
    assert not others or max(others) - min(others) <= 1
    assert again.targets["labels"].tolist() == tenth.targets["labels"].tolist()
    assert f"held out of {len(labels):,}" in tenth.notes[0]


def test_the_only_example_of_one_of_several_classes_stays_in_training():
    """Oracle: the matrix; four of twelve rows may be held out."""
    labels = np.concatenate([np.eye(8), np.zeros((4, 8))])
    texts = [bytes([65 + row]) for row in range(12)]
    for order in (np.roll(range(12), shift) for shift in range(12)):
        examples = TextExamples(texts, None, {"labels": labels[[*order]]})
        _, tenth = hold_out(examples)
        assert len(tenth) == 1 and not tenth.targets["labels"].any()
        kept = "8 kept in training as the only example of a class"
        assert tenth.notes == ("held out of 12 (8.3%)", kept)


class _Tagger(keras.Model):
    def __init__(self, config):
        super().__init__(name="tagger")
        self.encoder = BertEncoder(config)
        self.kernel = self.add_weight(name="kernel", shape=(config.hidden_size, 2))

    def call(self, inputs, training=None):
        return self.encoder(inputs, training=training)["sequence_output"] @ self.kernel


class IdParityTask(Task):
    """Tagging: whether the id of each token is odd; an output per token."""

    name, metric, token_outputs = "parity", "token_accuracy", ("logits",)
    objective = TaggingObjective()

    def __init__(self, sentences):
        self._sentences = sentences

    def read(self, files, split):
        seed, count = {"train": (0, 192), "dev": (1, 21), "test": (2, 7)}[split]
        return TextExamples([text.encode() for text, _ in self._sentences(count, seed)], None, {})

    def featurize(self, examples, tokenizer, max_seq_length) -> Features:
        features = encode_texts(examples, tokenizer, max_seq_length)
        return dataclasses.replace(features, targets={"tags": features.ids % 2})

    def build_model(self, config):
        return _Tagger(config)

    def score(self, outputs, features):
        tags = np.concatenate(features.targets["tags"].to_list())
        predictions = np.concatenate(outputs["logits"]).argmax(axis=-1)
        return {"token_accuracy": float(np.mean(predictions == tags))}

    def write_predictions(self, folder, split, outputs, features):
        return []


@pytest.mark.slow
def test_another_kind_of_task_is_one_object(sentences, files, config, load_best, tmp_path, capsys):
    """Oracle: the best weights in the plain model, one example at a time."""
    task = IdParityTask(sentences)
    flags = dict(learning_rate=1e-2, train_batch_size=4, eval_batch_size=6, num_train_epochs=1)
    options = tuning_options(files, tmp_path / "run", task=task.name, **flags)
    results = fine_tune(options, task)
    assert set(results) == {"global_step", "test_token_accuracy", "eval_token_accuracy"}
    assert results == read_results(f"{options.output_dir}/eval_results.txt")
    found = results["test_token_accuracy"]
    assert found > 0.6
    assert f"Token_accuracy {found:.4f} on the test" in capsys.readouterr().out
    model = load_best(task.build_model(config), options.output_dir)
    tokenizer = WordPieceTokenizer(load_vocab(options.vocab_file))
    features = task.featurize(task.read_splits(["test"], DataFiles())["test"], tokenizer, 24)
    predictions = {
        int(batch["example_index"][0]): model(batch).numpy()[0][: batch["input_mask"].sum()]
        for batch in eval_batches(features, 1).as_numpy_iterator()
    }
    outputs = {"logits": [predictions[index] for index in range(len(features))]}
    assert found == pytest.approx(task.score(outputs, features)["token_accuracy"], rel=1e-4)
