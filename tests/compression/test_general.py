"""Students of a pre-trained model, on pre-training records."""

import dataclasses
import sys

import numpy as np
import pytest
import tensorflow as tf
from support import SESSION, save_run

from bert_tf import compress
from bert_tf.compression.compressing import GeneralStudent, distill
from bert_tf.compression.compression_options import CompressionOptions, GeneralOptions
from bert_tf.compression.recipes import GENERAL_RECIPES
from bert_tf.compression.student import initial_student
from bert_tf.config import ModelSpec
from bert_tf.finetuning.registry import TASKS
from bert_tf.inference.loading import load
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.run_pretraining import Options as PretrainingOptions
from bert_tf.run_pretraining import run as run_pretraining
from bert_tf.runs.run import Run
from bert_tf.weights.checkpoint import OPTIONAL, load_weights
from bert_tf.weights.names import training_flops
from bert_tf.weights.opening import open_checkpoint
from tfrecords.features import ORIGINAL_NAMES, serialize_examples, write_records
from tfrecords.vocabulary import Vocabulary, write_vocab

LENGTH, PREDICTIONS = 8, 3


def examples(rows: int) -> dict[str, np.ndarray]:
    """Rows of various lengths, some of which have fewer masked tokens than others."""
    generator = np.random.default_rng(rows)
    lengths = generator.integers(5, LENGTH + 1, (rows, 1))
    mask, real = np.arange(LENGTH) < lengths, np.arange(PREDICTIONS) <= np.arange(rows)[:, None]
    ids = generator.integers(5, 13, (rows, LENGTH)) * mask
    ids[:, 0], ids[np.arange(LENGTH) == lengths - 1] = 2, 3
    return {
        "input_word_ids": ids,
        "input_mask": mask.astype(np.int64),
        "input_type_ids": np.zeros((rows, LENGTH), np.int64),
        "masked_lm_positions": real * np.arange(1, PREDICTIONS + 1),
        "masked_lm_ids": real * generator.integers(5, 13, (rows, PREDICTIONS)),
        "masked_lm_weights": real.astype("f"),
        "next_sentence_labels": np.zeros((rows, 1), np.int64),
    }


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, teacher, config) -> str:
    vocab = Run(teacher).spec.vocab
    return save_run(tmp_path_factory.mktemp("pretrained"), BertPretrainer(config), vocab)


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("records") / "train.tfrecord")
    arrays = {ORIGINAL_NAMES.get(name, name): values for name, values in examples(12).items()}
    write_records(path, serialize_examples(arrays))
    return path


@pytest.fixture
def masked() -> dict[str, tf.Tensor]:
    """A batch of three examples, the last of which only fills it."""
    batch = {name: np.append(x, np.zeros_like(x[:1]), 0) for name, x in examples(2).items()}
    batch["example_weights"] = np.array([1, 1, 0], np.float32)
    return {name: tf.constant(values) for name, values in batch.items()}


@pytest.fixture
def make_options(general_options, pretrained, records, tmp_path):
    def make(recipe: str = "distilbert", **changes) -> GeneralOptions:
        sizes = dict(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS)
        return general_options(recipe, pretrained, records, tmp_path / "student", **sizes | changes)

    return make


@pytest.fixture
def make_student(pretrained, make_options):
    def make(recipe: str, **changes):
        options = make_options(recipe, **changes)
        source, recipe = open_checkpoint(pretrained), GENERAL_RECIPES[recipe]
        task = GeneralStudent(recipe.loss, source)
        init = initial_student(options, source)
        model = task.build_model(SESSION, init.spec)
        load_weights("", init.tensors, task.initial_weights(model), optional_parts=OPTIONAL)
        return model, task.objective(init.spec, 4)

    return make


def test_the_loss_is_distilberts(make_student, masked):
    """Oracle: 5 : 2 : 1 of soft targets at temperature 2, masked LM and cosine, in NumPy."""
    model, objective = make_student("distilbert")
    sums = {name: float(x) for name, x in objective.sums(model, masked, False).items()}
    counts = {name: float(x) for name, x in objective.counts(masked).items()}
    assert objective.losses == ("labels", "soft_labels", "cosine")
    student, teacher = (m(masked) for m in (model.student, model.teacher))
    p, q = (tf.nn.softmax(m["mlm_logits"] / 2).numpy() for m in (teacher, student))
    weights, ids = masked["masked_lm_weights"].numpy(), masked["masked_lm_ids"].numpy()
    divergences = 4 * np.sum(p * np.log(p / q), -1)
    assert sums["soft_labels"] == pytest.approx(0.625 * np.sum(divergences * weights), rel=1e-4)
    log_q = tf.nn.log_softmax(student["mlm_logits"]).numpy()
    masked_lm = -np.sum(np.take_along_axis(log_q, ids[..., None], -1)[..., 0] * weights)
    assert sums["masked_lm_loss"] == pytest.approx(masked_lm, rel=1e-5)
    assert sums["labels"] == pytest.approx(0.25 * masked_lm, rel=1e-5)
    a, b = (m["sequence_output"].numpy() for m in (teacher, student))
    cosines = np.sum(a * b, -1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    lengths = masked["input_mask"].numpy().sum(1)
    means = [1 - cosines[row, : lengths[row]].mean() for row in (0, 1)]
    assert sums["cosine"] == pytest.approx(0.125 * np.sum(means), rel=1e-4)
    assert counts["soft_labels"] == counts["labels"] == counts["masked_lm_accuracy"] == 3
    assert counts["cosine"] == 2


def test_flops_are_those_of_both_models(pretrained, config):
    """Oracle: of 6 for a weight, the forward pass of the teacher has 2; no head without terms."""
    source, small = open_checkpoint(pretrained), dataclasses.replace(config, num_hidden_layers=1)
    for recipe, predictions in (("distilbert", 3), ("tinybert", 0)):
        student, teacher = (training_flops(c, LENGTH, predictions) for c in (small, config))
        found = GeneralStudent(GENERAL_RECIPES[recipe].loss, source).training_flops(
            small, LENGTH, 3
        )
        assert found == student + teacher // 3


@pytest.mark.parametrize("recipe", [name for name, x in GENERAL_RECIPES.items() if x.loss.terms])
def test_a_student_that_is_its_teacher_has_no_loss(recipe, make_student, masked):
    """Oracle: 0 for every term, with all layers and the masked-LM head of the teacher."""
    model, objective = make_student(recipe, student_layers="0-2")
    sums = objective.sums(model, masked, False)
    terms = [term.name for term in GENERAL_RECIPES[recipe].loss.terms]
    assert [float(sums[name]) for name in terms] == pytest.approx([0] * len(terms), abs=1e-5)
    if recipe == "tinybert":
        assert objective.measures == objective.losses == ("attention", "hidden", "embeddings")
        # A narrower or random student would have a head that says nothing.
        assert {path.split("/")[0] for path in (w.path for w in model.weights)} == {"encoder"}


@pytest.mark.usefixtures("eagerly")
@pytest.mark.slow
def test_a_narrower_student_resumes_exactly_and_starts_a_task(
    pretrained, records, make_options, config, tmp_path, run_and_resume
):
    """Oracles: the uninterrupted run; the parameters of both models; what reads run folders."""
    narrow = dataclasses.replace(config, num_hidden_layers=1, hidden_size=8)
    narrow.to_json_file(file := str(tmp_path / "narrow.json"))
    options = make_options("tinybert", bert_config_file=file, learning_rate=1e-2)
    results, printed = run_and_resume(distill, options)
    assert f"loss {results['loss']:.4f} at step 2." in printed
    before, after = (load(path).encoder for path in (pretrained, options.output_dir))
    line = f"have {before.count_params():,} and {after.count_params():,} parameters ("
    assert line in printed.splitlines()[-1]

    # The student starts a task, or further pre-training, like any encoder.
    checkpoint = open_checkpoint(options.output_dir)
    assert checkpoint.spec == ModelSpec(narrow, open_checkpoint(pretrained).spec.vocab, True)
    task = TASKS["sst2"].build_model(narrow)
    load_weights("", checkpoint.tensors, task.encoder.weights)
    np.testing.assert_array_equal(
        *(e.embeddings.word_embeddings.numpy() for e in (task.encoder, after))
    )
    again = dict(input_file=records, output_dir=options.output_dir, do_train=True)
    with pytest.raises(ValueError, match="command=compress, not run_pretraining.*: choose"):
        run_pretraining(PretrainingOptions(**again))
    with pytest.raises(ValueError, match="recipe=tinybert, not distilbert"):
        distill(dataclasses.replace(options, recipe="distilbert"))


def test_what_does_not_fit(pretrained, make_options, config, tmp_path):
    """Oracle: the message, which names what differs."""
    source = open_checkpoint(pretrained)
    encoder = {path: x for path, x in source.tensors.items() if path.startswith("encoder")}
    headless = dataclasses.replace(source, tensors=encoder)
    with pytest.raises(ValueError, match="has no masked-LM head, whose predictions this recipe"):
        GeneralStudent(GENERAL_RECIPES["distilbert"].loss, headless)
    GeneralStudent(GENERAL_RECIPES["tinybert"].loss, headless)
    for changes, message in (
        ({"vocab_size": 14}, "whose vocab_size are 14 and 13"),
        ({"hidden_size": 8}, "whose hidden_size are 8 and 16"),
    ):
        spec = dataclasses.replace(source.spec, config=dataclasses.replace(config, **changes))
        with pytest.raises(ValueError, match=message):
            GeneralStudent(GENERAL_RECIPES["distilbert"].loss, source).build_model(SESSION, spec)
    write_vocab(file := str(tmp_path / "vocab.txt"), Vocabulary(source.spec.vocab.tokens[::-1]))
    for changes, message in (
        (
            {"preset": "L-1_H-64", "vocab_file": file},
            "vocabulary: --vocab_file=.*vocab.txt says 13 tokens .*pretrained.* says 13",
        ),
        ({"max_seq_length": 99}, "max_seq_length 99 is more than"),
        ({"preset": "tiny", "student_layers": "0"}, "--student_layers has no effect"),
        ({"objective": "nsp"}, "--objective=nsp: students learn masked tokens: omit"),
    ):
        with pytest.raises(ValueError, match=message):
            distill(make_options(**changes))
    assert not (tmp_path / "student/bert_config.json").exists()


@pytest.mark.parametrize(
    ("recipe", "saved", "message"),
    [
        ("distilbert", {"teacher": "big", "num_train_steps": 9}, "teacher=big, not "),
        ("mobilebert", {"num_train_steps": 9}, "num_train_steps=9, not 2"),
    ],
)
def test_a_run_goes_on_with_the_flags_of_its_stages(
    recipe, saved, message, pretrained, make_options, tmp_path
):
    """Oracle: the message, which names the flag."""
    options = make_options(recipe, bert_config_file="x")
    flags = {"recipe": recipe, "teacher": pretrained, "command": "compress"} | saved
    Run(options.output_dir).write(open_checkpoint(pretrained).spec, flags)
    (tmp_path / "student/ckpt-1.index").touch()
    with pytest.raises(ValueError, match=rf"\({message}"):
        distill(options)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--task=sst2", CompressionOptions),
        ("--input_file=x", GeneralOptions),
        ("--task sst2 --output_dir report", CompressionOptions),
    ],
)
def test_what_the_user_gives_decides_on_the_flags(flags, expected, monkeypatch):
    """Oracle: the sets of flags; a value that equals the name of a flag has no effect."""
    found, command = [], compress.command
    monkeypatch.setattr(sys, "argv", ["compress", *flags.split()])
    monkeypatch.setattr(command, "main", lambda call, _: call())
    monkeypatch.setattr(command, "import_tensorflow", lambda *_: None)
    monkeypatch.setattr(command, "_options", found.append)
    monkeypatch.setattr(command.pkgutil, "resolve_name", lambda name: print)
    command.run("bert_tf.compress")
    assert found == [expected]
