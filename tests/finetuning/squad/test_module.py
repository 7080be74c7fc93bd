"""The exported module, against the answers that the evaluation finds."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.squad.questions import read_squad_file


def _outputs(task, model, features):
    """Returns the logits of each window, as the evaluation does."""
    logits, lengths = [None] * len(features), features.ids.row_lengths().numpy()
    for batch in eval_batches(features, 64):
        rows = zip(batch["example_index"].numpy(), model(batch).numpy(), strict=True)
        for index, values in rows:
            if index >= 0:
                logits[index] = values[: lengths[index]]
    return {"logits": logits}


@pytest.mark.parametrize("threshold", [None, -3.2])
def test_the_module_answers_as_the_evaluation(
    threshold, make_task, tokenizer, random_questions, write_squad, tmp_path
):
    """Oracle: the path from files to predictions, with the same random weights."""
    examples = read_squad_file(write_squad(random_questions(20, seed=1)), "dev", True)
    contexts = [examples.contexts[question.context] for question in examples.questions]
    questions = [question.text for question in examples.questions]
    keras.utils.set_random_seed(1)
    task = make_task(threshold)
    model = task.build_model(BertConfig(len(tokenizer.vocab), 16, 1, 2, 32, initializer_range=0.3))
    features = task.featurize(examples, tokenizer, 16)
    outputs = task.decode(_outputs(task, model, features), features)
    answers = outputs["answers"]
    task.write_predictions(str(tmp_path), "dev", outputs, features)
    predictions = [*json.loads((tmp_path / "predictions.json").read_text()).values()]

    # Eagerly, which saves seconds; tasks/test_squad.py calls an exported graph.
    eager = task.serving(model, tokenizer, 16).serving.python_function

    def serve(questions, contexts):
        return eager(tf.constant(questions, tf.string), tf.constant(contexts, tf.string))

    served = {key: value.numpy() for key, value in serve(questions, contexts).items()}
    assert [text.decode() for text in served["text"]] == predictions
    spans = zip(contexts, served["start"], served["end"], strict=True)
    assert [context[start:end] for context, start, end in spans] == served["text"].tolist()
    probabilities = [
        next((x.probability for x in answer.candidates if x.text == text), 0)
        for answer, text in zip(answers, predictions, strict=True)
    ]
    np.testing.assert_allclose(served["score"], probabilities, rtol=1e-4)
    if threshold is not None:
        odds = [answer.null_odds for answer in answers]
        np.testing.assert_allclose(served["null_odds"], odds, rtol=1e-3, atol=1e-4)
        assert 0 < predictions.count("") < len(predictions)

    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of rows"):
        serve(questions, contexts[1:])
    odd = serve(["", "a", "a b", ""], ["", "", "\u200b", "a"])
    assert odd["text"][:3].numpy().tolist() == [b""] * 3
