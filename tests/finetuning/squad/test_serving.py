"""The exported module, against the answers that the evaluation finds."""

import json

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.squad.files import read_file
from export.saved_models import save_folder


def _outputs(task, model, features):
    """Returns the logits of each window, as the evaluation does."""
    logits = [None] * len(features)
    for batch in eval_batches(features, 8):
        rows = zip(batch["example_index"].numpy(), model(batch).numpy(), strict=True)
        for index, values in rows:
            if index >= 0:
                logits[index] = values[: int(features.ids.row_lengths()[index])]
    return {"logits": logits}


def test_the_exported_module_answers_as_the_evaluation(
    make_task, tokenizer, random_questions, write_squad, tmp_path
):
    """Oracle: the Python path from files to predictions, with the same weights."""
    content = random_questions(40, seed=1)
    examples = read_file(write_squad(content), "dev", True)
    contexts = [examples.contexts[question.context] for question in examples.questions]
    questions = [question.text for question in examples.questions]
    keras.utils.set_random_seed(1)
    config = BertConfig(len(tokenizer.vocab), 16, 1, 2, 32, initializer_range=0.3)
    for threshold in (None, 0.1):
        task = make_task(threshold)
        model = task.build_model(config)
        features = task.featurize(examples, tokenizer, 16)
        outputs = _outputs(task, model, features)
        answers = task._answers(outputs, features)
        task.write_predictions(str(tmp_path), "dev", outputs, features)
        predictions = [*json.loads((tmp_path / "predictions.json").read_text()).values()]

        module = task.serving(model, tokenizer, 16)
        served = {key: value.numpy() for key, value in module.serving(questions, contexts).items()}
        assert [text.decode() for text in served["text"]] == predictions
        spans = zip(contexts, served["start"], served["end"], strict=True)
        cut = [context[start:end] for context, start, end in spans]
        assert cut == served["text"].tolist()
        probabilities = [
            next((x.probability for x in answer.candidates if x.text == text), 0)
            for answer, text in zip(answers, predictions, strict=True)
        ]
        np.testing.assert_allclose(served["score"], probabilities, rtol=1e-4)
    odds = [answer.null_odds for answer in answers]
    np.testing.assert_allclose(served["null_odds"], odds, rtol=1e-3, atol=1e-4)
    assert 0 < predictions.count("") < len(predictions)

    save_folder(module, f"{tmp_path}/saved", {"serving_default": module.serving})
    loaded = tf.saved_model.load(f"{tmp_path}/saved")
    assert loaded(questions[3], contexts[3])["text"] == served["text"][3]
    signature = loaded.signatures["serving_default"]
    outputs = signature(
        question=tf.constant(["", "a", "a b", ""]), context=tf.constant(["", "", "\u200b", "a"])
    )
    assert outputs["text"][:3].numpy().tolist() == [b""] * 3
    empty = tf.constant([], tf.string)
    assert signature(question=empty, context=empty)["score"].shape == (0,)
