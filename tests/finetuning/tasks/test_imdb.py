"""The layout of aclImdb."""

import pytest

from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles

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
    splits = TASKS["imdb"].read_splits(SPLITS, DataFiles(str(parent)), seed=0)
    sizes = {name: len(examples) for name, examples in splits.items()}
    assert sizes == {"train": 36, "dev": 4, "test": 40}
    for name, examples in splits.items():
        folder = name.replace("dev", "train")
        for text, label in zip(examples.texts_a, examples.targets["labels"], strict=True):
            assert text.decode().split()[:2] == [folder, ("neg", "pos")[label]]
    assert len(set(splits["train"].texts_a + splits["dev"].texts_a)) == 40
    inside = TASKS["imdb"].read_splits(SPLITS, DataFiles(str(parent / "aclImdb")), seed=0)
    assert inside["dev"].texts_a == splits["dev"].texts_a


def test_missing_and_empty_folders_are_named(parent):
    with pytest.raises(FileNotFoundError, match="nowhere/train/neg holds no reviews"):
        TASKS["imdb"].read_splits(SPLITS, DataFiles("nowhere"), seed=0)
    for review in (parent / "aclImdb" / "test" / "pos").iterdir():
        review.unlink()
    with pytest.raises(FileNotFoundError, match="test/pos holds no reviews"):
        TASKS["imdb"].read_splits(SPLITS, DataFiles(str(parent)), seed=0)


def test_tables_of_reviews(parent):
    """Oracle: by hand; test sets may lack labels."""
    (parent / "mine.csv").write_text("id,text,label\n7,good,pos\n8,bad,neg\n")
    (parent / "new.csv").write_text("text\ngood\n")
    files = DataFiles(str(parent), None, str(parent / "mine.csv"), str(parent / "new.csv"))
    splits = TASKS["imdb"].with_files(files).read_splits(SPLITS, files, seed=0)
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
    examples = task.read_splits(["test"], DataFiles(str(parent)), seed=0)["test"]
    assert len(examples) == 40 and examples.targets == {}
    assert examples.ids[:2] == ["test/neg0_7.txt", "test/neg10_7.txt"]
    assert examples.texts_a[:2] == [b"test neg 0", b"test neg 10"]
    train = task.read_splits(["train"], DataFiles(str(parent)), seed=0)["train"]
    for name, text in zip(train.ids, train.texts_a, strict=True):
        assert name.split("/")[1] == text.decode().split()[1]
