"""Copies of texts with other words, and what is computed once and read when a run resumes."""

import collections
import dataclasses
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from support import save_checkpoint, save_run

from bert_tf.compress import run
from bert_tf.compression import student
from bert_tf.compression.augmentation import (
    LABELED,
    MASKED_AND_SAMPLED,
    REPLACED,
    Augmentation,
    Changes,
    Glove,
    MaskedLM,
    _likeliest,
    change,
)
from bert_tf.compression.compression_options import CompressionOptions
from bert_tf.compression.distillation import DistillationObjective
from bert_tf.compression.recipes import RECIPES
from bert_tf.compression.run_files import computed_once
from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.inference.masks import MaskFiller
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.runs.run import Run
from bert_tf.sessions.learner import Training
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import fingerprint
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "[unused0]", "##b", *"abcdefgh"))
WORDS = tuple("abcdefgh")


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory) -> str:
    config = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=8, initializer_range=0.5)
    return save_run(tmp_path_factory.mktemp("masked_lm"), BertPretrainer(config), VOCAB)


def test_words_are_changed_as_often_as_published():
    """Oracles: the probabilities of TinyBERT and of Tang et al.; n-grams of one to five words."""
    random, words = np.random.default_rng(0), ["old"] * 20_000
    candidates = [["new", "newer"]] * len(words)
    share = collections.Counter(change(words, candidates, REPLACED, random))
    assert share["new"] + share["newer"] == pytest.approx(0.4 * len(words), rel=0.05)
    assert share["new"] == pytest.approx(share["newer"], rel=0.1) and not share["[MASK]"]
    assert change(words, [[]] * len(words), REPLACED, random) == words
    whole = change(words, candidates, MASKED_AND_SAMPLED._replace(sampled=0), random)
    share = collections.Counter(whole)
    assert share["[MASK]"] == pytest.approx(0.1 * len(words), rel=0.1)
    assert share["new"] + share["newer"] == pytest.approx(0.1 * len(words), rel=0.1)
    few = [change(words[:9], candidates, MASKED_AND_SAMPLED, random) for _ in range(4000)]
    lengths = collections.Counter(map(len, few))
    assert lengths.pop(9) == pytest.approx(0.75 * len(few), rel=0.05)
    assert set(lengths) == {1, 2, 3, 4, 5} and min(lengths.values()) > 150
    ngrams = {"abcdef"[i:j] for i in range(6) for j in range(i + 1, min(i + 5, 6) + 1)}
    always = Changes(0.0, sampled=1.0)
    assert {"".join(change("abcdef", [[]] * 6, always, random)) for _ in range(500)} == ngrams


def test_candidates_are_the_likeliest_words(masked_lm):
    """Oracle: `MaskFiller` on the text with each word masked; no special tokens, no word pieces."""
    model = MaskedLM(masked_lm, 9)
    predict, rows = model._predict, []
    model._predict = lambda ids, *where: rows.extend(ids.numpy()) or predict(ids, *where)
    words, found = model.candidates(b"C ab Zz d, h e f")
    assert [np.flatnonzero(row == VOCAB.mask_id).tolist() for row in rows] == [[1], [5]]
    assert words == ["c", "ab", "zz", "d", ",", "h", "e", "f"]
    # "ab" is two tokens and "zz" and "," are unknown; of 8 positions, 6 are for the text.
    assert [bool(candidates) for candidates in found] == [1, 0, 0, 1, 0, 0, 0, 0]
    tokenizer = WordPieceTokenizer(VOCAB, True, special_tokens_in_text=True)
    filler = MaskFiller(model._model, tokenizer, len(VOCAB))
    for word, text in ((0, "[MASK] ab zz d ,"), (3, "c ab zz [MASK] ,")):
        ((guesses,),) = filler.fill([text.encode()])
        assert found[word] == [token for token, _ in guesses if token in WORDS]
    assert model.candidates(b"") == ([], [])

    # TinyBERT takes 15 of them.
    def falling(inputs, training):
        return {"mlm_logits": tf.range(40.0, 0.0, -1.0)[tf.newaxis, tf.newaxis]}

    one = tf.constant([[2, 4, 3]])
    best = _likeliest(falling, one, tf.constant([1]), np.arange(7, 40, 2, np.int32))
    np.testing.assert_array_equal(best, [np.arange(7, 37, 2)])


@pytest.fixture
def glove_file(tmp_path) -> str:
    """Vectors of words that are one token, two tokens or unknown."""
    file = tmp_path / "glove.txt"
    file.write_text("d 0 1 0\nab 2 0 0\nzz 0 1 1\ncab 1 1 0\nmany -1 0 1\n")
    return str(file)


def test_other_words_get_their_nearest_neighbors(masked_lm, glove_file, tmp_path):
    """Oracles: the neighbors by hand; the same text without vectors; the words of the copies."""
    options = CompressionOptions(
        recipe="tinybert", teacher=masked_lm, task="sst2", output_dir=str(tmp_path),
        max_seq_length=9, augment=30, masked_lm=masked_lm, glove_file=glove_file,
    )  # fmt: skip
    augmentation = Augmentation.of(options, open_checkpoint(masked_lm))
    # "ab" is two tokens and "zz" is unknown. Of the last "ab", one token is read, and of "zz" none.
    model, text = augmentation.model, b"C AB Zz d ab zz"
    words, alone = model.candidates(text)
    assert words == ["c", "ab", "zz", "d", "ab", "zz"]
    assert [bool(candidates) for candidates in alone] == [1, 0, 0, 1, 0, 0]
    ab, zz = ["cab", "d", "zz", "many"], ["d", "cab", "many", "ab"]
    expected = [alone[0], ab, zz, alone[3], ab, []]
    assert model.candidates(text, Glove(glove_file)) == (words, expected)
    assert model.candidates(b"zz e", Glove(glove_file))[1][0] == zz
    assert model.candidates(b"ab", Glove(glove_file)) == (["ab"], [ab])

    examples = TextExamples([text], None, {"labels": np.array([0], np.int32)})
    always = dataclasses.replace(augmentation, changes=Changes(1.0))
    copies = [copy.decode().split() for copy in always(examples).texts_a[1:]]
    assert len(copies) == 30 and {copy[5] for copy in copies} == {"zz"}
    assert [{copy[place] for copy in copies} for place in (1, 2)] == [set(ab), set(zz)]

    without = dataclasses.replace(options, glove_file=None, recipe="bilstm")
    other = Augmentation.of(without, open_checkpoint(masked_lm))
    assert (augmentation.changes, other.changes) == (REPLACED, MASKED_AND_SAMPLED)
    assert other.glove is None


def test_copies_are_a_function_of_the_seed(masked_lm, tmp_path):
    """Oracles: the same call again; the examples, which come first; labels that do not count."""
    texts = [b"a b c d e", b"f g h a b", b"zz"]
    examples = TextExamples(
        texts, texts[::-1], {"labels": np.array([0, 1, 1], np.int32)}, ["x", "y", "z"]
    )
    model = MaskedLM(masked_lm, 8)

    def make(examples, changes, seed, folder=str(tmp_path)):
        return Augmentation(model, 5, changes, seed, folder)(examples)

    made = [make(examples, MASKED_AND_SAMPLED, 1, f"{tmp_path}/{name}") for name in "ab"]
    made.append(make(examples, MASKED_AND_SAMPLED, 2))
    assert made[0].texts_a == made[1].texts_a != made[2].texts_a
    assert made[0].texts_a[:3] == texts and made[0].texts_b[:3] == texts[::-1]
    count, labeled = len(made[0]), made[0].targets[LABELED]
    assert 10 < count <= 18 and labeled.tolist() == [1] * 3 + [0] * (count - 3)
    origins = ["xyz".index(name) for name in made[0].ids]
    np.testing.assert_array_equal(made[0].targets["labels"], np.array([0, 1, 1])[origins])
    assert f"{count - 3} of them copies with other words" in made[0].notes
    # Equal texts have copies of their own, which differ from the texts.
    twins = make(examples.take(np.array([0, 0])), REPLACED, 1)
    assert len({*twins.texts_a[2:]}) > 5
    assert len(make(examples, Changes(0.0), 1)) == 3

    objective = DistillationObjective(ClassificationObjective(), RECIPES["pkd6"].loss)
    batch = {
        "labels": tf.constant([0, 1, 1]), "example_weights": tf.ones(3),
        LABELED: tf.constant([1.0, 0.0, 0.0]),
    }  # fmt: skip
    counts = {name: float(value) for name, value in objective.counts(batch).items()}
    assert counts == {"labels": 1, "accuracy": 1, "soft_labels": 3, "patience": 3}


def write_vectors(path, words, vectors) -> str:
    lines = (" ".join([word, *map(str, row)]) for word, row in zip(words, vectors, strict=True))
    with tf.io.gfile.GFile(str(path), "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def test_neighbors_have_the_largest_cosines(capsys):
    """Oracle: the cosines of NumPy in float64. TensorFlow's ram:// stands for gs://."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((60, 7)) * random.uniform(0.1, 10, (60, 1))
    words = [f"w{row}" for row in range(58)] + [". .", "naïve"]
    glove = Glove(write_vectors("ram://glove.txt", words, vectors))
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
    glove = Glove(write_vectors(tmp_path / "glove.txt", words, rows))
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
        (b"a 1 2\n\nb 1\n", ", line 3 must hold a word and finite numbers, as many as the first"),
        (b"a 1 2\nb 1 nan\n", ", line 2 must hold"),
        (b"a 1 x\n", ", line 1 must hold"),
        (b"400000 2\na 1 2\n", ", line 1 must hold .* delete it if it is a header"),
        (b"\n\n", " holds no word vectors"),
        (b"a 0 0\n", " holds no word vectors"),
    ],
)
def test_bad_files(content, message, tmp_path):
    """Oracle: the message, which names the file and the line."""
    file = tmp_path / "glove.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{file}{message}"):
        Glove(str(file))


def test_files_are_read_in_parts(tmp_path):
    """Oracle: the words of 3 MB of lines, which no part holds as a whole."""
    random = np.random.default_rng(2)
    words, rows = [f"w{row}" for row in range(2000)], random.standard_normal((2000, 80))
    glove = Glove(path := write_vectors(tmp_path / "glove.txt", words, rows))
    assert tmp_path.joinpath("glove.txt").stat().st_size > 3e6 and glove._words == words
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(glove._vectors, unit, rtol=1e-6)
    with open(path, "a") as file:
        file.write("odd 1")
    with pytest.raises(ValueError, match="line 2,001 must hold a word"):
        Glove(path)


stop = mock.Mock(side_effect=KeyboardInterrupt)


@pytest.fixture
def same_vocabulary(teacher, config, tmp_path) -> str:
    model = BertPretrainer(dataclasses.replace(config, num_hidden_layers=1))
    return save_run(tmp_path / "masked_lm", model, open_checkpoint(teacher).spec.vocab)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_run_that_starts_again_computes_nothing_twice(
    make_options, same_vocabulary, tmp_path, monkeypatch, capsys
):
    """Oracle: the uninterrupted run."""
    options = make_options("pd", num_train_epochs=0.5, augment=1, masked_lm=same_vocabulary)
    expected = run(options)
    options = dataclasses.replace(options, output_dir=str(tmp_path / "stopped"))
    with monkeypatch.context() as patch:
        patch.setattr(Training, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            run(options)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "set_weights", stop)
        patch.setattr(MaskedLM, "candidates", None)
        patch.setattr(student, "teacher_predictions", None)
        with pytest.raises(KeyboardInterrupt):
            run(options)
    capsys.readouterr()
    # Neither is the result of other flags.
    with monkeypatch.context() as patch:
        patch.setattr(student, "teacher_predictions", stop)
        with pytest.raises(KeyboardInterrupt):
            run(dataclasses.replace(options, precision="bfloat16"))
        patch.setattr(MaskedLM, "candidates", stop)
        with pytest.raises(KeyboardInterrupt):
            run(dataclasses.replace(options, random_seed=1))
    capsys.readouterr()
    assert run(options) == expected
    output = capsys.readouterr().out
    folder = tmp_path / "stopped" / "precomputed"
    assert f"Read {folder}/copies." in output and f"Read {folder}/predictions." in output
    assert sorted(path.name for path in folder.iterdir()) == ["copies", "predictions"]


def test_arrays_are_computed_again_for_other_inputs(tmp_path, capsys):
    """Oracle: the number of calls; the arrays, among them empty ones."""
    made = []

    def compute():
        made.append({"a": np.arange(len(made) + 3), "b": np.zeros([0, 2], np.uint8)})
        return made[-1]

    folder, file = str(tmp_path / "run"), tmp_path / "run/precomputed/things"
    for inputs, count in ((("x", 1), 1), (("x", 1), 1), (("x", 2), 2), (("x", 2), 2)):
        found = computed_once(folder, "things", inputs, compute)
        assert len(made) == count and found.keys() == {"a", "b"}
        np.testing.assert_equal(found, made[-1])
        assert found["b"].dtype == np.uint8
    whole = file.read_bytes()
    for damaged in (whole[:-9], b"text" + whole[4:], whole[:99] + b"x" + whole[100:]):
        file.write_bytes(damaged)
        capsys.readouterr()
        np.testing.assert_equal(computed_once(folder, "things", ("x", 2), compute), made[-1])
        assert f"{file} is damaged or belongs to other flags" in capsys.readouterr().out
    assert len(made) == 5
    for mine in (b"mine", b"mine" * 99):
        file.write_bytes(mine)
        with pytest.raises(FileExistsError, match=f"{file} exists: compress did not write it, so"):
            computed_once(folder, "things", ("x", 2), compute)
        assert file.read_bytes() == mine


def test_a_run_keeps_its_teacher(teacher, config, make_learner, make_options, tmp_path):
    """Oracle: the message for a teacher with another weight, before the teacher predicts."""
    source, folder = open_checkpoint(teacher), str(tmp_path / "run")
    name, tensor = next(iter(source.tensors.items()))
    changed = dataclasses.replace(tensor, read=lambda: tensor.read() + 1)
    other = dataclasses.replace(source, tensors={**source.tensors, name: changed})
    options = make_options("pkd6", output_dir=folder, do_train=True)
    save_checkpoint(folder, BertPretrainer(config))
    run = Run(folder)
    flags = dataclasses.asdict(options) | {"command": "compress", "finished": False}
    run.write(source.spec, flags)
    run.record_made_from(make_learner("pkd6", teacher=source).made_from)
    learner = make_learner("pkd6", teacher=other, output_dir=folder)
    with pytest.raises(ValueError, match=f"{folder} was made from .*{teacher}.* has changed"):
        fine_tune(options, learner=learner)


def test_fingerprints_tell_models_apart(teacher, tmp_path):
    """Oracle: models that differ in one thing each."""
    source, replace = open_checkpoint(teacher), dataclasses.replace
    spec, (name, tensor) = source.spec, next(iter(source.tensors.items()))
    other = replace(tensor, read=lambda: tensor.read() + 1)
    heads = replace(spec.config, num_attention_heads=4)
    others = [
        replace(source, tensors={**source.tensors, name: other}),
        replace(source, head=Head("classifier", ("positive", "negative"))),
        replace(source, spec=replace(spec, lower_case=False)),
        replace(source, spec=replace(spec, config=heads)),
    ]
    found = [fingerprint(model) for model in (source, *others)]
    assert len({*found}) == 5 and fingerprint(open_checkpoint(teacher)) == found[0]
    (tmp_path / "a").write_text("x 1 2\ny 3 4\n")
    (tmp_path / "b").write_text("x 1 2\nz 3 4\n")
    (tmp_path / "c").write_text("x 1 2\ny 4 3\n")
    assert len({Glove(str(tmp_path / file)).fingerprint() for file in "abc"}) == 3
