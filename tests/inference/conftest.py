"""A tiny pre-trained model."""

import pytest
from support import save_run

from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
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
