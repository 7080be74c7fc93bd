"""The head of a model of another program, fitted to a task."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.finetuning.fine_tuned import in_task_order
from bert_tf.finetuning.registry import TASKS
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint

TASK = TASKS["mnli"]
OURS = TASK.head
SPEC = ModelSpec(BertConfig(10, 4, 1, 1, 4), None, None)


def test_classes_get_the_order_of_the_task():
    """Oracle: the names; classes that the task does not know keep their order."""
    values = {
        "encoder/pooler/dense_bias": np.array([5.0, 6.0, 7.0]),
        "task_model/head/dense_kernel": np.arange(12.0).reshape(4, 3),
        "task_model/head/dense_bias": np.array([2.0, 0.0, 1.0]),
    }
    tensors = {name: Tensor(x.shape, lambda x=x: x) for name, x in values.items()}
    said = []

    def read(head: Head | None) -> list[np.ndarray]:
        found = in_task_order(Checkpoint("model", "", SPEC, tensors, head), TASK, said.append)
        assert found.head == (head and OURS)
        return [tensor.read() for tensor in found.tensors.values()]

    for head in (None, OURS, Head("classifier")):
        np.testing.assert_equal(read(head), [*values.values()])
    assert said == []
    pooler, kernel, bias = read(Head("classifier", ("Contradiction", "Entailment", "Neutral")))
    np.testing.assert_array_equal(pooler, [5, 6, 7])
    np.testing.assert_array_equal(kernel, values["task_model/head/dense_kernel"][:, [1, 2, 0]])
    np.testing.assert_array_equal(bias, [0, 1, 2])
    nameless = read(Head("classifier", ("LABEL_0", "LABEL_1", "LABEL_2")))
    np.testing.assert_equal(nameless, [*values.values()])
    # Case alone tells two of them apart, also where that of the third differs.
    cased = SimpleNamespace(name="csv", head=Head("classifier", ("neutral", "Neutral", "x")))
    for last in ("x", "X"):
        other = Checkpoint("", "", SPEC, tensors, Head("classifier", (last, "Neutral", "neutral")))
        found = in_task_order(other, cased, lambda line: None).tensors["task_model/head/dense_bias"]
        np.testing.assert_array_equal(found.read(), [1.0, 0.0, 2.0])
    other = Checkpoint("", "", SPEC, tensors, Head("classifier", ("nEUTRAL", "NEUTRAL", "x")))
    in_task_order(other, cased, said.append)
    assert said.pop().startswith("WARNING: the model's classes, nEUTRAL, NEUTRAL, x, are taken")
    assert said == [
        "The classes of the model, Contradiction, Entailment, Neutral, were put into the task's "
        "order.",
        "WARNING: the model's classes, LABEL_0, LABEL_1, LABEL_2, are taken for "
        "entailment, neutral, contradiction, in this order.",
    ]


def test_another_kind_of_head_is_refused():
    """Oracle: the message names the kinds; several classes at once may have learned one."""

    def order(head: Head, task=TASK) -> Checkpoint:
        return in_task_order(Checkpoint("model", "", SPEC, {}, head), task, lambda line: None)

    with pytest.raises(ValueError, match="kind tagger, but --task=mnli needs the kind classifier"):
        order(Head("tagger", OURS.labels))
    several = Head("classifier", OURS.labels, multi_label=True)
    with pytest.raises(ValueError, match="model predicts several classes .*--label_type=classes"):
        order(several)
    assert order(OURS, SimpleNamespace(name="csv", head=several)).head == several
