"""Splits: from tensorflow-datasets, and held out."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from bert_tf.finetuning.registry import TASKS, get_task
from bert_tf.finetuning.task import Examples, hold_out, load_splits


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TASKS)
def test_tfds_has_the_fields_and_labels_we_name(name):
    # mock_data makes random examples of what each dataset's own definition says.
    task = get_task(name)
    with tfds.testing.mock_data(num_examples=20):
        splits = load_splits(task, None, seed=0)
        features = tfds.builder(task.tfds.name).info.features
    assert tuple(features["label"].names) == task.labels
    assert set(splits) == {"train", "dev"} | ({"test"} if task.has_test else set())
    assert sum(len(splits[name]) for name in splits) == 40
    for examples in splits.values():
        assert isinstance(examples.texts_a[0], bytes) and examples.texts_b is None
        assert set(examples.labels) == {0, 1}


def test_hold_out_takes_a_tenth_of_every_label():
    labels = np.array([0] * 300 + [1] * 100, np.int32)
    texts = [str(index).encode() for index in range(400)]
    rest, held_out = hold_out(Examples(texts, texts, labels), seed=3)
    assert np.bincount(rest.labels).tolist() == [270, 90]
    assert np.bincount(held_out.labels).tolist() == [30, 10]
    assert sorted(rest.texts_a + held_out.texts_a) == sorted(texts)
    for part in (rest, held_out):
        assert part.texts_a == part.texts_b
        assert [label == 1 for label in part.labels] == [int(t) >= 300 for t in part.texts_a]
    again = hold_out(Examples(texts, None, labels), seed=3)[1]
    assert again.texts_a == held_out.texts_a and again.texts_b is None
    assert hold_out(Examples(texts, None, labels), seed=4)[1].texts_a != held_out.texts_a


def test_unknown_task():
    with pytest.raises(ValueError, match="no task 'mnlj'; there are sst2, imdb"):
        get_task("mnlj")
