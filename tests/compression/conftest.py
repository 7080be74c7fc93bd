"""A teacher of three layers with random weights, and a task for it."""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from support import assert_same_state, quick_runs, save_run  # noqa: F401

from bert_tf.compress import Options
from bert_tf.compression.compressing import learner_of, start_of
from bert_tf.compression.compression_options import GeneralOptions
from bert_tf.compression.recipes import RECIPES
from bert_tf.config import BertConfig, Head, MobileBertConfig
from bert_tf.finetuning.evaluating import Evaluator
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import Task
from bert_tf.models.task_model import BertTaskModel
from bert_tf.pretraining.phase_data import PhaseData
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import Vocabulary

WORDS = tuple("abcdefgh")
VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS))
CONFIG = BertConfig(13, 16, 3, 2, 32, max_position_embeddings=16, initializer_range=0.3)
MOBILE = MobileBertConfig(
    *(13, 8, 2, 2, 32, "relu", 0.0, 0.0, 16),
    initializer_range=0.3,
    embedding_size=4,
    intra_bottleneck_size=4,
    num_feedforward_networks=2,
    key_query_shared_bottleneck=True,
)


@pytest.fixture(scope="session")
def config() -> BertConfig:
    return CONFIG


@pytest.fixture(scope="session")
def mobile() -> BertConfig:
    return MOBILE


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> pathlib.Path:
    """SST-2 made of random words, in which the first one is the label."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    for split, count in {"train": 16, "dev": 8}.items():
        texts = [random.choice(WORDS, random.integers(1, 10)) for _ in range(count)]
        lines = [f"{' '.join(text)}\t{int(text[0] < 'e')}\n" for text in texts]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    return folder


@pytest.fixture(scope="session")
def teacher(tmp_path_factory) -> str:
    head = Head("classifier", ("negative", "positive"))
    return save_run(tmp_path_factory.mktemp("teacher"), BertTaskModel(CONFIG, 2), VOCAB, head=head)


@pytest.fixture
def make_options(teacher, files, tmp_path) -> Callable:
    def make(recipe: str = "layers", **changes) -> Options:
        values = dict(
            teacher=teacher,
            task="sst2",
            data_dir=str(files),
            output_dir=str(tmp_path / "student"),
            max_seq_length=12,
            train_batch_size=8,
            num_train_epochs=2.0,
        )
        return Options(recipe=recipe, **values | changes)

    return make


@pytest.fixture
def make_learner(make_options) -> Callable:
    def make(recipe: str, task: Task = TASKS["sst2"], teacher: Checkpoint | None = None, **changes):
        options = make_options(recipe, **changes)
        teacher = teacher or open_checkpoint(options.teacher)
        return learner_of(recipe)(options, task, teacher, RECIPES[recipe].loss)

    return make


@pytest.fixture
def start(make_options) -> Callable:
    def start(recipe: str, task: Task = TASKS["sst2"], teacher: Checkpoint | None = None, **flags):
        options = make_options(recipe, **flags)
        return start_of(options, task, teacher or open_checkpoint(options.teacher))

    return start


@pytest.fixture
def batch() -> dict[str, tf.Tensor]:
    """Four examples, the last of which only fills the batch, with padding."""
    lengths = np.array([8, 3, 5, 8])
    mask = (np.arange(8) < lengths[:, None]).astype(np.int32)
    ids = np.random.default_rng(1).integers(5, 13, [4, 8], np.int32) * mask
    return {
        "input_word_ids": tf.constant(ids),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.zeros_like(ids),
        "labels": tf.constant([0, 1, 1, 0]),
        "example_weights": tf.constant([1.0, 1.0, 1.0, 0.0]),
        "dropout_seed": tf.constant([1, 2]),
    }


@pytest.fixture
def run_and_resume(tmp_path, monkeypatch, capsys) -> Callable:
    """A function that returns the results of a run that resumes exactly, and what it printed.

    Oracle: the uninterrupted run. A copy, made before the first evaluation, ends with the same
    results and state.
    """

    def run_and_resume(run, options, **tolerance) -> tuple[dict[str, float], str]:
        copy = dataclasses.replace(options, output_dir=str(tmp_path / "copy"))

        def copying_once(evaluate):
            def call(*arguments):
                if not (tmp_path / "copy").exists():
                    shutil.copytree(options.output_dir, copy.output_dir)
                return evaluate(*arguments)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(PhaseData, "_evaluate", copying_once(PhaseData._evaluate))
            patch.setattr(Evaluator, "evaluate", copying_once(Evaluator.evaluate))
            results = run(options)
        printed = capsys.readouterr().out
        assert run(copy) == results and "Resuming from" in capsys.readouterr().out
        assert_same_state(options.output_dir, copy.output_dir, **tolerance)
        return results, printed

    return run_and_resume


@pytest.fixture(scope="session")
def general_options() -> Callable:
    def make(recipe: str, teacher: str, records: str, output_dir, **changes) -> GeneralOptions:
        flags = dict(input_file=records, eval_input_file=records, output_dir=str(output_dir))
        flags |= dict(train_batch_size=6, eval_batch_size=6, num_train_steps=2)
        flags |= dict(num_warmup_steps=0, save_checkpoints_steps=1)
        return GeneralOptions(recipe=recipe, teacher=teacher, **flags | changes)

    return make
