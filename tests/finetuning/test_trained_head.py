"""The head of a model of another program, fitted to a task."""

import numpy as np
import pytest

from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.trained_head import check_kind, order_classes
from bert_tf.models.task_model import BertTaskModel

OURS = TASKS["mnli"].head


def test_classes_get_the_order_of_the_task():
    """Oracle: the names; classes that the task does not know keep their order."""
    model, said = BertTaskModel(BertConfig(10, 4, 1, 1, 4, max_position_embeddings=8), 3), []
    model.head.bias.assign([2.0, 0.0, 1.0])
    kernel = model.head.kernel.numpy()
    order_classes(model, OURS, OURS, said.append)
    order_classes(model, OURS, Head("classifier"), said.append)
    assert said == []
    names = ("Contradiction", "Entailment", "Neutral")
    order_classes(model, OURS, Head("classifier", names), said.append)
    np.testing.assert_array_equal(model.head.bias, [0, 1, 2])
    np.testing.assert_array_equal(model.head.kernel, kernel[:, [1, 2, 0]])
    nameless = Head("classifier", ("LABEL_0", "LABEL_1", "LABEL_2"))
    order_classes(model, OURS, nameless, said.append)
    np.testing.assert_array_equal(model.head.bias, [0, 1, 2])
    assert said == [
        "The classes of the model, Contradiction, Entailment, Neutral, were put into the task's "
        "order.",
        "WARNING: the model names its classes LABEL_0, LABEL_1, LABEL_2; they are taken for "
        "entailment, neutral, contradiction, in this order.",
    ]


def test_another_kind_of_head_is_refused():
    check_kind("mnli", OURS, None, "model")
    with pytest.raises(ValueError, match="kind tagger, but --task=mnli needs the kind classifier"):
        check_kind("mnli", OURS, Head("tagger", OURS.labels), "model")
    several = Head("classifier", OURS.labels, multi_label=True)
    with pytest.raises(ValueError, match="model predicts several classes .*--label_type=classes"):
        check_kind("mnli", OURS, several, "model")
    check_kind("csv", several, OURS, "model")
