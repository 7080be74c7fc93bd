"""Tiny fine-tuning data: sentences in which one word gives the label away."""

import pathlib

import numpy as np
import pytest
from support import quick_runs, save_run  # noqa: F401

from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import latest_checkpoint, saved_tensors
from bert_tf.weights.checkpoint import load_weights
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab

WORDS = ("good", "bad", *"abcdefgh")
VOCAB = Vocabulary((*SPECIAL_TOKENS, *WORDS))
CONFIG = BertConfig(20, 16, 1, 2, 32, max_position_embeddings=32, initializer_range=0.1)
CONFIG_TRAINED = BertConfig.from_dict(CONFIG.to_dict() | {"hidden_dropout_prob": 0.2})


def _sentences(count: int, seed: int) -> list[tuple[str, int]]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = int(random.integers(2))
        words = [*random.choice(WORDS[2:], random.integers(1, 20)), *[WORDS[1 - label]] * 6]
        random.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


@pytest.fixture(scope="session")
def sentences():
    return _sentences


@pytest.fixture(scope="session")
def config() -> BertConfig:
    return CONFIG


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> pathlib.Path:
    """SST-2 and IMDB made of such sentences, a vocabulary and a configuration."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "vocab.txt").write_text("\n".join(VOCAB.tokens))
    CONFIG.to_json_file(str(folder / "bert_config.json"))
    (folder / "SST-2").mkdir()
    for seed, (split, count) in enumerate({"train": 320, "dev": 50}.items()):
        lines = [f"{text}\t{label}\n" for text, label in _sentences(count, seed)]
        (folder / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            (folder / "aclImdb" / split / label).mkdir(parents=True)
        for index, (text, label) in enumerate(_sentences(160, seed=len(split))):
            path = folder / "aclImdb" / split / ("neg", "pos")[label] / f"{index}_1.txt"
            path.write_text(text)
    return folder


@pytest.fixture(scope="session")
def pack(files):
    """A function from texts to a model's inputs, padded to 24 tokens."""
    tokenizer = WordPieceTokenizer(load_vocab(str(files / "vocab.txt")))
    return lambda texts: pack_segments([tokenizer.tokenize_flat(texts)], 24, tokenizer.vocab)


@pytest.fixture(scope="session")
def load_best():
    def load(model, folder):
        path = latest_checkpoint(f"{folder}/best")
        load_weights(path, saved_tensors(path), model.weights)
        return model

    return load


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory) -> str:
    """A run folder of run_pretraining with another dropout rate and a cased vocabulary."""
    folder, model = tmp_path_factory.mktemp("pretrained"), BertPretrainer(CONFIG_TRAINED)
    return save_run(folder, model, VOCAB, lower_case=False)
