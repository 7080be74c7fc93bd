"""The tables that users bring, worked by hand."""

import csv
import json
import re
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from bert_tf.base.content import read_text
from bert_tf.tables import delimited, rows
from bert_tf.tables.table import read_table

TEXTS = [
    'a "quoted" word',
    "commas, tabs\tand; semicolons",
    "two\nlines\r\n\r\nand more",
    "",
    "größer 文 🙂",
    "nul \0 and \x0b and lone \r and \u2028",
    "x" * 200_000,
]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csv_files_return_what_was_written(tmp_path, delimiter, line_end, capsys):
    """Oracles: the texts that csv wrote, but for lone carriage returns; fields counted by hand."""
    with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=line_end)
        writer.writerows([("text", "label"), *((text, "x") for text in TEXTS)])
    table = read_table(str(tmp_path / "a.csv"))
    texts = [text.replace("lone \r", "lone  ") for text in TEXTS]
    assert table.columns == {"text": texts, "label": ["x"] * len(TEXTS)}
    assert table.lines[:4] == [2, 3, 4, 8]
    assert "a.csv: 1 field with line breaks, the first in line 4." in capsys.readouterr().out


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a, b, c; d; e\t\t\tf||", 'say "a, b"; "c; d"', "a\n,,,\n;;;"])
def test_separators_inside_of_quoted_names_do_not_count(tmp_path, delimiter, name):
    """Oracle: the columns that the standard library wrote."""
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([("text", name), ("x", "y, z; w")])
    assert read_table(str(tmp_path / "a.csv")).columns == {"text": ["x"], name: ["y, z; w"]}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "^"])
@pytest.mark.parametrize("first", ["sep={}\r\n", '\ufeff"sep={}"\n', "SEP={0}{0}{0}\n"])
def test_delimiters_that_excel_states(write, name, delimiter, first):
    """Oracle: by hand; lines keep their numbers, and fields may be quoted."""
    rows = 'text,x;y\n"a ""b""",1\n'.replace(",", delimiter)
    if delimiter == ";":
        rows = rows.replace("x;y", '"x;y"')
    table = read_table(write(name, (first.format(delimiter) + rows).encode()))
    assert table.columns == {"text": ['a "b"'], "x;y": ["1"]} and table.lines == [3]


def test_stray_quotes_that_join_rows_are_said(write, capsys):
    """Oracle: by hand; lines 3 to 5 are one row, and so are 6 and 7. Others are not mentioned."""
    data = b'text,label\na,x\n"b,x\nc,y\nd",x\n"e\nf","g\nh"\n'
    assert read_table(write("a.csv", data)).lines == [2, 3, 6]
    out = capsys.readouterr().out
    assert "a.csv: 3 fields with line breaks, the first in line 3. " in out and out.count("\n") == 1
    others = {"a.csv": b'a\n"b"\n', "a.tsv": b'a\n"b\n"\n', "a.json": b'{"a":"\\n"}'}
    for name, data in others.items():
        read_table(write(name, data))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "data", "columns", "lines"),
    [
        # Quotes and lone carriage returns are text in .tsv, and blank lines are skipped.
        (
            "a.tsv",
            b'\xef\xbb\xbftext\tlabel\r\n"open\tx\r\n\r\na\rb\ty\r\n',
            {"text": ['"open', "a\rb"], "label": ["x", "y"]},
            [2, 4],
        ),
        # pandas writes NaN for an empty cell. Objects may lack keys.
        ("a.jsonl", b'{"a": NaN, "b": [1, NaN]}\n', {"a": [None], "b": [[1, None]]}, [1]),
        (
            "a.jsonl",
            b'\xef\xbb\xbf{"a": "x\\ny", "b": [1, "x"]}\r\n\r\n{"a": null, "id": 7}\n',
            {"a": ["x\ny", None], "b": [[1, "x"], None], "id": [None, 7]},
            [1, 3],
        ),
        # Blank lines of a single column are empty cells: predictions must not move up.
        ("a.csv", b"text\na\n\nb\n", {"text": ["a", "", "b"]}, [2, 3, 4]),
        ("a.tsv", b"text\r\na\r\n\r\nb\r\n", {"text": ["a", "", "b"]}, [2, 3, 4]),
    ],
)
def test_cells_and_their_lines(name, data, columns, lines, write):
    """Oracle: by hand."""
    table = read_table(write(name, data))
    assert (table.columns, table.lines) == (columns, lines)


_QUOTED = ['He said "hi"', "a, b", "two\nlines", "a\tb", '5" pipe', '"', "plain"]


@pytest.mark.parametrize("texts", [_QUOTED, _QUOTED[:2], _QUOTED[2:4], _QUOTED[4:]])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_tsv_files_with_quoted_fields(texts, quoting, line_end, tmp_path, capsys):
    """Oracle: the texts that the standard library's writer wrote, as pandas does."""
    with open(tmp_path / "a.tsv", "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=quoting, lineterminator=line_end)
        writer.writerows([("text", "label"), *((text, 1) for text in texts)])
    table = read_table(str(tmp_path / "a.tsv"))
    assert table.columns == {"text": texts, "label": ["1"] * len(texts)}
    assert "a.tsv: its fields are quoted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['a 5" pipe\tx', "b\ty"], False),
        (['"Great movie"\tx', "bad\ty"], True),
        (['"Great", he said\tx', "b\ty"], False),
        (['"I love it\tx', 'not "\ty'], False),
        (['"I love it\tx', 'b"\ty'], False),
        (['"a ""b"" c"\tx', '5" pipe\ty'], True),
        (['"a ""b"" c"\tx', '"plain"\ty', "b\tz"], True),
        (['"He said \\"hi\\""\tx', '"b"\ty'], True),
        (['""\tx', "b\ty"], True),
        (['"\tx', '"\ty'], False),
    ],
)
def test_quotes_in_other_tsv_files_are_text(lines, said, write, capsys):
    """Oracle: the fields between tabs; a note on those that are in quotes as a whole."""
    path = write("a.tsv", "\n".join(["text\tlabel", *lines]).encode())
    columns = read_table(path).columns
    assert [*map("\t".join, zip(columns["text"], columns["label"], strict=True))] == lines
    assert ("a.tsv: kept the quotes around" in capsys.readouterr().out) == said


def test_columns_without_a_name_are_kept(write):
    """Oracle: the names that pandas gives them."""
    path = write("a.csv", b",v1,v2,,\n1,a,b,,\n2,c,d,e,f\n")
    expected = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("list")
    assert read_table(path).columns == expected and "Unnamed: 4" in expected


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"", "a.txt: the name must end in .csv, .tsv, .json, .jsonl"),
        ("a.csv", b"", "a.csv is empty"),
        ("a.parquet", b"", "a.parquet is empty"),
        ("a.csv", b"text,label\n\n", "a.csv holds no examples"),
        ("a.csv", b"a,b\r1,2\r", "a.csv is a single line with carriage returns: save the file"),
        ("a.csv", b"\xff\xfet\0", "a.csv is UTF-16: save it as UTF-8"),
        ("a.csv", b"a,b,a\n", "a.csv: the first line names 'a' twice"),
        ("a.csv", b"a, b\n1,2\na,b\n3,4\n", "a.csv, line 3 names the columns again: leave it"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", "a.csv, line 3: 3 columns, but the first line has 2"),
        ("a.csv", b'a,b\n"1\n1",2\n"1,2\n3,4\n', "a.csv, line 4: a quote is not closed"),
        ("a.csv", b'a,b\n"1"x,2\n', "a.csv, line 2: ',' expected after '\"'; inside a quoted"),
        ("a.tsv", b"a\tb\n1\n", "a.tsv, line 2: 1 column, but the first line has 2: 'a', 'b'"),
        ("a.json", b'{"a": 1}\n{"a": \n', "a.json, line 2 is not JSON: Expecting value at column"),
        ("a.json", b'["a"]\n', "a.json, object 1 is not a JSON object: write one per line"),
        ("a.json", b'["a"]\n["b"]\n', "a.json, line 2 is not JSON: Extra data at column 1"),
        ("a.json", b'[\n{"a": 1},\n{"a" 1}]', "a.json, line 3 is not JSON: Expecting ':'"),
        ("a.json", b'{\n"a": 1\n}', "enclosed in double quotes at column 2; write one object per"),
        ("a.json", b"[]", "a.json holds no examples"),
        ("a.csv", b"sep=;\na;b\n1\n", "a.csv, line 3: 1 column, but the first line has 2"),
        ("a.json", b'{"a": 1}\n{"a": 1, "a": 1}', "line 2 cannot be read: it names 'a' twice"),
        ("a.json", b'{"a":' + b"[" * 10**5, "a.json, line 1 cannot be read: maximum rec"),
    ],
)
def test_damaged_files_are_one_clear_line(write, name, data, message):
    with pytest.raises(ValueError) as caught:
        read_table(write(name, data))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_objects(write, indent):
    """Oracle: by hand; pandas writes such files."""
    rows = [{"text": "a\nb", "label": None}, {"text": "c", "id": 7}]
    table = read_table(write("a.json", json.dumps(rows, indent=indent).encode()))
    assert table.columns == {"text": ["a\nb", "c"], "label": [None, None], "id": [None, 7]}
    assert table.at(1).endswith("a.json, object 2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.csv", "nowhere.csv: no such file"),
        ("folder", "folder is a directory: name one of its files"),
        ("folder/*.csv", "folder/*.csv is a list or a pattern of files: name one"),
        ("folder/a.csv,folder/b.csv", "b.csv is a list or a pattern of files: name one"),
    ],
)
def test_paths_that_are_no_single_file(name, message, tmp_path, monkeypatch):
    """Oracle: by hand; also for files that are no tables."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for letter in "ab":
        (tmp_path / "folder" / f"{letter}.csv").touch()
    for read in (read_table, read_text):
        with pytest.raises((OSError, ValueError), match=re.escape(message)):
            read(name)


def test_a_parquet_file_names_each_column_once(tmp_path):
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    parquet.write_table(table, path := str(tmp_path / "a.parquet"))
    with pytest.raises(ValueError, match="a.parquet has two columns named 'text'"):
        read_table(path)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_damaged_parquet_files_are_one_clear_line(tmp_path, compression):
    """Oracle: every damaged file is read, or refused with its name and the row."""
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    path, rng, messages = tmp_path / "a.parquet", np.random.default_rng(0), []
    table = pyarrow.Table.from_pylist([{"text": f"{n} größer " * 9} for n in range(400)])
    parquet.write_table(table, path, compression=compression)
    data = path.read_bytes()
    for place in rng.integers(0, len(data), 60):
        path.write_bytes(data[:place] + rng.bytes(8) + data[place + 8 :])
        try:
            read_table(str(path))
        except ValueError as error:
            messages.append(str(error))
    line = re.compile(r".*a\.parquet, row [\d,]+: damaged or not Parquet \(.*")
    assert len(messages) > 5 and all(map(line.fullmatch, messages))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("a.csv", "{},x\n"),
        ("a.tsv", "{}\tx\n"),
        ("a.tsv", '"{}"\tx\n'),
        ("a.jsonl", '{{"text": "{}"}}\n'),
    ],
)
def test_memory_of_reading(name, row, write):
    """Oracle: the size of the file; texts are held once, besides a few blocks of the file."""
    data = row.format("text") + row.format("a word " * 100) * 16_000
    path = write(name, data)
    tracemalloc.start()
    table = read_table(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) >= 16_000 and peak < 2 * len(data)


def test_a_missing_quote_joins_only_so_many_lines(write, monkeypatch):
    """Oracle: by hand; lines 3 and 4 exceed the limit of a field."""
    monkeypatch.setattr(delimited, "_LONGEST_FIELD", 80)
    path = write("a.csv", f'text\na\n"{"b" * 50}\n{"c" * 50}\nd\n"e\nf"\n{"g" * 81}\n')
    found = [*rows.read_rows(path)[1]]
    assert [number for number, _ in found] == [2, 3, 5, 6, 8]
    assert [x["text"] for _, x in found if isinstance(x, dict)] == ["a", "d", "e\nf"]
    for number in (1, 4):
        with pytest.raises(ValueError, match=f"a.csv, line {found[number][0]}: field larger than"):
            raise found[number][1]
