"""SQuAD's files, official ones with their counts and odd ones by hand; the exported module."""

import json
import lzma

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from support import one_line

from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.squad.questions import read_squad_file, read_squad_tfds

CONTEXT = "🙂 Ann came. Ann left."


def _question(**changes):
    row = {"id": "1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 2}]}
    return {key: value for key, value in (row | changes).items() if value is not ...}


def _file(*questions, context=CONTEXT):
    return {"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}


def _answer(text, start):
    return [{"text": text, "answer_start": start}]


@pytest.mark.parametrize(
    ("name", "split", "counts"),
    [
        ("dev-v1.1", "dev", (10570, 2067, 34726, 0)),
        ("dev-v2.0.cs224n-half", "dev", (6078, 646, None, 3168)),
        ("train-v1.1.first12articles", "train", (4370, 678, 4370, 0)),
        ("train-v2.0.first10articles", "train", (4719, 694, None, 348)),
    ],
)
def test_official_files_have_their_counts(name, split, counts, shared_data, tmp_path):
    """Oracle: the counts in the data's README."""
    path = tmp_path / "squad.json"
    path.write_bytes(lzma.open(shared_data / "squad" / f"{name}.json.xz").read())
    examples = read_squad_file(str(path), split, "2.0" in name)
    assert (len(examples), len(examples.contexts)) == counts[:2]
    given = [question.answers for question in examples.questions]
    assert counts[2] in (None, sum(map(len, given)))
    assert given.count(()) == counts[3] and examples.notes == () and examples.has_answers
    if split == "train":
        for question in examples.questions:
            if question.answers:
                text = examples.contexts[question.context][slice(*question.span)].decode()
                assert text == question.answers[0]


def test_a_table_has_the_questions_of_the_file(random_questions, write_squad, write):
    """Oracle: the same questions in SQuAD's format; null answers are unknown."""
    content = random_questions(8, seed=0)
    rows = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = {x: [y[x] for y in question["answers"]] for x in ("text", "answer_start")}
                row = {"context": paragraph["context"], "answers": answers, "title": "x"}
                rows.append(question | row)
    for split in ("train", "dev"):
        path = write("squad.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        expected = read_squad_file(write_squad(content), split, unanswerable=True)
        assert read_squad_file(path, split, unanswerable=True) == expected
    path = write("squad.jsonl", json.dumps(rows[0] | {"answers": None}))
    assert read_squad_file(path, "test", unanswerable=True).questions[0].answers is None
    path = write("squad.jsonl", json.dumps(rows[0] | {"answers": {"text": "x"}}))
    with one_line("squad.jsonl: row 1: answers.text is 'x', not a list"):
        read_squad_file(path, "train", unanswerable=True)


def test_odd_answers_are_mended_or_left_out_and_counted(write_squad):
    """Oracle: by hand; spans are in bytes, offsets in characters."""
    path = write_squad(
        _file(
            _question(),
            _question(id=2, answers=_answer("Ann", 1)),
            _question(id="3", answers=_answer("Ann", 10)),
            _question(id="3", answers=_answer("Bob", 2)),
            _question(id="4", question=" ", answers=_answer("left", 99)),
        )
    )
    examples = read_squad_file(path, "train", False)
    spans = {"1": (5, 8), "2": (5, 8), "3": (15, 18), "4": (19, 23)}
    assert [(x.id, x.span) for x in examples.questions] == [*spans.items()]
    assert examples.notes == (
        "answers moved from a wrong offset to the nearest occurrence of their text: 3",
        "empty questions: 1",
        "questions left out because their answer is not in the context: 1",
    )


@pytest.mark.parametrize("split", ["dev", "test"])
def test_odd_answers_to_score_against_are_counted(split, write_squad):
    """Oracle: by hand; every answer counts, and stays. One without text is nowhere."""
    odd = [*_answer("Ann", 1), *_answer("Bob", 2), *_answer("left", 0), *_answer("", 2)]
    path = write_squad(_file(_question(), _question(id="2", answers=_answer("Ann", 2) + odd)))
    examples = read_squad_file(path, split, False)
    assert examples.questions[1].answers == ("Ann", "Ann", "Bob", "left", "")
    faults = ("answers at a wrong offset", "answers that are not in the context")
    assert examples.notes == tuple(f"{fault}: 2" for fault in faults)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_answers_that_contradict_is_impossible_are_counted(split, write_squad):
    """Oracle: by hand; SQuAD 2.0 marks exactly the questions without answers."""
    rows = [(True, 1), (True, 0), (True, ...), (False, 1), (False, 0), (False, 0)]
    rows += [(..., 1), (..., 0)]
    questions = [
        _question(id=number, is_impossible=mark, answers=n if n is ... else _answer("Ann", 2) * n)
        for number, (mark, n) in enumerate(rows)
    ]
    examples = read_squad_file(write_squad(_file(*questions)), split, True)
    assert [len(x.answers) for x in examples.questions] == [0, 0, 0, 1, 0, 0, 1, 0]
    assert examples.notes == (
        'questions without answers, treated as unanswerable despite "is_impossible": false: 2',
        'unanswerable questions ("is_impossible") whose answers are ignored: 1',
    )


def test_questions_without_answers_are_for_2_0_and_for_prediction(write_squad):
    unknown, none = _question(id="2", answers=...), _question(id="3", answers=[])
    impossible = _question(id="4", is_impossible=True, plausible_answers=_answer("Ann", 2))
    path = write_squad(_file(_question(), unknown))
    test = read_squad_file(path, "test", False)
    assert not test.has_answers and [x.answers for x in test.questions] == [("Ann",), None]
    assert test.notes == ('questions without "answers", so no question is scored: 1',)
    assert read_squad_file(write_squad(_file(unknown)), "test", False).notes == ()
    path = write_squad(_file(_question(), none, impossible))
    examples = read_squad_file(path, "train", True)
    assert [x.span for x in examples.questions] == [(5, 8), None, None]
    assert examples.has_answers and [x.answers for x in examples.questions] == [("Ann",), (), ()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_file(_question(answers=[])), "question 1 has no answer: use --task=squad2"),
        (_file(_question(answers=...)), 'question 1 has no "answers": they are needed for dev'),
        (_file(_question(), _question()), "two questions have the id 1: give each its own"),
        (_file(_question(), context=" "), "the context of question 1 is empty"),
        (_file(_question(id=...)), r"data\[0\].paragraphs\[0\].qas\[0\] has no 'id'"),
        (_file(_question(question=None)), r"data.*.qas\[0\].question is None, not a string"),
        (_file(_question(is_impossible="false")), "data.*.is_impossible is 'false', not true or"),
        (_file(_question(answers=[{"text": "Ann"}])), r"data.*.answers\[0\] has no 'answer_start'"),
        (_file(_question(answers=[5])), r"data.*.answers\[0\] is 5, not an object"),
        (_file("Who?"), r"data\[0\].paragraphs\[0\].qas\[0\] is 'Who\?', not an object"),
        (_file(), "no usable questions for dev"),
        ({"data": [{}]}, r"data\[0\] has no 'paragraphs'"),
        ({}, "it has no 'data'"),
    ],
)
def test_bad_files_are_named_in_one_line(content, message, write_squad):
    """Oracle: the place in the file and what is wrong with it."""
    with one_line(f"squad.json: .*{message}"):
        read_squad_file(write_squad(content), "dev", False)


def test_a_file_without_any_usable_question_says_why(write_squad):
    """Oracle: by hand; "Bob" is not in the context."""
    path = write_squad(_file(_question(answers=_answer("Bob", 2))))
    with pytest.raises(ValueError, match="usable questions for train; .* not in the context: 1$"):
        read_squad_file(path, "train", False)


def test_broken_and_missing_files_are_named(tmp_path):
    """Oracle: the names, and the line in which JSON ends."""
    (tmp_path / "a.csv").write_text("text,label\n")
    (tmp_path / "cut.json").write_text(json.dumps(_file(_question()), indent=1)[:70])
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "lines.json").write_text('{"id": "1"}\n{"id": "2"}\n')
    for name, message in (
        ("cut.json", ".*line 6"),
        ("lines.json", ".* it contains several JSON values, as"),
        ("a.csv", "not in SQuAD's JSON format; for a table of your own, use --task=csv: Expecting"),
        ("nowhere.json", "no such file"),
        ("empty.json", "is empty"),
    ):
        with one_line(f"{name}:? {message}"):
            read_squad_file(str(tmp_path / name), "dev", False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_tfds_has_the_fields_that_we_read(version, monkeypatch):
    """Oracle: mock_data makes random examples that follow the dataset's own definition."""
    monkeypatch.setattr("bert_tf.finetuning.examples.prepare_dataset", lambda builder: None)
    with tfds.testing.mock_data(num_examples=5):
        examples = read_squad_tfds(f"squad/{version}", "dev", True)
    assert len(examples) == 5 and examples.has_answers


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
