"""IMDB: the layout of aclImdb; one process fine-tunes, and two on this machine as one."""

import contextlib
import dataclasses
import io
import json
import types

import numpy as np
import pytest
from support import start_workers, tuning_options

from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import Options, run
from bert_tf.training.reports import read_results

SPLITS = ("train", "dev", "test")


@pytest.fixture
def parent(tmp_path):
    for split in ("train", "test"):
        for label in ("neg", "pos", "unsup"):
            folder = tmp_path / "aclImdb" / split / label
            folder.mkdir(parents=True)
            for index in range(20):
                (folder / f"{index}_7.txt").write_text(f"{split} {label} {index}")
        (tmp_path / "aclImdb" / split / "urls_pos.txt").write_text("not a review")
    return tmp_path


def test_reads_both_labels_from_the_folder_or_its_parent(parent):
    splits = TASKS["imdb"].read_splits(SPLITS, DataFiles(str(parent)))
    sizes = {name: len(examples) for name, examples in splits.items()}
    assert sizes == {"train": 36, "dev": 4, "test": 40}
    for name, examples in splits.items():
        folder = name.replace("dev", "train")
        for text, label in zip(examples.texts_a, examples.targets["labels"], strict=True):
            assert text.decode().split()[:2] == [folder, ("neg", "pos")[label]]
    assert len(set(splits["train"].texts_a + splits["dev"].texts_a)) == 40
    inside = TASKS["imdb"].read_splits(SPLITS, DataFiles(str(parent / "aclImdb")))
    assert inside["dev"].texts_a == splits["dev"].texts_a


def test_missing_and_empty_folders_are_named(parent):
    for review in (parent / "aclImdb" / "test" / "pos").iterdir():
        review.unlink()
    with pytest.raises(FileNotFoundError, match="test/pos holds no reviews"):
        TASKS["imdb"].read_splits(SPLITS, DataFiles(str(parent)))


def test_tables_of_reviews(parent):
    """Oracle: by hand; test sets may lack labels."""
    (parent / "mine.csv").write_text("id,text,label\n7,good,pos\n8,bad,neg\n")
    (parent / "new.csv").write_text("text\ngood\n")
    files = DataFiles(str(parent), None, str(parent / "mine.csv"), str(parent / "new.csv"))
    splits = TASKS["imdb"].with_files(files).read_splits(SPLITS, files)
    assert [len(part) for part in splits.values()] == [40, 2, 1]
    assert splits["dev"].targets["labels"].tolist() == [1, 0] and splits["dev"].ids == ["7", "8"]
    assert splits["test"].targets == {}


def test_a_test_set_without_labels_is_only_predicted(parent):
    """Oracle: the names and texts of the files; files are named in predictions."""
    test = parent / "aclImdb" / "test"
    for label in ("neg", "pos"):
        for review in (test / label).iterdir():
            review.rename(test / f"{label}{review.name}")
        (test / label).rmdir()
    (test / "urls_pos.txt").unlink()
    task = TASKS["imdb"]
    examples = task.read_splits(["test"], DataFiles(str(parent)))["test"]
    assert len(examples) == 40 and examples.targets == {}
    assert examples.ids[:2] == ["test/neg0_7.txt", "test/neg10_7.txt"]
    assert examples.texts_a[:2] == [b"test neg 0", b"test neg 10"]
    train = task.read_splits(["train"], DataFiles(str(parent)))["train"]
    for name, text in zip(train.ids, train.texts_a, strict=True):
        assert name.split("/")[1] == text.decode().split()[1]


@pytest.fixture(scope="module")
def alone(files, config, tmp_path_factory) -> types.SimpleNamespace:
    """A run in this process, without dropout, whose masks differ between replicas."""
    folder = tmp_path_factory.mktemp("alone")
    values = config.to_dict() | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "no-dropout.json").write_text(json.dumps(values))
    flags = dict(task="imdb", eval_batch_size=6, num_train_epochs=1.0)
    flags |= {"bert_config_file": str(folder / "no-dropout.json")}
    options = tuning_options(files, folder / "run", **flags)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        results = run(options)
    return types.SimpleNamespace(options=options, results=results, printed=printed.getvalue())


def test_the_best_epoch_is_chosen_on_held_out_reviews_and_tested_once(
    alone, sentences, config, pack, load_best
):
    """Oracle: the best weights in a Keras model, on the test set."""
    options, results, printed = alone.options, alone.results, alone.printed
    assert results == read_results(f"{options.output_dir}/eval_results.txt")
    texts, labels = zip(*sentences(160, seed=len("test")), strict=True)
    model = load_best(BertTaskModel(config, 2), options.output_dir)
    correct = np.argmax(model(pack(texts)), axis=-1) == labels
    assert results["test_accuracy"] == pytest.approx(correct.mean())
    assert "train: 144 examples" in printed and "dev: 16 examples" in printed
    lengths = [len(text.split()) for text in texts]
    line = "test: 160 examples, 1.0 tokens per word, 0.0% [UNK]"
    assert f"{line}, {sum(n > 22 for n in lengths)} (" in printed
    assert "on the held-out examples" in printed
    assert f"\n  python -m export.classifier --checkpoint={options.output_dir}" in printed


@pytest.mark.slow
def test_two_workers_fine_tune_as_one(alone, tmp_path):
    """Oracle: one process with the same global batch; dropout is 0."""
    flags = dataclasses.replace(alone.options, output_dir=f"{tmp_path}/two")
    values = dataclasses.asdict(flags).items()
    given = {name: value for name, value in values if value != getattr(Options, name, None)}
    workers = start_workers("run_finetuning", given)
    chief_says, other_says = (worker.communicate(timeout=600)[0] for worker in workers)
    assert [worker.returncode for worker in workers] == [0, 0], chief_says + other_says
    found = read_results(f"{tmp_path}/two/eval_results.txt")
    assert found == pytest.approx(alone.results, abs=1e-5)
    assert "on the test set" in chief_says
    assert "test set" not in other_says
