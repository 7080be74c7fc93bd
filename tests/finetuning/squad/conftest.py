"""A tiny vocabulary, contexts of any length and random questions on them."""

import json
import types

import numpy as np
import pytest

from bert_tf.finetuning.squad.contexts import SquadOptions
from bert_tf.finetuning.tasks.squad import SquadTask
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

LETTERS = "abcdefghijklmnop"
VOCAB = Vocabulary((*SPECIAL_TOKENS, *LETTERS, *(f"##{x}" for x in LETTERS), ",", "北"))


@pytest.fixture(scope="session")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCAB)


@pytest.fixture(scope="session")
def make_task():
    """A function (threshold, n_best_size, max_answer_length) -> a task with small windows."""

    def make(threshold=None, n_best_size=5, max_answer_length=4) -> SquadTask:
        return SquadTask(SquadOptions(4, 5, n_best_size, max_answer_length, threshold))

    return make


@pytest.fixture(scope="session")
def random_questions():
    """A function (count, seed) -> articles in SQuAD's format, with questions of 2.0."""

    def text(random, words: int) -> str:
        return " ".join(
            "".join(random.choice([*LETTERS, "É", ",", "北", "🙂"], random.integers(1, 4)))
            for _ in range(words)
        )

    def make(count: int, seed: int) -> dict:
        random = np.random.default_rng(seed)
        paragraphs = []
        for index in range(count):
            context = text(random, random.integers(1, 40))
            start = int(random.integers(len(context)))
            answers = [{"text": context[start : start + 9], "answer_start": start}]
            if not answers[0]["text"].strip() or random.random() < 0.3:
                answers = []
            question = text(random, random.integers(0, 9))
            row = {"id": f"q{index}", "question": question, "answers": answers}
            paragraphs.append({"context": context, "qas": [row]})
        return {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]}

    return make


@pytest.fixture
def write_squad(write):
    return lambda content: write("squad.json", json.dumps(content))


@pytest.fixture(scope="session")
def random_logits():
    """A function (features, seed) -> start and end logits of each window, with many ties."""

    def make(features, seed: int) -> types.SimpleNamespace:
        random = np.random.default_rng(seed)
        lengths = features.ids.row_lengths().numpy()
        return [random.integers(-4, 5, (n, 2)).astype(np.float32) / 2 for n in lengths]

    return make
