"""A tiny configuration, records to pre-train on, and the flags of the command."""

import pathlib

import numpy as np
import pytest
from support import quick_runs, save_checkpoint  # noqa: F401

from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
from tfrecords.features import ORIGINAL_NAMES, serialize_examples, write_records

_CONFIG = BertConfig(40, 16, 1, 2, 32, max_position_embeddings=32)
LENGTH, PREDICTIONS = 16, 3
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_examples(path, rows: int, largest_id: int = 39, **others: np.ndarray) -> None:
    """Every masked token is 7 and every label 1, unless others are given."""
    generator = np.random.default_rng(rows)
    arrays = {
        "input_word_ids": generator.integers(len(SPECIAL), 40, (rows, LENGTH)),
        "input_mask": np.ones((rows, LENGTH), np.int64),
        "input_type_ids": np.zeros((rows, LENGTH), np.int64),
        "masked_lm_positions": np.tile(1 + np.arange(PREDICTIONS), (rows, 1)),
        "masked_lm_ids": np.full((rows, PREDICTIONS), 7),
        "masked_lm_weights": np.ones((rows, PREDICTIONS), np.float32),
        "next_sentence_labels": np.ones((rows, 1), np.int64),
    }
    arrays["input_word_ids"][:, [0, -1]] = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
    arrays["input_word_ids"][-1, -2] = largest_id
    arrays |= others
    arrays = {ORIGINAL_NAMES.get(name, name): values for name, values in arrays.items()}
    write_records(str(path), serialize_examples(arrays))


def write_dynamic_records(path: pathlib.Path, rows: int) -> None:
    """[CLS] 7 7 7 ... [SEP]: every masked token is 7."""
    ids = np.full((rows, LENGTH), 7)
    ids[:, 0], ids[:, -1] = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
    arrays = {
        "input_word_ids": ids,
        "input_mask": np.ones((rows, LENGTH), np.int64),
        "input_type_ids": np.zeros((rows, LENGTH), np.int64),
        "word_starts": (ids == 7).astype(np.int64),
        "next_sentence_labels": np.ones((rows, 1), np.int64),
    }
    write_records(str(path), serialize_examples(arrays))


@pytest.fixture(scope="session")
def config() -> BertConfig:
    return _CONFIG


@pytest.fixture(scope="session")
def write_records_of():
    """A function (path, rows, largest id, arrays) that writes masked records."""
    return write_examples


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("data")
    _CONFIG.to_json_file(str(folder / "config.json"))
    write_examples(folder / "train.tfrecord", 24)
    write_examples(folder / "heldout.tfrecord", 21)
    write_dynamic_records(folder / "dynamic.tfrecord", 24)
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + [f"w{i}" for i in range(35)]))
    return folder


@pytest.fixture(scope="session")
def untrained(tmp_path_factory) -> str:
    """A folder with a checkpoint of random weights."""
    folder = str(tmp_path_factory.mktemp("untrained"))
    _CONFIG.to_json_file(f"{folder}/bert_config.json")
    save_checkpoint(folder, BertPretrainer(_CONFIG), step=0)
    return folder


@pytest.fixture(scope="session")
def base_flags(data) -> dict:
    return {
        "input_file": str(data / "train.tfrecord"),
        "eval_input_file": str(data / "heldout.tfrecord"),
        "bert_config_file": str(data / "config.json"),
        "vocab_file": str(data / "vocab.txt"),
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": PREDICTIONS,
        "do_train": True,
        "do_eval": True,
        "train_batch_size": 6,
        "learning_rate": 0.05,
        "num_train_steps": 12,
        "num_warmup_steps": 2,
        "save_checkpoints_steps": 4,
    }


@pytest.fixture
def flags(base_flags, tmp_path) -> dict:
    return base_flags | {"output_dir": str(tmp_path / "run")}
