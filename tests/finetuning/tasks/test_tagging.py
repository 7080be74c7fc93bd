"""Tagging: every word is learned and predicted once, from its first token."""

import itertools
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from seqeval.metrics.sequence_labeling import get_entities
from support import calls_of, tuning_options, without_tracing

import bert_tf
from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.predictions import draw_confusion
from bert_tf.finetuning.registry import make_task, task_of_run
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tasks import tagging
from bert_tf.finetuning.tasks.tagging import TaggingTask
from bert_tf.models import lstms
from bert_tf.models.task_model import BertTaskModel
from bert_tf.plots import confusion
from bert_tf.runs.run import Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import latest_checkpoint, saved_tensors
from bert_tf.weights.checkpoint import load_weights
from export import classifier
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

LABELS = ("O", "B-X", "I-X")
VOCAB = Vocabulary((*SPECIAL_TOKENS, *"abcdefgh", "##a", "##b"))
TOKENIZER = WordPieceTokenizer(VOCAB)
CLS, SEP, UNK = VOCAB.cls_id, VOCAB.sep_id, VOCAB.unk_id
_FIRST = Sentence(["ab", "\x01", "c"], ["B-X", "I-X", "O"], [1, 2, 3])
_DOCUMENTS = [[_FIRST, Sentence(["dab"], ["B-X"], [5])], [Sentence(["e"], ["B-Y"], [9])]]
TEXT = TaggedText("train.txt", _DOCUMENTS, marks_documents=True)


def _ids(text: str) -> list[int]:
    return [CLS, *(VOCAB.ids[token] for token in text.split()), SEP]


def _task(labels=LABELS, **arguments) -> TaggingTask:
    return TaggingTask(labels=labels, **arguments)


def _outputs(features, tags) -> dict[str, list[np.ndarray]]:
    """Logits that choose `tags` for the words and "I-X" for all other tokens."""
    tags, rows = iter(tags), []
    for predicted in features.predicted.to_list():
        best = [LABELS.index(next(tags)) if is_word else 2 for is_word in predicted]
        rows.append(np.eye(3, dtype=np.float32)[best] * 20)
    return {"logits": rows}


def test_sentences_and_documents_become_windows():
    """Oracle: the tokens, written down; the first one of a word has its tag, [UNK] if it vanishes.

    Windows of 4 tokens over the 7 of the first document begin at 0, 2 and 3. Of two with as much
    context, the first one predicts. A tag that the model does not know has no target.
    """
    alone = _task(document_context=False).featurize(TEXT, TOKENIZER, 8)
    assert alone.ids.to_list() == [_ids("a ##b [UNK] c"), _ids("d ##a ##b"), _ids("e")]
    targets = alone.targets["tags"].to_list()
    assert targets == [[-1, 1, -1, 2, 0, -1], [-1, 1, -1, -1, -1], [-1] * 3]
    context = _task().featurize(TEXT, TOKENIZER, 6)
    windows = ("a ##b [UNK] c", "[UNK] c d ##a", "c d ##a ##b", "e")
    assert context.ids.to_list() == [*map(_ids, windows)]
    targets = context.targets["tags"].to_list()
    assert targets == [[-1, 1, -1, 2, -1, -1], [-1, -1, 0, 1, -1, -1], [-1] * 6, [-1] * 3]
    assert tf.reduce_sum(tf.cast(context.predicted.values, tf.int32)) == len(TEXT.words)


@pytest.mark.parametrize("length", [5, 6, 8, 16])
def test_scores_and_files_do_not_depend_on_windows(length, tmp_path, monkeypatch):
    """Oracle: the scores and lines, worked out: of 3 entities, the first one is found."""
    monkeypatch.setattr(tagging, "draw_confusion", draw_confusion)
    titles = calls_of(monkeypatch, confusion.style, "finish_axes")
    features = _task().featurize(TEXT, TOKENIZER, length)
    outputs = _outputs(features, ["B-X", "I-X", "O", "O", "I-X"])
    scores = _task().score(outputs, features)
    expected = {"loss": 20 / 4, "accuracy": 3 / 5, "invalid_tags": 1}
    expected |= {"precision": 1 / 2, "recall": 1 / 3, "f1": 2 / 5, "f1_X": 1 / 2, "f1_Y": 0}
    assert scores == pytest.approx(expected, abs=1e-5)
    assert {*_task().metrics} == {*scores} - {"f1_Y", "invalid_tags"}
    with pytest.raises(ValueError, match="accuracy, loss, f1_X; similar names are f1_X"):
        _task().with_metric("f1_x")
    assert _task().with_metric("f1_X").check_metric(features) is None
    names = _task().write_predictions(str(tmp_path), "dev", outputs, features)
    assert names == ["predictions_dev.tsv", "predictions_dev.conll", "confusion_dev.png"]
    # B-Y is not one of the task's tags.
    assert titles[0].args[1] == "4 words"
    Run(str(tmp_path)).write_head(Head("tagger", (*LABELS, "B-Y")))
    drawn = bert_tf.TrainedRun(str(tmp_path), {}).plot("confusion")
    assert drawn.axes[0].get_title("left") == "5 words"
    # Of three logits, one is 20 and two are 0, so the probability rounds to 1.
    assert (tmp_path / "predictions_dev.tsv").read_text() == (
        "sentence\tword\ttag\tprediction\tprobability\n"
        "0\tab\tB-X\tB-X\t1\n0\t\x01\tI-X\tI-X\t1\n0\tc\tO\tO\t1\n"
        "1\tdab\tB-X\tO\t1\n2\te\tB-Y\tI-X\t1\n"
    )
    assert (tmp_path / "predictions_dev.conll").read_text() == (
        "-DOCSTART- O O\n\nab B-X B-X\n\x01 I-X I-X\nc O O\n\ndab B-X O\n\n"
        "-DOCSTART- O O\n\ne B-Y I-X\n\n"
    )


def test_probabilities_of_text_without_tags(tmp_path):
    """Oracle: softmax by hand: 2 of 2 + 1 + 1, and 8 of 8 + 1 + 1. No picture without tags."""
    text = TaggedText("t", [[Sentence(["a"], [], [1])], [Sentence(["b"], [], [3])]])
    features = _task().featurize(text, TOKENIZER, 8)
    logits = np.log([[[1.0, 1, 1], [1, 2, 1], [1, 1, 1]], [[1, 1, 1], [8, 1, 1], [1, 1, 1]]])
    names = _task().write_predictions(str(tmp_path), "test", {"logits": [*logits]}, features)
    assert names == ["predictions_test.tsv", "predictions_test.conll"]
    assert (tmp_path / names[0]).read_text() == (
        "sentence\tword\tprediction\tprobability\n0\ta\tB-X\t0.5\n1\tb\tO\t0.8\n"
    )


def test_one_tag_for_all_words_is_reported():
    """Oracle: five words."""
    features = _task().featurize(TEXT, TOKENIZER, 8)
    message = _task().problem(_outputs(features, ["O"] * 5), features)
    assert message.startswith('the model predicts "O" for all 5 words')
    assert _task().problem(_outputs(features, ["O"] * 4 + ["B-X"]), features) is None
    right = TaggedText("x", [[Sentence(["a", "b"], ["O", "O"], [1, 2])]])
    features = _task().featurize(right, TOKENIZER, 8)
    assert _task().problem(_outputs(features, ["O", "O"]), features) is None


def test_other_tags_are_measured_by_accuracy():
    """Oracle: 2 of 3 words; F1 of 4/5 and 0."""
    text = TaggedText("t", [[Sentence(["a", "b", "c"], ["DET", "NOUN", "DET"], [1, 2, 3])]])
    task = _task(("DET", "NOUN"))
    features = task.featurize(text, TOKENIZER, 8)
    scores = task.score({"logits": [np.array([[9.0, 0]] * 5)]}, features)
    assert task.metric == "accuracy" and set(task.metrics) == set(scores)
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["f1/DET"] == pytest.approx(4 / 5) and scores["macro_f1"] == pytest.approx(2 / 5)


def _evaluated(task: TaggingTask, model: BertTaskModel, words: list[list[str]]) -> np.ndarray:
    """Returns the probabilities of the tags of all words, as an evaluation computes them."""
    sentences = [Sentence(row, ["O"] * len(row), range(20)) for row in words]
    features = task.featurize(TaggedText("t", [[s] for s in sentences]), TOKENIZER, 8)
    (batch,) = eval_batches(features, len(features))
    in_order = np.argsort(batch["example_index"])
    rows = zip(model(batch).numpy()[in_order], features.ids, strict=True)
    logits = np.concatenate([row[: len(ids)] for row, ids in rows])
    return tf.nn.softmax(logits[features.predicted.values.numpy()]).numpy()


def test_known_words_are_tagged_as_in_evaluation():
    """Oracle: the evaluation of these words, which are not those of raw text."""
    keras.utils.set_random_seed(1)
    config = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=8, initializer_range=1.0)
    model, task = BertTaskModel(config, 3, "tagger"), _task()
    words = [["a.b", "c d", "\x01", "h", "dab", "é"], ["-", "ab", "g-h-e", "e", "f", "..."]]
    expected = _evaluated(task, model, words)
    served = task.serving(model, TOKENIZER, 8).serve_words(tf.constant(words))
    tags = [[LABELS[row.argmax()].encode() for row in rows] for rows in np.split(expected, 2)]
    assert served["tag"].numpy().tolist() == tags and len({*sum(tags, [])}) > 1
    found = served["probability"].numpy().ravel()
    np.testing.assert_allclose(found, expected.max(axis=1), 1e-4)
    texts = [" ".join(row).encode() for row in words]
    spans = zip(texts, served["start"].numpy(), served["end"].numpy(), strict=True)
    parts = [[text[a:b].decode() for a, b in zip(*x, strict=True)] for text, *x in spans]
    assert parts == words


@pytest.mark.parametrize("labels", [LABELS, ("S-X", "B-X", "E-X")])
def test_served_tags_are_those_of_evaluation(labels):
    """Oracle: the evaluation of these words; seqeval's entities, cut from the text; IOBES, too."""
    keras.utils.set_random_seed(1)
    config = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=8, initializer_range=1.0)
    model, task = BertTaskModel(config, 3, "tagger"), _task(labels)
    texts = ["ab c dab e f g h a b h g f e c", "", "h"]
    expected = _evaluated(task, model, [text.split() for text in texts if text])

    # Eagerly, which saves seconds; other tests call exported graphs.
    served = task.serving(model, TOKENIZER, 8).serving.python_function(tf.constant(texts))
    served = {name: values.numpy() for name, values in served.items()}
    words = served["end"] > 0
    assert words.sum(axis=1).tolist() == [14, 0, 1]
    tags = [tag.decode() for tag in served["tag"][words]]
    assert tags == [labels[i] for i in expected.argmax(axis=1)] and len(set(tags)) == 3
    np.testing.assert_allclose(served["probability"][words], expected.max(axis=1), 1e-4)
    probabilities = expected.max(axis=1)
    for row, begin, end in ((0, 0, 14), (1, 14, 14), (2, 14, 15)):
        spans = [(kind, a, b + 1) for kind, a, b in get_entities(tags[begin:end])]
        parts = [" ".join(texts[row].split()[a:b]) for _, a, b in spans]
        products = [np.prod(probabilities[begin:end][a:b]) for _, a, b in spans]
        columns = ("entity_type", "entity", "entity_probability", "entity_start", "entity_end")
        rows = [x for x in zip(*(served[name][row] for name in columns), strict=True) if x[-1]]
        assert [x[0].decode() for x in rows] == [kind for kind, *_ in spans]
        assert [x[1].decode() for x in rows] == parts
        assert [x[2] for x in rows] == pytest.approx(products, rel=1e-4)
        assert [texts[row][a:b] for *_, a, b in rows] == parts


def _conll(sentences, path: pathlib.Path, count: int, seed: int) -> None:
    """Writes sentences in which "good" and "bad" are entities."""
    tags = {"good": "B-POS", "bad": "B-NEG"}
    lines = []
    for number, (text, _) in enumerate(sentences(count, seed)):
        lines += ["-DOCSTART- O", ""] * (number % 5 == 0)
        lines += [*(f"{word} {tags.get(word, 'O')}" for word in text.split()), ""]
    path.write_text("\n".join(lines))


def _options(files: pathlib.Path, folder: pathlib.Path, **flags) -> FineTuningOptions:
    flags = {"num_train_epochs": 2, "train_batch_size": 8, "learning_rate": 3e-2} | flags
    flags |= {"task": "ner", "data_dir": str(folder), "max_seq_length": 32}
    return tuning_options(files, folder / "run", **flags)


def test_conll_end_to_end(sentences, files, tmp_path):
    """Oracle: the tag of a word is a function of the word, and conlleval's input says as much."""
    for seed, (name, count) in enumerate({"train": 160, "valid": 20, "test": 10}.items()):
        _conll(sentences, tmp_path / f"{name}.txt", count, seed)
    options = _options(files, tmp_path)
    results = fine_tune(options)
    assert results["eval_f1"] > 0.95 and results["test_f1"] > 0.95
    head = json.loads((tmp_path / "run/head.json").read_text())
    assert head == {"kind": "tagger", "labels": ["O", "B-NEG", "B-POS"]}
    lines = (tmp_path / "run/predictions_test.conll").read_text().split("\n")
    triples = [line.split() for line in lines if line and not line.startswith("-DOCSTART-")]
    right = np.mean([gold == predicted for _, gold, predicted in triples])
    assert right == pytest.approx(results["test_accuracy"])
    (tmp_path / "train.txt").unlink()
    assert task_of_run(Run(options.output_dir)).labels == ("O", "B-NEG", "B-POS")


@pytest.mark.slow
def test_feature_based_end_to_end(sentences, files, tmp_path, monkeypatch):
    """Oracles: the encoder's weights before; the best weights fit; the exported module answers."""
    monkeypatch.setattr(lstms, "_UNITS", 8)
    for seed, name in enumerate(("train", "valid")):
        _conll(sentences, tmp_path / f"{name}.txt", 16, seed)
    options = _options(files, tmp_path, feature_based="last", num_train_epochs=1)
    with without_tracing():  # of the gradients of the BiLSTM
        fine_tune(options)
    shutil.copytree(f"{options.output_dir}/best", alone := f"{tmp_path}/alone")
    with pytest.raises(ValueError, match="alone lacks the flags.json of its run: give the whole"):
        open_fine_tuned(alone, None, None, pairs=False)
    tensors = saved_tensors(best := latest_checkpoint(f"{options.output_dir}/best"))
    keras.utils.set_random_seed(options.random_seed)
    task = task_of_run(Run(options.output_dir))
    model = task.build_model(BertConfig.from_json_file(options.bert_config_file))
    for weight in model.encoder.weights:
        np.testing.assert_array_equal(tensors[weight.path].read(), weight.numpy())
    kernel = model.head.dense_kernel.numpy()
    load_weights(best, tensors, model.weights)
    assert (model.head.dense_kernel.numpy() != kernel).all()

    classifier.export_classifier(options.output_dir, exported := str(tmp_path / "exported"))
    lines = (tmp_path / "run/predictions_dev.tsv").read_text().splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    sentences = itertools.groupby(rows, key=lambda row: row[0])
    texts = [" ".join(row[1] for row in sentence) for _, sentence in sentences]
    served = tf.saved_model.load(exported)(texts)
    found = [tag.decode() for tag in served["tag"].numpy()[served["end"] > 0]]
    assert found == [row[3] for row in rows]


@pytest.mark.parametrize("document_context", [True, False])
def test_data_without_documents_is_said(document_context, tmp_path):
    """Oracle: by hand; nothing is lost in a file with documents, or if context is not asked for."""
    (tmp_path / "train.txt").write_text("a B-X\n\nb O\n")
    (tmp_path / "valid.txt").write_text("-DOCSTART- O\n\nc B-X\n\nd O\n")
    files = DataFiles(str(tmp_path))
    flags = dict(task="ner", output_dir="x", do_train=True, data_dir=files.data_dir)
    task = make_task(FineTuningOptions(**flags, document_context=document_context))
    splits = task.read_splits(["train", "dev"], files)
    found = {name: task.featurize(text, TOKENIZER, 8).describe() for name, text in splits.items()}
    note = ", each sentence read alone (-DOCSTART- lines are missing)" * document_context
    covered = "1.0 tokens per word, 0.0% [UNK]"
    assert found["train"] == f"2 words in 2 sentences, in 2 windows, {covered}{note}"
    assert found["dev"].startswith("2 words in 2 sentences and 1 document, in ")
    assert found["dev"].endswith(f", {covered}")
