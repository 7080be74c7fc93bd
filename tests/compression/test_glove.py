"""Nearest words by vectors in a file."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.compression.candidates import Glove


def write(path, words, vectors) -> str:
    lines = (" ".join([word, *map(str, row)]) for word, row in zip(words, vectors, strict=True))
    with tf.io.gfile.GFile(str(path), "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def test_neighbors_have_the_largest_cosines(capsys):
    """Oracle: the cosines of NumPy in float64. TensorFlow's ram:// stands for gs://."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((60, 7)) * random.uniform(0.1, 10, (60, 1))
    words = [f"w{row}" for row in range(58)] + [". .", "naïve"]
    glove = Glove(write("ram://glove.txt", words, vectors))
    assert capsys.readouterr().out == "Read 60 word vectors of 7 numbers from ram://glove.txt.\n"
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors.T / lengths / lengths[:, np.newaxis]
    for row, word in enumerate(words):
        nearest = [other for other in np.argsort(-cosines[row]) if other != row]
        expected = [words[other] for other in nearest[:15]]
        assert glove.neighbors(word) == expected == glove.neighbors(word)
    assert glove.neighbors("absent") == []
    assert ". ." in sum(map(glove.neighbors, words), [])


def test_equally_near_words_come_in_the_order_of_the_file(tmp_path):
    """Oracle: the order of the file. A length of 300, to which matrix products are not exact."""
    near, far = np.random.default_rng(1).standard_normal((2, 300))
    rows = [far, *[near * 2.0**power for power in range(20)], far]
    words = [f"w{row}" for row in range(len(rows))]
    glove = Glove(write(tmp_path / "glove.txt", words, rows))
    assert glove.neighbors("w9") == [f"w{row}" for row in range(1, 17) if row != 9]
    assert glove.neighbors("w0")[0] == "w21" and glove.neighbors("w21")[:2] == ["w0", "w1"]


def test_lines_that_are_left_out(tmp_path, capsys):
    """Oracle: the same file without these lines; blank lines are no news."""
    file = tmp_path / "glove.txt"
    lines = [b"a 1 0", b"b 1 1", b"0 0 1", b"c\xc3\xa9 -1 0 "]
    file.write_bytes(b"\n".join(lines))
    expected = Glove(str(file))
    odd = [b"", b"zeros 0 0.0", b"caf\xe9 1 0.1", b"b 0 -1"]
    file.write_bytes(b"\r\n".join([*lines[:2], *odd, *lines[2:], b"", b""]))
    glove = Glove(str(file))
    assert capsys.readouterr().out.endswith("of 2 numbers from " + f"{file}; 3 lines left out.\n")
    for word in ("a", "b", "0", "cé"):
        assert glove.neighbors(word) == expected.neighbors(word) != []
    assert glove.neighbors("b") == ["a", "0", "cé"]
    assert glove.neighbors("zeros") == glove.neighbors("caf") == []
    file.write_bytes(b"only 1 2\n")
    assert Glove(str(file)).neighbors("only") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2\n\nb 1\n", "line 3: 1 value after the word instead of the 2 of the first line"),
        (b"a 1 2\nb\n", "line 2: 0 values after the word instead of the 2"),
        (b"a 1 2\nb 1 2 3\n", "line 2: 3 values after the word instead of the 2"),
        (b"a 1 2\nb c 1 2 3\n", "line 2: 4 values after the word instead of the 2"),
        (b"a 1 2\nb c 1\n", "line 2: 'c' is not a finite number"),
        (b"a 1 x\n", "line 1: 'x' is not a finite number"),
        (b"a 1 2\nb 1 nan\n", "line 2: 'nan' is not a finite number"),
        (b"a 1 2\nb -inf 1\n", "line 2: '-inf' is not a finite number"),
        (b"a 1 2\nb \xff 1\n", "line 2: '\ufffd' is not a finite number"),
        (b"400000 2\na 1 2\n", "line 1 holds no vector: .* if this line is a header, delete it"),
        (b"a,1,2\n", "line 1 holds no vector"),
        (b"", " holds no word vectors"),
        (b"\n\n", " holds no word vectors"),
        (b"a 0 0\n", " holds no word vectors"),
    ],
)
def test_bad_files(content, message, tmp_path):
    """Oracle: the message, which names the file and the line."""
    file = tmp_path / "glove.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{file},? {message.strip()}"):
        Glove(str(file))


def test_files_are_read_in_parts(tmp_path):
    """Oracles: the words of 3 MB of lines, which no part holds as a whole; the same in gzip."""
    random = np.random.default_rng(2)
    words, rows = [f"w{row}" for row in range(2000)], random.standard_normal((2000, 80))
    glove = Glove(path := write(tmp_path / "glove.txt", words, rows))
    assert tmp_path.joinpath("glove.txt").stat().st_size > 3e6 and glove._words == words
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(glove._vectors, unit, rtol=1e-6)
    (tmp_path / "glove.txt.gz").write_bytes(gzip.compress((tmp_path / "glove.txt").read_bytes()))
    np.testing.assert_array_equal(Glove(f"{path}.gz")._vectors, glove._vectors)
    with open(path, "a") as file:
        file.write("odd 1")
    with pytest.raises(ValueError, match="line 2,001: 1 value after the word"):
        Glove(path)


def test_files_that_cannot_be_read(tmp_path):
    """Oracle: the message, which names the file."""
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(OSError, match=f"^cannot read {path}: "):
            Glove(str(path))
