"""Tables in memory. Oracle: the rows, by hand, that `read_table` then finds."""

import datetime
import types

import numpy as np
import pandas as pd
import pytest

from bert_tf.tables.memory import json_lines
from bert_tf.tables.table import read_table

ROWS = {
    "text": ["a \u2028 line\nend", "b\t", None],
    "label": [1, None, 3],
    "score": [0.5, None, 2.0],
    "tags": [["x", "y"], [], ["z"]],
    "kind": ["p", "q", "p"],
    "sure": [True, False, True],
}


def _frame() -> pd.DataFrame:
    frame = pd.DataFrame(ROWS)
    frame["label"] = frame["label"].astype("Int64")  # with pandas.NA
    frame["kind"] = frame["kind"].astype("category")
    frame["tags"] = [np.array(["x", "y"]), np.array([]), ("z",)]
    return frame.set_index([[7, 7, 9]])


class _Dataset:
    """A Hugging Face dataset, as far as its rows and the names of classes go."""

    column_names = ["text", "label", "tags"]
    features = {
        "text": types.SimpleNamespace(dtype="string"),
        "label": types.SimpleNamespace(names=["bad", "good"]),
        "tags": types.SimpleNamespace(feature=types.SimpleNamespace(names=["O", "PER"])),
    }

    def __iter__(self):
        yield {"text": "a", "label": 1, "tags": [0, 1]}
        yield {"text": "b", "label": -1, "tags": np.array([1])}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_frame(), ROWS),
        (_frame().convert_dtypes(), ROWS),
        (ROWS, ROWS),
        ({name: tuple(cells) for name, cells in ROWS.items()}, ROWS),
        ([dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)], ROWS),
        ({"x": pd.Series([1.0, np.nan]), 2: np.arange(2)}, {"x": [1.0, None], "2": [0, 1]}),
        ({"x": [float("inf"), np.float32(0.5)]}, {"x": [None, 0.5]}),
        ([{"a": 1}, {"b": b"\xff"}], {"a": [1, None], "b": [None, "\ufffd"]}),
        ([{"day": datetime.date(2026, 1, 2)}], {"day": ["2026-01-02"]}),
        (
            _Dataset(),
            {"text": ["a", "b"], "label": ["good", None], "tags": [["O", "PER"], ["PER"]]},
        ),
    ],
)
def test_rows_keep_their_meaning(data, expected, write):
    """Oracles: the cells by hand; JSON, which has no NaN and no Infinity."""
    lines = json_lines(data, "train")
    assert "NaN" not in lines and "Infinity" not in lines
    table = read_table(write("x.jsonl", lines))
    assert table.columns == expected
    for name, cells in expected.items():
        assert [*map(type, table.columns[name])] == [*map(type, cells)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "train is or holds int: give the path of a file, a DataFrame"),
        ([["a", "b"]], "train is or holds list"),
        ([], "train holds no rows"),
        (pd.DataFrame(), "train holds no rows"),
        ({"text": "abc"}, "'text' of train is a string: a column is a list of cells"),
        ({"a": [1], "b": [1, 2]}, "the columns of train have different lengths: 'a' 1, 'b' 2"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of the same name"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        json_lines(data, "train")
    assert "\n" not in str(caught.value)
