"""The loss curve of the preset tiny, which no change but one of the algorithm may move.

`golden_curve.json` was written by `python tests/run_pretraining/test_golden_curve.py` on a CPU in
float32; write it anew only with a reason in the changelog.
"""

import json
import pathlib
import sys

import numpy as np
import pytest

from bert_tf.run_pretraining import Options, run
from bert_tf.training.metrics import read_metrics
from tfrecords.features import serialize_examples
from tfrecords.writer import write_records

_GOLDEN = pathlib.Path(__file__).with_name("golden_curve.json")
_ROWS, _LENGTH, _WORDS = 512, 32, 200
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_MEASURES = ("loss", "masked_lm_accuracy", "next_sentence_accuracy")


def write_text(path: pathlib.Path) -> None:
    """Rows of two segments in which a word is often followed by the next; masked while reading."""
    generator = np.random.default_rng(0)
    first, vocab_size = len(_SPECIAL), len(_SPECIAL) + _WORDS
    ids = np.empty([_ROWS, _LENGTH], np.int64)
    ids[:, 0] = generator.integers(first, vocab_size, _ROWS)
    for position in range(1, _LENGTH):
        following = first + (ids[:, position - 1] - first + 1) % _WORDS
        other = first + generator.zipf(1.5, _ROWS) % _WORDS
        ids[:, position] = np.where(generator.random(_ROWS) < 0.7, following, other)
    random_next = generator.random(_ROWS) < 0.5
    ids[random_next, 17:] = ids[::-1][random_next, 17:]
    ids[:, 0], ids[:, 16], ids[:, -1] = 2, 3, 3
    types = np.tile(np.arange(_LENGTH) > 16, (_ROWS, 1)).astype(np.int64)
    arrays = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": types,
        "word_starts": (ids >= first).astype(np.int64),
        "next_sentence_labels": random_next[:, np.newaxis].astype(np.int64),
    }
    write_records(str(path), serialize_examples(arrays))


def train(folder: pathlib.Path) -> list[list[float]]:
    """[10, measures]: the means of every ten of a hundred steps."""
    write_text(folder / "train.tfrecord")
    words = [f"w{number}" for number in range(_WORDS)]
    (folder / "vocab.txt").write_text("\n".join(_SPECIAL + words))
    run(
        Options(
            input_file=str(folder / "train.tfrecord"),
            preset="tiny",
            vocab_file=str(folder / "vocab.txt"),
            do_train=True,
            max_seq_length=_LENGTH,
            max_predictions_per_seq=5,
            train_batch_size=16,
            learning_rate=1e-3,
            num_train_steps=100,
            num_warmup_steps=10,
            log_steps=10,
            strategy="cpu",
            output_dir=str(folder / "run"),
        )
    )
    metrics = read_metrics(str(folder / "run" / "metrics.jsonl"))
    return [[line[name] for name in _MEASURES] for line in metrics]


@pytest.mark.slow
def test_the_curve_is_the_golden_one(tmp_path):
    """Oracle: the curve as it was when its figures were looked at."""
    np.testing.assert_allclose(train(tmp_path), json.loads(_GOLDEN.read_text()), rtol=2e-3)


if __name__ == "__main__":
    _GOLDEN.write_text(json.dumps(train(pathlib.Path(sys.argv[1])), indent=1) + "\n")
