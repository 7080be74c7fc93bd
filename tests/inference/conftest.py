"""A tiny pre-trained model, and fine-tuned ones."""

import dataclasses

import pytest
from support import save_fine_tuned, save_run

from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

WORDS = ("The", "the", "cat", "sat", "on", "mat", "##s", "é", ".", "|", *"abcdefgh")
VOCAB = Vocabulary((*SPECIAL_TOKENS, *WORDS))
# More rows than tokens, as in published checkpoints.
CONFIG = BertConfig(30, 16, 3, 2, 32, max_position_embeddings=24, initializer_range=0.3)


@pytest.fixture(scope="session")
def vocab() -> Vocabulary:
    return VOCAB


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory) -> tuple[str, BertPretrainer]:
    """A run folder, and the model that it holds."""
    folder, model = tmp_path_factory.mktemp("pretrained"), BertPretrainer(CONFIG)
    return save_run(folder, model, VOCAB, lower_case=False), model


@pytest.fixture(scope="session")
def fine_tuned(tmp_path_factory):
    """A function (task, head) -> a run folder with random weights, and its exported module."""

    def save(task: str, head: Head, **flags):
        folder = tmp_path_factory.mktemp(task)
        spec = ModelSpec(dataclasses.replace(CONFIG, num_hidden_layers=1), VOCAB, lower_case=False)
        trained, model = save_fine_tuned(folder, task, head, spec, max_seq_length=16, **flags)
        return str(folder), trained.serving(model, WordPieceTokenizer(VOCAB, False), 16)

    return save
