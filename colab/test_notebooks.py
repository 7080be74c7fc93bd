"""Executes every notebook at a small size; run by `make test-notebooks` in a fresh environment."""

import importlib
import json
import pathlib
import re
import time

import nbformat
import pytest
from execute import FOLDER, execute


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> pathlib.Path:
    """Random encoders, one with all heads and one for KerasHub; data in the official layouts."""
    folder = tmp_path_factory.mktemp("data")
    _write_encoder(folder / "encoder", "huggingface", "BertPretrainer")
    _write_encoder(folder / "preset", "kerashub", "BertEncoder")
    _write_reviews(folder / "aclImdb")
    _write_pairs(folder / "MRPC")
    _write_questions(folder / "SQuAD")
    _write_tags(folder / "conll")
    _write_chinese(folder / "chinese")
    return folder


def _write_encoder(folder: pathlib.Path, format_: str, model: str) -> None:
    """Writes a checkpoint whose vocabulary has the words of the notebooks."""
    import tensorflow as tf

    import bert_tf
    from bert_tf.config import ModelSpec
    from bert_tf.runs.run import Run
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.weights.opening import open_checkpoint

    words = set()
    for path in FOLDER.glob("*.py"):
        words.update(re.findall(r"[a-z]+", path.read_text().lower()))
    letters = sorted({character for word in words for character in word} | set(".,'-!?;:"))
    pieces = [*letters, *(f"##{letter}" for letter in letters if letter.isalpha())]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = bert_tf.Vocabulary((*special, *dict.fromkeys([*pieces, *sorted(words)])))
    config = bert_tf.BertConfig(len(vocab), 32, 2, 2, 64, "gelu_new", max_position_embeddings=512)
    run = Run(str(folder.with_name(f"{folder.name}-run")))
    run.write(ModelSpec(config, vocab, lower_case=True))
    step = tf.Variable(0, dtype=tf.int64)
    Checkpointer(run.path, getattr(bert_tf, model)(config), {"step": step}).save()
    folder.mkdir()
    module = importlib.import_module(f"bert_tf.weights.formats.{format_}")
    module.write(open_checkpoint(run.path), str(folder))


def _write_reviews(folder: pathlib.Path) -> None:
    for split in "train", "test":
        for label, text in {"neg": "a waste of time", "pos": "a wonderful film"}.items():
            (folder / split / label).mkdir(parents=True)
            for number in range(32):
                (folder / split / label / f"{number}_1.txt").write_text(f"{text} {number}")


def _write_pairs(folder: pathlib.Path) -> None:
    folder.mkdir()
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    rows = [f"{i % 2}\t{i}\t{i}\tthe cat sat {i}\tthe cat {'sat' * (i % 2)}" for i in range(64)]
    for split in "train", "dev":
        (folder / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    test = [f"{i}\t{i}\t{i}\tthe cat sat\tthe cat slept" for i in range(1725)]
    header = header.replace("Quality", "index")
    (folder / "test.tsv").write_text("\n".join([header, *test]) + "\n")


def _write_questions(folder: pathlib.Path) -> None:
    folder.mkdir()
    context = "Jane Austen wrote Emma in Chawton."
    answers = {"Who wrote Emma?": "Jane Austen", "Where did she write it?": "Chawton"}
    questions = [
        {
            "id": f"{number}, {question}",
            "question": question,
            "answers": [{"text": answer, "answer_start": context.index(answer)}],
        }
        for number in range(16)
        for question, answer in answers.items()
    ]
    article = {"title": "Emma", "paragraphs": [{"context": context, "qas": questions}]}
    for split in "train", "dev":
        text = json.dumps({"version": "1.1", "data": [article]})
        (folder / f"{split}-v1.1.json").write_text(text)


def _write_tags(folder: pathlib.Path) -> None:
    folder.mkdir()
    sentence = "Angela B-PER\nMerkel I-PER\nflew O\nto O\nJapan B-LOC\n. O\n\n"
    for split in "train", "valid", "test":
        (folder / f"{split}.txt").write_text(sentence * 32)


def _write_chinese(folder: pathlib.Path) -> None:
    folder.mkdir()
    for name, text in {"neg": "这本书不好看", "pos": "这本书很好看"}.items():
        lines = [f"{text}{number}\n" for number in range(32)]
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")


_SETTINGS = {
    "movie_reviews": {
        "DATA_DIR": "aclImdb",
        "TRAIN_REVIEWS": 32,
        "TEST_REVIEWS": 16,
        "SEQ_LENGTH": 16,
        "EPOCHS": 1,
    },
    "glue": {"TASK": "mrpc", "DATA_DIR": "MRPC", "SEQ_LENGTH": 16, "EPOCHS": 1, "SEEDS": 2},
    "squad": {"DATA_DIR": "SQuAD", "EPOCHS": 1, "SEQ_LENGTH": 64},
    "ner": {"DATA_DIR": "conll", "EPOCHS": 1, "FEATURES": "last"},
    "pretrain_your_own": {"TEXT": "text.txt", "VOCAB_SIZE": 300, "STEPS": 3, "STRATEGY": "cpu"},
    "look_inside": {"TAGGED": "conll/train.txt", "SENTENCES": 32},
    "kerashub": {"MODEL": "preset", "EPOCHS": 1},
    "search": {"TEXTS": "texts.txt"},
    "first_classifier": {"DATA": "messages.tsv"},
    "python_tour": {"STEPS": 3},
    "languages": {"ENGLISH": "encoder", "DATA_DIR": "chinese", "REVIEWS": 64, "EPOCHS": 1},
}
_PATHS = ("MODEL", "ENGLISH", "DATA_DIR", "TAGGED")


def test_every_notebook_is_executed():
    """Oracle: the files in the folder."""
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(_SETTINGS)


@pytest.mark.parametrize("name", _SETTINGS)
def test_runs(name, data, tmp_path):
    """Oracle: the notebook, whose every cell must run, and the time that a reader is promised."""
    settings = ({} if name == "pretrain_your_own" else {"MODEL": "encoder"}) | _SETTINGS[name]
    for path in settings.keys() & set(_PATHS):
        settings[path] = str(data / settings[path])
    document = "the file does not exist.\nthe default is none.\nit returns a new tensor.\n\n"
    (tmp_path / "text.txt").write_text(document * 100)
    (tmp_path / "texts.txt").write_text("".join(f"the file has {n} lines.\n" for n in range(99)))
    messages = "ham\tsee you at noon\nspam\tyou won a prize\n" * 40
    (tmp_path / "messages.tsv").write_text(messages)
    started = time.monotonic()
    notebook = execute(name, {key: repr(value) for key, value in settings.items()}, str(tmp_path))
    print(f"{name}: {time.monotonic() - started:.0f} s")
    nbformat.validate(notebook)
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert any(output.output_type in ("stream", "display_data") for output in outputs)
    assert not list(tmp_path.glob("**/*.tmp"))
    shown = "".join(o.text for o in outputs if o.output_type == "stream")
    assert ": error: " not in shown, shown
