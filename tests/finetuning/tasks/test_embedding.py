"""Vectors of texts: from tables to runs, and what reads these runs."""

import csv
import dataclasses
import functools
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from support import save_run, tuning_options

from bert_tf import compress, convert_checkpoint, extract_features, predict
from bert_tf.config import EMBEDDING, BertConfig, Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import make_task
from bert_tf.inference.text_embedder import load_embedder
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.run_finetuning import run
from bert_tf.runs.run import Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import Tensor
from bert_tf.training.reports import read_results
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings, write_settings
from bert_tf.weights.names import HEAD_BIAS, HEAD_KERNEL
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab

TOKENIZER = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, *"abcdw")), True)


def table(folder, name: str, header: list[str], rows) -> str:
    path = folder / name
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def trained(files, folder, label_type: str, **flags) -> FineTuningOptions:
    flags |= dict(task="csv", label_type=label_type, data_dir=None)
    options = tuning_options(files, folder / "run", **flags)
    run(options)
    return options


def results(options) -> dict[str, float]:
    return read_results(f"{options.output_dir}/eval_results.txt")


def predictions(options) -> list[dict[str, str]]:
    with open(f"{options.output_dir}/predictions_dev.tsv") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="module")
def similar(files, sentences, tmp_path_factory) -> FineTuningOptions:
    """A finished run: texts with the same word of sentiment are similar, 9; others are not, 1."""
    folder = tmp_path_factory.mktemp("similar")
    first, second = sentences(128, seed=0), sentences(128, seed=1)
    rows = [(a, b, 9 if x == y else 1) for (a, x), (b, y) in zip(first, second, strict=True)]
    path = table(folder, "train.csv", ["text", "other", "label"], rows)
    flags = dict(train_file=path, dev_file=path, text_b_column="other", num_train_epochs=4.0)
    return trained(files, folder, "similarity", **flags, pooling="max", normalize=True)


@pytest.fixture(scope="module")
def ranked(files, tmp_path_factory) -> FineTuningOptions:
    """A finished run: texts of two letters belong to the same letters among other words."""
    folder = tmp_path_factory.mktemp("ranked")
    pairs = [*itertools.combinations("abcdefgh", 2)]
    rows = [(f"{x} {y}", f"good {y} bad {x}", f"good {x} bad {x}") for x, y in pairs * 8]
    columns = dict(text_column="anchor", text_b_column="positive", negative_column="negative")
    train = table(folder, "train.csv", columns.values(), rows)
    dev = table(folder, "dev.csv", columns.values(), rows[:28] + [("a b", "a b bad", "")])
    flags = dict(train_file=train, dev_file=dev, num_train_epochs=1.0, temperature=0.1)
    return trained(files, folder, "pairs", **columns, **flags)


@pytest.mark.parametrize(
    ("flags", "batch", "message"),
    [
        ({"text_b_column": "other"}, 1, "--train_batch_size=1 leaves one pair .* use at least 2"),
        ({}, 2, "without second texts needs dropout, but the configuration has none: give --text"),
    ],
)
def test_steps_that_teach_nothing_are_refused(files, tmp_path, flags, batch, message):
    """Oracle: the only candidate has the loss 0; two equal vectors are not told by dropout."""
    rows = [(f"good {x}", f"bad {x}") for x in "abcd"]
    path = table(tmp_path, "train.csv", ["text", "other"], rows)
    config = BertConfig(20, 16, 1, 2, 32, "gelu", 0.0, 0.0, max_position_embeddings=32)
    config.to_json_file(str(tmp_path / "config.json"))
    flags |= dict(train_file=path, dev_file=path, bert_config_file=str(tmp_path / "config.json"))
    with pytest.raises(ValueError, match=message):
        trained(files, tmp_path, "pairs", text_column="text", train_batch_size=batch, **flags)


def test_several_devices_compare_fewer_texts(ranked):
    """Oracle: worked by hand; a negative is a candidate of its own."""
    task, dropout = make_task(ranked), BertConfig(10, 16, 1, 2, 32)
    texts = np.array([[0, 2, 4], [1, 3, 5]])
    triples, pairs = (SimpleNamespace(targets={"texts": x}) for x in (texts, texts[:, :2]))
    assert task.check_steps(pairs, 16, 1, dropout) is None
    assert "with those of 1 of 2 examples" in task.check_steps(triples, 2, 2, dropout)
    with pytest.raises(ValueError, match="--train_batch_size=2 leaves one .* use at least 4"):
        task.check_steps(pairs, 2, 2, dropout)


@pytest.mark.slow
def test_cosines_learn_the_numbers_of_a_table(similar, capsys):
    """Oracles: the labels; NumPy with the vectors of `load_embedder`; `predict`."""
    head = Run(similar.output_dir).head
    assert head == Head(EMBEDDING, mean=1.0, deviation=8.0, pooling="max", normalize=True)
    assert results(similar)["eval_spearman"] > 0.8
    rows = predictions(similar)[:8]
    encode = load_embedder(similar.output_dir).encode
    vectors = [encode([x[name] for x in rows]) for name in ("text_a", "text_b")]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-5)
    expected = 1 + 8 * np.sum(vectors[0] * vectors[1], axis=-1)
    np.testing.assert_allclose([float(x["prediction"]) for x in rows], expected, atol=1e-3)
    capsys.readouterr()
    texts = tuple(f"{x['text_a']} ||| {x['text_b']}" for x in rows)
    predict.run(predict.Options(checkpoint=similar.output_dir, texts=texts))
    found = [float(line.split("\t")[0]) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_other_formats_have_the_vectors_of_the_run(similar, tmp_path, capsys):
    """Oracles: the vectors of `load_embedder`; the length of the run."""
    texts = ["a good b", "bad", "c " * 40]
    expected = load_embedder(similar.output_dir)(texts)
    folder = str(tmp_path / "folder")
    options = dict(from_=similar.output_dir, output_dir=folder, to="huggingface")
    convert_checkpoint.run(convert_checkpoint.Options(**options))
    next_step = f"Next: in Python, sentence_transformers.SentenceTransformer({folder!r})"
    assert capsys.readouterr().out.splitlines()[-1] == next_step
    converted = load_embedder(folder)
    np.testing.assert_allclose(converted(texts), expected, atol=1e-5)
    assert converted.preprocessor.seq_length == 24
    flags = {x: getattr(similar, x) for x in ("task", "label_type", "text_b_column", "train_file")}
    student = dict(recipe="layers", teacher=similar.output_dir, output_dir=f"{tmp_path}/student")
    other_task = {"task": "mrpc", "label_type": "class", "text_b_column": None}
    for changes in {}, {"label_type": "class"}, other_task:
        with pytest.raises(ValueError, match="computes vectors: compress needs another head"):
            compress.run(compress.Options(**flags | student | changes))


def test_texts_find_the_ones_that_belong_to_them(ranked):
    """Oracle: NumPy with the vectors of `load_embedder`; "a b" has two right texts."""
    assert Run(ranked.output_dir).head == Head(EMBEDDING)
    rows = predictions(ranked)
    encode = load_embedder(ranked.output_dir, normalize=True).encode
    queries, positives = (encode([x[n] for x in rows]) for n in ("text_a", "text_b"))
    cosines = queries @ positives.T
    cosines[[0, -1], -1] = cosines[[0, -1], 0] = cosines[0, [0, -1]].max()
    own = np.diag(cosines)
    ranks = 1 + np.sum(cosines > own[:, None], axis=1)
    np.testing.assert_array_equal([int(x["rank"]) for x in rows], ranks)
    np.testing.assert_allclose([float(x["cosine"]) for x in rows], own, atol=1e-4)
    # The query that occurs twice counts once.
    ranks, found = ranks[:-1], results(ranked)
    assert found["eval_recall@1"] == pytest.approx(np.mean(ranks == 1))
    assert 0.5 < found["eval_recall@1"] < 1
    assert found["eval_mrr@10"] == pytest.approx(np.mean(np.where(ranks <= 10, 1 / ranks, 0)))


def test_extracted_vectors_are_those_of_each_text_alone(ranked, tmp_path):
    """Oracle: `load_embedder`, of a run with a column of second texts, which a table may lack."""
    flags = dict(checkpoint=ranked.output_dir, layers="-1", pooling="mean", max_seq_length=24)
    flags |= dict(output_file=f"{tmp_path}/a.npz", overwrite=True)
    for header, rows in (["anchor"], [("a b",)]), (["anchor", "positive"], [("a b", "c d")]):
        path = table(tmp_path, "a.csv", header, rows)
        extract_features.run(extract_features.Options(**flags, input_file=path))
        (vector,) = np.load(f"{tmp_path}/a.npz")["values"][:, 0]
        expected = load_embedder(ranked.output_dir).encode(["a b"])[0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_an_evaluation_reads_each_text_once(read, write):
    """Oracle: the texts by hand, in the order of their columns, without wrong ones."""
    path = write("a.csv", "text,b,c\na,d,w\nb,a,w\na,c,d\n")
    flags = dict(text_b_column="b", negative_column="c", label_type="pairs")
    task, splits = read(None, ["dev"], dev_file=path, **flags)
    features = task.featurize(splits["dev"], TOKENIZER, 16)
    inputs = task.inputs(features)
    np.testing.assert_array_equal(features.targets["texts"], [[0, 2, 4], [1, 0, 4], [0, 3, 2]])
    assert features.notes == ("2 distinct first and 3 distinct second texts",)
    rows = [features.ids[0, 0], features.ids[1, 0], features.ids[0, 1], features.ids[2, 1]]
    assert inputs.ids.to_list() == [[row.numpy().tolist()] for row in rows]


def test_pairs_that_teach_nothing(read, write):
    """Oracle: by hand; an empty cell and null are no wrong text, for any row."""
    flags = dict(text_column="a", text_b_column="b", negative_column="c", label_type="pairs")
    rows = [("a", "b", "c"), ("b", "d", None), ("d", "a", None), ("w", "w", "w")]

    def featurized(rows):
        rows = [json.dumps(dict(zip("abc", row, strict=True))) for row in rows]
        task, splits = read(None, ["dev"], dev_file=write("a.jsonl", "\n".join(rows)), **flags)
        return task, task.featurize(splits["dev"], TOKENIZER, 16)

    for empty in (None, " "):
        task, features = featurized([(a, b, c or empty) for a, b, c in rows])
        texts = features.targets["texts"].tolist()
        assert texts[1:] == [[1, 2, -1], [2, 0, -1], [3, 3, 3]] and len(task.inputs(features)) == 4
        same = ("1 with the same text twice", "1 with the right text as the wrong one")
        assert features.notes[2:] == same
    for row, shared, message in (
        (("b", "", "c"), "", "line 1 lacks a text of the pair: remove it"),
        (("b", "b", "c"), "", "all 2 pairs hold the same text twice: there is nothing to learn"),
        (("b", "c", "c"), "", "all 2 pairs hold the right text as the wrong one: there is nothing"),
        (("b", "c", "d"), "b", "all 2 pairs hold the same first text: there is nothing"),
        (("c", "b", "d"), "b", "all 2 pairs hold the same second text: there is nothing"),
    ):
        with pytest.raises(ValueError, match=message):
            featurized([tuple(x and x + "a" * (x != shared) for x in row), row])


def test_flags_replace_the_settings_of_a_model(ranked):
    """Oracle: the flag, also if the model was trained with another value."""
    options = dataclasses.replace(ranked, pooling="max", normalize=None)
    head = Head(EMBEDDING, pooling="cls", normalize=True)
    assert make_task(options, head).head == dataclasses.replace(head, pooling="max")


def test_a_text_is_its_own_partner_under_another_dropout_mask(files, sentences, tmp_path):
    """Oracle: SimCSE: without a second column, training makes different texts less similar."""
    path = table(tmp_path, "texts.csv", ["text"], [(text,) for text, _ in sentences(64, seed=0)])
    flags = dict(dev_file=path, train_file=path, num_train_epochs=2.0)
    options = trained(files, tmp_path, "pairs", **flags)
    folder, config = tmp_path / "init", BertConfig.from_json_file(options.bert_config_file)
    init = save_run(folder, BertEncoder(config), load_vocab(options.vocab_file))
    changes = dict(init_checkpoint=init, do_train=False, output_dir=f"{tmp_path}/before")
    before, after = run(dataclasses.replace(options, **changes)), results(options)
    assert after["eval_loss"] < before["eval_loss"]
    assert Run(options.output_dir).flags["pooling"] == "mean"


@pytest.mark.slow
def test_a_folder_of_sentence_transformers_trains_as_it_is(similar, sentences, tmp_path):
    """Oracles: its files; `load_embedder`; the values of the dense layer change and are kept."""
    folder, rng = str(tmp_path / "folder"), np.random.default_rng(0)
    flags = dict(from_=similar.output_dir, output_dir=folder, to="huggingface")
    convert_checkpoint.run(convert_checkpoint.Options(**flags))
    width = Run(similar.output_dir).config.hidden_size
    dense = {HEAD_KERNEL: rng.normal(size=(width, 5)), HEAD_BIAS: rng.normal(size=5)}
    dense = {name: x.astype(np.float32) for name, x in dense.items()}
    head = Head(EMBEDDING, pooling="cls", outputs=5, activation="tanh")
    tensors = {name: Tensor(x.shape, functools.partial(np.copy, x)) for name, x in dense.items()}
    settings = EmbeddingSettings(head, 11, dense=tensors)
    write_settings(settings, width, folder)
    changes = dict(init_checkpoint=folder, max_seq_length=None, pooling=None, normalize=None)
    changes |= dict(bert_config_file=None, vocab_file=None, num_train_epochs=1.0)
    options = dataclasses.replace(similar, **changes, output_dir=f"{tmp_path}/eval", do_train=False)
    run(options)
    encode = load_embedder(folder, normalize=True).encode
    rows = predictions(options)
    first, second = (encode([x[name] for x in rows]) for name in ("text_a", "text_b"))
    expected = 1 + 8 * np.sum(first * second, axis=-1)
    np.testing.assert_allclose([float(x["prediction"]) for x in rows], expected, atol=1e-3)
    options = dataclasses.replace(options, do_train=True, output_dir=f"{tmp_path}/trained")
    run(options)
    found = Run(options.output_dir)
    assert found.head == dataclasses.replace(head, mean=1.0, deviation=8.0)
    assert found.flags["max_seq_length"] == 11
    kernel = load_embedder(options.output_dir).embedder.head.dense_kernel.numpy()
    difference = np.abs(kernel - dense[HEAD_KERNEL]).max()
    assert 0 < difference < 0.5
    texts = [f"{rows[0]['text_a']} ||| {rows[0]['text_b']}"]
    predict.run(predict.Options(checkpoint=options.output_dir, texts=tuple(texts)))


@pytest.mark.parametrize(
    ("numbers", "limits"),
    [([0, 1, 1], (0, 1)), ([-0.5, 0.25, 0.5], (0, 1)), ([2, 5, 1], (1, 5)), ([0, 3], (0, 3))],
)
def test_range_of_numbers(read, write, numbers, limits):
    """Oracles: by hand, where cosines stay as they are; the scale of STS-B."""
    path = write("a.csv", "text,b,label\n" + "".join(f"a,b,{x}\n" for x in numbers))
    task, splits = read(train_file=path, dev_file=path, label_type="similarity", text_b_column="b")
    assert (task.head.mean, task.head.mean + task.head.deviation) == limits
    assert splits["dev"].targets["values"].tolist() == numbers
    flags = dict(task="stsb", label_type="similarity", pooling="cls", output_dir="x", do_eval=True)
    head = make_task(FineTuningOptions(**flags)).head
    assert head == Head(EMBEDDING, mean=0.0, deviation=5.0, pooling="cls")
    head = dataclasses.replace(head, outputs=8, activation="tanh")
    assert make_task(FineTuningOptions(**flags), head).head == head


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"label_type": "similarity"}, "--label_type=similarity needs --text_b_column"),
        ({"label_type": "pairs", "negative_column": "c"}, "has no effect without --text_b_column"),
        ({"temperature": 0.1}, "--temperature has no effect without --label_type=pairs"),
        ({"label_type": "pairs", "label_column": "label"}, "treats every row as a right pair: om"),
        ({"label_type": "pairs", "text_b_column": "text"}, "'text' is both --text_column and --t"),
        (
            {"label_type": "pairs", "freeze_encoder": True},
            "--freeze_encoder does not suit --label_type=pairs",
        ),
        ({"pooling": "cls"}, "--pooling has no effect without --label_type=similarity or --lab"),
    ],
)
def test_flags_that_do_not_go_together(read, write, flags, message):
    """Oracle: the message names the flag."""
    path = write("a.csv", "text,label\na,1\nb,2\n")
    with pytest.raises(ValueError, match=message):
        read(train_file=path, dev_file=path, **flags)
