"""GLUE files: the official ones with their published counts, and small ones worked by hand."""

import lzma
import pathlib

import numpy as np
import pytest

from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.tasks.glue import TsvFiles


def test_sst2_has_its_published_counts(shared_data, tmp_path):
    source = shared_data / "glue" / "SST-2"
    (tmp_path / "train.tsv").write_bytes(lzma.open(source / "train.tsv.xz").read())
    train = TASKS["sst2"].read_files(str(tmp_path), "train")
    assert np.bincount(train.targets["labels"]).tolist() == [29780, 37569]
    assert train.texts_a[0] == b"hide new secretions from the parental units "
    # The parent folder works, too.
    dev = TASKS["sst2"].read_files(str(source.parent), "dev")
    assert np.bincount(dev.targets["labels"]).tolist() == [428, 444]


def test_a_task_of_pairs_is_a_table_entry(shared_data):
    # MRPC: a byte order mark, five columns, quotes that are plain characters.
    files = TsvFiles("MRPC", "#1 String", ("0", "1"), text_b="#2 String", label="Quality")
    train = files.read(str(shared_data / "glue"), "train")
    assert np.bincount(train.targets["labels"]).tolist() == [3668 - 2474, 2474]
    assert len(train.texts_a) == len(train.texts_b) == 3668
    assert train.texts_a[0].startswith(b"Amrozi accused his brother")
    assert train.texts_b[0].startswith(b"Referring to him as only")


def write(folder: pathlib.Path, data: bytes) -> str:
    (folder / "dev.tsv").write_bytes(data)
    return str(folder)


def test_quotes_line_ends_and_odd_bytes_are_kept_as_they_are(tmp_path):
    data = '\ufeffsentence\tlabel\r\n"an open quote\t1\r\na\u2028b\x0bc\rd\0e\t0\r\n\r\n'.encode()
    examples = TASKS["sst2"].read_files(write(tmp_path, data + b"bad \xff byte\t1"), "dev")
    assert examples.texts_a == [b'"an open quote', "a\u2028b\x0bc\rd\0e".encode(), b"bad \xff byte"]
    assert examples.targets["labels"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "has no column 'sentence'"),
        (b"sentence\tgold\na\t1\n", "has no column 'label'"),
        (b"sentence\tlabel\na\t1\nb\t2\n", "line 3: label '2' is not one of 0, 1"),
        (b"sentence\tlabel\nno label\n", "line 2: 1 columns, but the first line has 2"),
    ],
)
def test_bad_files_are_named(tmp_path, data, match):
    with pytest.raises(ValueError, match=match) as caught:
        TASKS["sst2"].read_files(write(tmp_path, data), "dev")
    assert "dev.tsv" in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="contains neither train.tsv nor SST-2/train.tsv"):
        TASKS["sst2"].read_files(str(tmp_path), "train")
