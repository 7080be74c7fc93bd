"""Tables in memory. Oracle: the cells, by hand, that `read_table` finds."""

import datetime
import decimal
import types

import numpy as np
import pandas as pd
import pyarrow
import pytest
import tensorflow as tf

from bert_tf.finetuning import labels
from bert_tf.inference.texts import given_examples
from bert_tf.tables.columns import find_columns
from bert_tf.tables.memory import table_in_memory
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


_TAG = types.SimpleNamespace(names=["O", "PER"])


class _Dataset:
    """A Hugging Face dataset, as far as its rows, formats and the names of classes go.

    As there, Arrow gives tables of one row; other formats decode all columns, here with an error.
    """

    features = {
        "text": types.SimpleNamespace(dtype="string"),
        "label": types.SimpleNamespace(names=["bad", "good"]),
        "tags": types.SimpleNamespace(feature=_TAG),
        "nested": types.SimpleNamespace(feature=types.SimpleNamespace(feature=_TAG)),
        "image": types.SimpleNamespace(decode=True),
    }

    def __init__(self, kind=None, last=-1):
        self._kind, self._last = kind, last

    def with_format(self, kind):
        return _Dataset(kind, self._last)

    def __iter__(self):
        if self._kind != "arrow":
            raise OSError("cannot identify image file")
        row = {"text": "a", "label": 1, "tags": [0, 1], "nested": [[1], []], "image": b"x"}
        yield pyarrow.Table.from_pylist([row])
        row = {"text": "b", "label": self._last, "tags": [1], "nested": None, "image": b"y"}
        yield pyarrow.Table.from_pylist([row])


class _Polars:
    """A data frame or a Series of polars, as far as it goes."""

    def __init__(self, values):
        self._values = values

    def __iter__(self):
        return iter(self._values)


class _PolarsSeries(_Polars):
    def to_list(self):
        return self._values


class _PolarsFrame(_Polars):
    def iter_columns(self):
        raise NotImplementedError

    def to_dict(self):
        return {name: _PolarsSeries(cells) for name, cells in self._values.items()}


_TEXTS, _LABELS = ["a", "b"], [1, 0]
_PAIR = {"text": _TEXTS, "label": _LABELS}
_DAY = datetime.date(2026, 1, 2)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_frame(), ROWS),
        (_frame().convert_dtypes(), ROWS),
        (ROWS, ROWS),
        ({name: tuple(cells) for name, cells in ROWS.items()}, ROWS),
        ([dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)], ROWS),
        (pyarrow.table(ROWS), ROWS),
        (_PolarsFrame(ROWS), ROWS),
        ({"x": pd.Series([1.0, np.nan]), 2: np.arange(2)}, {"x": [1.0, None], "2": [0, 1]}),
        ({"x": [np.inf, np.nan, np.float32(0.5)]}, {"x": [np.inf, None, 0.5]}),
        ({"x": [pd.NA, "a"], "y": [pd.NaT, "b"]}, {"x": [None, "a"], "y": [None, "b"]}),
        ([{"a": 1}, {"b": b"\xff"}], {"a": [1, None], "b": [None, "\udcff"]}),
        (pd.DataFrame({"text": ["a"], "features": [1]}), {"text": ["a"], "features": [1]}),
        (
            _Dataset(),
            {
                "text": _TEXTS,
                "label": ["good", None],
                "tags": [["O", "PER"], ["PER"]],
                "nested": [[["PER"], []], None],
                "image": ["x", "y"],
            },
        ),
        (tf.data.Dataset.from_tensor_slices(_PAIR), _PAIR),
        (tf.data.Dataset.from_tensor_slices((_TEXTS, _LABELS)), _PAIR),
        ({"text": tf.constant(_TEXTS), "label": tf.constant(_LABELS)}, _PAIR),
        ([{"text": tf.constant("a"), "label": np.int64(1)}], {"text": ["a"], "label": [1]}),
        ({"x": tf.ragged.constant([[1], [2, 3]])}, {"x": [[1], [2, 3]]}),
        ((_TEXTS, _LABELS), _PAIR),
        ([[*_TEXTS, "c"], [*_LABELS, 1]], {"text": [*_TEXTS, "c"], "label": [*_LABELS, 1]}),
        ((np.array(_TEXTS), tf.constant(_LABELS)), _PAIR),
        ((pd.Series(_TEXTS), _PolarsSeries(_LABELS)), _PAIR),
        (_TEXTS, {"text": _TEXTS}),
        (np.array(_TEXTS), {"text": _TEXTS}),
        (pd.Series(_TEXTS), {"text": _TEXTS}),
        (({"text": text} for text in _TEXTS), {"text": _TEXTS}),
    ],
)
def test_cells_keep_their_meaning(data, expected):
    """Oracle: the cells by hand, with the types of JSON."""
    table = read_table(table_in_memory(data, "train"))
    assert table.columns == expected
    for name, cells in expected.items():
        assert [*map(type, table.columns[name])] == [*map(type, cells)]


_FORMS = "give the path of a file, a data frame"
_LOOP = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, f"train is 7: {_FORMS}"),
        ([7], f"row 1 of train is 7: {_FORMS}"),
        ([("a", "b"), ("c", "d")], f"row 1 of train is of the type tuple: {_FORMS}"),
        ((("a", "b"), ("c", "d")), f"row 1 of train is of the type tuple: {_FORMS}"),
        (np.array("a"), f"train is 'a': {_FORMS}"),
        (np.array([["a", "b", "c"]] * 2), f"row 1 of train is of the type list: {_FORMS}"),
        (tf.Variable(3), f"train is of the type int32: {_FORMS}"),
        (tf.data.Dataset.from_tensors((1, 2, 3)), "row 1 of train is of the type tuple"),
        (tf.data.Dataset.from_tensors("a").repeat(), "train never ends: leave out repeat"),
        ({"text": _TEXTS, "x": [1, _LOOP]}, "row 2 of column 'x' of train holds itself, or too m"),
        ([{"text": "a"}, {"text": _LOOP}], "row 2 of column 'text' of train holds itself"),
        ([["a", 0], ["b", 1]], f"row 1 of train is of the type list: {_FORMS}"),
        ((pd.Series(_TEXTS), pd.Series(_LABELS)[::-1]), "the Series of train have different ind"),
        ((pd.DataFrame({"text": _TEXTS}), _LABELS), "column 'text' of train is of the type DataF"),
        ({"train": pd.DataFrame(_PAIR)}, r"several data sets: give .* such as data\['train'"),
        (pyarrow.Table.from_arrays([_LABELS] * 2, ["x", "x"]), "several columns of the same name"),
        ({"a", "b"}, f"train is of the type set: {_FORMS}"),
        (({"a", "b"}, {0, 1}), f"row 1 of train is of the type set: {_FORMS}"),
        ([], "train holds no examples"),
        (pd.DataFrame(), "train holds no examples"),
        ({"text": "abc"}, "column 'text' of train is 'abc': a column is a list of cells"),
        ({"text": 5}, "column 'text' of train is 5: a column is a list of cells"),
        ({"text": {"a"}}, "column 'text' of train is of the type set: a column is"),
        (pd.DataFrame({"text": _TEXTS}).to_dict(), "column 'text' of train is of the type dict"),
        ({"a": [1], "b": [1, 2]}, "the columns of train have different lengths: 'a' 1, 'b' 2"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of the same name"),
        ({0: [1], "0": [1]}, "train has several columns called '0'"),
        ({("a", "b"): [1]}, r"train has a column called \('a', 'b'\): rename it"),
        ({"train": _Dataset(), "test": _Dataset()}, r"give one of them, such as data\['tr"),
        (_Dataset(last=2), "row 2 of train, column 'label': 2 is not the number of a class, 0 to"),
        (_Dataset(last=0.0), "row 2 of train, column 'label': 0.0 is not the number of a class"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_table(table_in_memory(data, "train"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [_DAY, pd.Timestamp(_DAY), np.datetime64(_DAY), decimal.Decimal(1), object(), {1}, {(1,): 2}],
)
def test_other_objects_are_refused_where_they_are_read(value):
    """Oracle: the line that names the row; a column that nobody reads may hold anything."""
    data = {"text": ["a", value], "other": [value] * 2, "id": [1, value]}
    table = read_table(table_in_memory(data, "train"))
    with pytest.raises(ValueError, match="^train, row 2: 'text' is .*, not a string$"):
        table.texts("text")
    with pytest.raises(ValueError, match="^train, row 2: the id is .*, not text or a number$"):
        table.ids("id")
    with pytest.raises(ValueError, match="^train, row 2: label .* is not a string: write"):
        labels.read_single(table, "text")
    table = read_table(table_in_memory({"x": [value, 1], "y": ["a text " * 20, "b"]}, "train"))
    assert find_columns(table).text == "y"
    # NumPy and pandas would make numbers of nanoseconds.
    days = read_table(table_in_memory({"day": np.array([_DAY] * 2, "M8[ns]")}, "train"))
    with pytest.raises(ValueError, match="^train, row 1: label .* is not a string: write"):
        labels.read_single(days, "day")
    times = pd.DataFrame({"text": _TEXTS, "x": pd.to_datetime([_DAY] * 2)})
    assert table_in_memory(times, "train").columns["text"] == _TEXTS


@pytest.mark.parametrize(
    "texts",
    [
        _TEXTS,
        tuple(_TEXTS),
        np.array(_TEXTS),
        pd.Series(_TEXTS),
        tf.constant(_TEXTS),
        _PolarsSeries(_TEXTS),
        (text.encode() for text in _TEXTS),
        [{"text": np.str_(text)} for text in _TEXTS],
        pd.DataFrame({"text": _TEXTS}),
        _PolarsFrame({"text": _TEXTS}),
        pyarrow.table({"text": _TEXTS}),
        _Dataset(),
        tf.data.Dataset.from_tensor_slices({"text": _TEXTS}),
    ],
)
def test_texts_to_predict(texts):
    """Oracle: the texts."""
    signature = [tf.TensorSpec([None], tf.string, "text")]
    examples, single = given_examples(texts, signature)
    assert ([x["text"] for x in examples], single) == (_TEXTS, False)
