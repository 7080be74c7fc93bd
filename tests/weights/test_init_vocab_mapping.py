"""A checkpoint grows with its vocabulary in both commands that train.

Oracle: the rows of new tokens are means of rows of the checkpoint; all other weights are the same.
tests/test_build_vocab.py has the mappings that build_vocab writes.
"""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest
from support import quick_runs, save_checkpoint, tuning_options  # noqa: F401

from bert_tf import run_finetuning, run_pretraining
from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training.checkpoints import saved_tensors
from bert_tf.weights.checkpoint import VocabularyMapping, load_weights
from tfrecords.features import serialize_examples, write_records

TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] [unused0] [unused1] a b ##a ##b good bad".split()
CONFIG = BertConfig(len(TOKENS), 16, 1, 2, 32, max_position_embeddings=32)
TABLE, BIAS = "encoder/embeddings/word_embeddings", "pretrainer/masked_lm/output_bias"
# A token that replaces an unused one, and two that are appended: a ##a ##b and a ##b, as before.
NEW = {5: (7, 10), 13: (7, 9, 10), 14: (7, 10)}


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> pathlib.Path:
    """A checkpoint of random weights with its vocabulary, a longer one, and data."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "vocab.txt").write_text("\n".join(TOKENS))
    longer = [*TOKENS[:5], "abb", *TOKENS[6:], "aab", "ab"]
    (folder / "longer.txt").write_text("\n".join(longer))
    mapping = VocabularyMapping(13, 15, NEW, {index: longer[index] for index in NEW})
    (folder / "mapping.json").write_text(mapping.to_json())
    model = BertPretrainer(CONFIG)
    model.masked_lm.output_bias.assign(np.random.default_rng(0).normal(size=len(TOKENS)))
    save_checkpoint(folder, model, step=9)
    CONFIG.to_json_file(str(folder / "bert_config.json"))
    rows = np.ones((16, 8), np.int64)
    arrays = {
        "input_word_ids": rows * [2, *[len(TOKENS) - 1] * 6, 3],
        "input_mask": rows,
        "input_type_ids": rows * 0,
        "masked_lm_positions": rows[:, :2] * [1, 2],
        "masked_lm_ids": rows[:, :2] * 7,
        "masked_lm_weights": np.ones((16, 2), np.float32),
        "next_sentence_labels": rows[:, :1],
    }
    write_records(str(folder / "x.tfrecord"), serialize_examples(arrays))
    (folder / "SST-2").mkdir()
    for split in ("train", "dev"):
        lines = "good aab ab\t1\nbad ab aab\t0\n" * 8
        (folder / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + lines)
    return folder


def grown(old: pathlib.Path) -> dict[str, str]:
    return {"vocab_file": f"{old}/longer.txt", "init_vocab_mapping": f"{old}/mapping.json"}


def pretraining_options(old: pathlib.Path, folder: pathlib.Path, **changes):
    values = dict(
        input_file=str(old / "x.tfrecord"),
        output_dir=str(folder),
        bert_config_file=str(old / "bert_config.json"),
        init_checkpoint=str(old),
        max_seq_length=8,
        max_predictions_per_seq=2,
        do_train=True,
        num_train_steps=1,
        train_batch_size=4,
    )
    return run_pretraining.Options(**values | changes)


def weights(checkpoint: pathlib.Path) -> dict[str, np.ndarray]:
    return {path: tensor.read() for path, tensor in saved_tensors(str(checkpoint)).items()}


def assert_grown(found: np.ndarray, before: np.ndarray) -> None:
    expected = np.concatenate([before, before])[:15]
    for new_id, old_ids in NEW.items():
        expected[new_id] = before[[*old_ids]].astype(np.float64).mean(axis=0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("no_learning", "eagerly")
@pytest.mark.slow
def test_pretraining_starts_from_a_grown_checkpoint(old, tmp_path, capsys):
    """The run saves the weights that it started from."""
    run_pretraining.run(pretraining_options(old, tmp_path, **grown(old)))
    assert "3 of 15 word embeddings start from the mean" in capsys.readouterr().out
    before, after = weights(old / "ckpt-9"), weights(tmp_path / "ckpt-1")
    for path in (TABLE, BIAS):
        assert_grown(after[path], before[path])
    assert before.keys() == after.keys()
    for path in before.keys() - {TABLE, BIAS}:
        np.testing.assert_array_equal(after[path], before[path])
    assert json.loads((tmp_path / "bert_config.json").read_text())["vocab_size"] == 15
    # The same command resumes the run and does not grow it again.
    run_pretraining.run(pretraining_options(old, tmp_path, **grown(old), num_train_steps=2))
    assert "Resuming from" in capsys.readouterr().out
    np.testing.assert_array_equal(weights(tmp_path / "ckpt-2")[TABLE], after[TABLE])


@pytest.mark.usefixtures("no_learning", "eagerly")
def test_fine_tuning_starts_from_a_grown_checkpoint(old, tmp_path, capsys):
    flags = dict(init_checkpoint=str(old), do_lower_case=True, bert_config_file=None)
    flags |= dict(do_eval=False, train_batch_size=8, num_train_epochs=1.0) | grown(old)
    run_finetuning.run(tuning_options(old, tmp_path / "run", **flags))
    assert "3 of 15 word embeddings start from the mean" in capsys.readouterr().out
    assert_grown(weights(tmp_path / "run/best/ckpt-2")[TABLE], weights(old / "ckpt-9")[TABLE])


def test_flags_that_do_not_fit_are_named(old, tmp_path):
    flags = grown(old)
    for change, message in [
        ({"init_checkpoint": None}, "--init_vocab_mapping has no effect without --init_checkpoint"),
        ({"init_vocab_mapping": "absent.json"}, "cannot read absent.json"),
        ({"init_vocab_mapping": None}, "give --init_vocab_mapping if build_vocab extended"),
    ]:
        with pytest.raises((ValueError, OSError), match=re.escape(message)):
            run_pretraining.run(pretraining_options(old, tmp_path / "run", **flags | change))
    options = dict(task="sst2", output_dir=str(tmp_path / "run"), preset="tiny", do_train=True)
    with pytest.raises(
        ValueError, match="--init_vocab_mapping has no effect without --init_checkpoint"
    ):
        run_finetuning.run(run_finetuning.Options(**options, **flags))
    assert not (tmp_path / "run").exists()


def test_a_mapping_of_other_sizes_is_refused(old):
    model = BertPretrainer(dataclasses.replace(CONFIG, vocab_size=14))
    for mapping, message in [
        (VocabularyMapping(12, 14, {12: (0,), 13: (1,)}), "ckpt-9 has a vocabulary of 13 tokens"),
        (VocabularyMapping(13, 15, {13: (0,), 14: (1,)}), "this model has a vocabulary of 14"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_weights(path := str(old / "ckpt-9"), saved_tensors(path), model.weights, mapping)
