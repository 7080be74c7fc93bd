"""The command, from a fine-tuned model to the run folder of its student."""

import dataclasses
import json
import shutil
from pkgutil import resolve_name
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import assert_same_state

from bert_tf.checkpoint import open_checkpoint
from bert_tf.comparison.runs import published_tables, read_groups
from bert_tf.compress import Options, run
from bert_tf.compression.augmentation import MASKED_AND_SAMPLED, REPLACED, Augmentation
from bert_tf.compression.compress import compress, hold_out_as_teacher, num_parameters
from bert_tf.compression.distillation import TEACHER
from bert_tf.compression.losses import soft_labels
from bert_tf.compression.pruning import without_heads
from bert_tf.compression.recipes import RECIPES
from bert_tf.compression.student import StudentTraining, initial_student, reads_pairs
from bert_tf.config import Head, ModelSpec
from bert_tf.conversion.converting import write_run
from bert_tf.finetuning.batches import eval_batches, train_batches
from bert_tf.finetuning.fine_tune import read_features
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.registry import TASKS, make_task
from bert_tf.finetuning.runs import sweep
from bert_tf.finetuning.task import DataFiles
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import Options as FineTuningOptions
from bert_tf.run_finetuning import run as run_finetuning
from bert_tf.runs.run import Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import Checkpointer, latest_checkpoint
from bert_tf.weights.checkpoint import load_weights
from bert_tf.weights.formats import huggingface
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary


def make_options(teacher, files, output_dir="unused", **changes) -> Options:
    values = dict(
        recipe="layers",
        teacher=teacher,
        task="sst2",
        data_dir=str(files),
        output_dir=str(output_dir),
        max_seq_length=12,
        train_batch_size=8,
        num_train_epochs=2.0,
    )
    return Options(**values | changes)


def test_all_layers_of_the_teacher_are_the_teacher(teacher, files, batch, config):
    """Oracle: the teacher's outputs; half of its layers by default."""
    options = make_options(teacher, files, student_layers="0-2")
    source = open_checkpoint(teacher)
    task = StudentTraining(TASKS["sst2"], RECIPES["layers"], source, keeps_head=True)
    student = initial_student(options, RECIPES["layers"], source)
    model, expected = task.build_model(student.spec.config), BertTaskModel(config, 2)
    load_weights(teacher, student.tensors, task.initial_weights(model))
    load_weights(teacher, source.tensors, expected.weights)
    np.testing.assert_array_equal(model(batch), expected(batch))
    options = make_options(teacher, files)
    half = initial_student(options, RECIPES["layers"], source)
    assert half.spec.config.num_hidden_layers == 2
    options = make_options(teacher, files, student_layers="0-3")
    with pytest.raises(ValueError, match="--student_layers=0-3: the layers are 0 to 2"):
        initial_student(options, RECIPES["pd"], source)


def test_the_outputs_of_a_teacher_may_have_another_order(teacher, files, tmp_path):
    """Oracle: the teacher's own accuracy, for a student that is the teacher."""
    other = str(shutil.copytree(teacher, tmp_path / "other"))
    labels = open_checkpoint(teacher).head.labels
    Run(other).write_head(Head("classifier", labels[::-1]))
    options = make_options(
        other, files, tmp_path / "student", student_layers="0-2", num_train_epochs=0.0
    )
    run(dataclasses.replace(options, recipe="layers"))
    values = json.loads((tmp_path / "student/compression.json").read_text())
    assert values["student_value"] == values["teacher_value"]


def test_a_bilstm_starts_with_the_teachers_word_embeddings(teacher, files, batch, tmp_path):
    """Oracles: the teacher's table; the model that was saved; the message of other commands."""
    options, source = make_options(teacher, files, recipe="bilstm"), open_checkpoint(teacher)
    recipe = RECIPES["bilstm"]
    task = StudentTraining(TASKS["sst2"], recipe, source, keeps_head=True)
    student = initial_student(options, recipe, source)
    config = student.spec.config
    # 150 units and 400, as in section 4.3 of the paper.
    assert (config.intermediate_size, config.hidden_size, config.embedding_size) == (150, 400, 16)
    assert config.bilstm == "single" and student.spec.vocab == source.spec.vocab
    assert initial_student(options, recipe, source, True).spec.config.bilstm == "siamese"
    assert [reads_pairs(TASKS[name]) for name in ("sst2", "mrpc", "swag")] == [False, True, True]
    model = task.build_model(student.spec.config)
    (words,) = task.initial_weights(model)
    load_weights(teacher, student.tensors, [words])
    table = source.tensors["encoder/embeddings/word_embeddings"].read()
    np.testing.assert_array_equal(words, table)
    assert len(model.weights) == len(model.student.weights)

    run, folder = Run(str(tmp_path)), str(tmp_path)
    run.write(student.spec)
    run.write_head(TASKS["sst2"].head)
    Checkpointer(folder, model, {"step": tf.Variable(1, dtype=tf.int64)}).save()
    found = open_checkpoint(folder, any_encoder=True)
    assert num_parameters(found) == model.student.count_params()
    loaded = TASKS["sst2"].build_model(found.spec.config)
    load_weights(folder, found.tensors, loaded.weights)
    np.testing.assert_array_equal(loaded(batch), model(batch))
    with pytest.raises(ValueError, match="is a BiLSTM, which has no layers of BERT"):
        open_checkpoint(folder)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["theseus", "weights", "heads", "bilstm", "mobilebert"])
def test_recipes_resume_exactly(recipe, teacher, files, mobile, tmp_path, capsys, run_and_copy):
    """Oracle: the uninterrupted run."""
    changes = {}
    if recipe == "mobilebert":
        mobile.to_json_file(str(tmp_path / "mobile.json"))
        changes["bert_config_file"] = str(tmp_path / "mobile.json")
        changes["vocab_file"] = f"{teacher}/vocab.txt"
    options = make_options(teacher, files, tmp_path / "run", recipe=recipe, **changes)
    results, copy = run_and_copy(run, options)
    capsys.readouterr()
    assert run(copy) == results
    assert "Resuming from" in capsys.readouterr().out
    assert_same_state(options.output_dir, copy.output_dir, rtol=1e-7, atol=1e-6)


@pytest.mark.slow
def test_a_narrower_student_learns_in_two_stages_and_resumes_exactly(
    teacher, files, tmp_path, config, capsys, run_and_copy
):
    """Oracles: the uninterrupted run; the parameters of the two models; what reads run folders."""
    narrow = dataclasses.replace(config, num_hidden_layers=1, hidden_size=8)
    narrow.to_json_file(str(tmp_path / "narrow.json"))
    options = make_options(
        teacher,
        files,
        tmp_path / "student",
        recipe="tinybert",
        bert_config_file=str(tmp_path / "narrow.json"),
        vocab_file=f"{teacher}/vocab.txt",
        learning_rate=1e-2,
    )
    results, broken = run_and_copy(run, options)
    line = capsys.readouterr().out.splitlines()[-1]
    before, after = (BertTaskModel(c, 2).count_params() for c in (config, narrow))
    assert line.startswith(f"Teacher and student: {before:,} and {after:,} parameters (")
    values = json.loads((tmp_path / "student" / "compression.json").read_text())
    assert values["student_value"] == results["eval_accuracy"]
    assert f"accuracy {values['teacher_value']:.4f} and {values['student_value']:.4f} on" in line
    with pytest.raises(ValueError, match="command=compress, not run_finetuning"):
        run_finetuning(
            FineTuningOptions(
                task="sst2", data_dir=str(files), output_dir=broken.output_dir, do_train=True,
                max_seq_length=12, train_batch_size=8, num_train_epochs=2.0, learning_rate=1e-2,
                vocab_file=options.vocab_file, bert_config_file=options.bert_config_file,
            )
        )  # fmt: skip
    assert run(broken) == results
    assert "Resuming from" in capsys.readouterr().out
    assert_same_state(options.output_dir, broken.output_dir, rtol=1e-7, atol=1e-6)

    # A finished run prints its comparison again.
    assert run(options) == results
    assert capsys.readouterr().out.splitlines()[-1] == line
    checkpoint, task, length = open_fine_tuned(options.output_dir, None, None, False)
    assert (checkpoint.spec.config, task.name, length) == (narrow, "sst2", 12)
    tables = published_tables(read_groups(str(tmp_path / "student"))[0])
    assert f"tinybert of {teacher}" in [row[0] for table in tables for row in table.rows]
    evaluation = FineTuningOptions(
        task="sst2", data_dir=str(files), output_dir=options.output_dir, do_eval=True
    )
    assert run_finetuning(evaluation)["eval_accuracy"] == results["eval_accuracy"]
    model = BertTaskModel(narrow, 2)
    load_weights(checkpoint.path, checkpoint.tensors, model.weights)
    newest = open_checkpoint(latest_checkpoint(options.output_dir))
    assert newest.tensors.keys() == checkpoint.tensors.keys()
    assert newest.unused == checkpoint.unused != ()
    for write in (write_run, huggingface.write):
        folder = tmp_path / write.__module__
        folder.mkdir()
        write(checkpoint, str(folder))
        tensors = open_checkpoint(str(folder)).tensors
        for weight in model.weights:
            np.testing.assert_array_equal(tensors[weight.path].read(), weight)


def test_the_best_weights_are_of_the_last_stage(teacher):
    """Oracle: the first of 100 steps after 70%, 50% and two thirds of them, by hand."""
    source = open_checkpoint(teacher)
    for recipe, step in (("tinybert", 71), ("internal", 51), ("theseus", 67), ("pkd6", 1)):
        task = StudentTraining(TASKS["sst2"], RECIPES[recipe], source, keeps_head=True)
        assert task.first_best_step(100) == step
        assert task.first_best_step(0) == 0


def test_several_seeds_make_several_students(teacher, files, tmp_path, monkeypatch):
    """Oracles: the seeds of the runs; the results of the best one."""
    seeds = []

    def compress(options):
        seeds.append(options.random_seed)
        return {"eval_accuracy": options.random_seed % 2 / 2}

    monkeypatch.setattr(sweep, "run_apart", lambda name, *rest: resolve_name(name)(*rest))
    monkeypatch.setattr("bert_tf.compression.compress.compress", compress)
    options = make_options(teacher, files, tmp_path / "runs", num_seeds=3, random_seed=8)
    assert run(options) == {"eval_accuracy": 0.5} and seeds == [8, 9, 10]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"early_stopping": 1, "recipe": "tinybert"}, "--early_stopping would end --recipe=tinyb"),
        ({"class_weights": "balanced", "recipe": "pd"}, "--class_weights does not suit --recipe=p"),
        ({"feature_based": "last"}, "--feature_based does not suit --recipe=layers: omit it"),
        ({"augment": 2}, "--augment and --masked_lm need each other"),
        ({"glove_file": "x"}, "--glove_file has no effect without --augment: omit it"),
        ({"augment": 2, "masked_lm": "x"}, "--augment does not suit --recipe=layers, which learns"),
        ({"preset": "tiny", "recipe": "bilstm"}, "--preset does not suit --recipe=bilstm"),
        ({"layer_decay": 0.9, "recipe": "bilstm"}, "--layer_decay does not suit --recipe=bilstm"),
        ({"max_seq_length": 99}, "max_seq_length 99 is more than"),
        ({"do_train": False}, "use run_finetuning --do_eval"),
        ({"preset": "tiny", "student_layers": "0"}, "--student_layers has no effect"),
        ({"sparsity": 0.5, "recipe": "pd"}, "--sparsity has no effect with --recipe=pd: omit it"),
        ({"preset": "tiny", "recipe": "heads"}, "--recipe=heads removes heads of the teacher"),
        (
            {"freeze_encoder": True, "recipe": "weights"},
            "--freeze_encoder does not suit --recipe=w",
        ),
        ({"num_train_epochs": 0.0, "recipe": "weights"}, "is less than one step"),
        ({"bits": "4", "recipe": "q8bert"}, "--bits has no effect with --recipe=q8bert: omit it"),
        ({"bits": "2/9", "recipe": "qbert"}, "--bits=2/9: give a number from 2 to 8, or two such"),
        ({"bits": "3/2", "recipe": "qbert"}, "--bits=3/2: give the smaller number first"),
        (
            {"recipe": "albert"},
            "--recipe=albert compares an ALBERT of your choice with the teacher",
        ),
        ({"student_layers": "0", "recipe": "qbert"}, "--student_layers does not suit --recipe=qb"),
    ],
)
def test_flags_that_do_not_fit(changes, message, teacher, files, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(make_options(teacher, files, tmp_path / "out", **changes))
    assert not (tmp_path / "out").exists()


def test_a_teacher_of_other_tokens_is_refused(teacher, files, tmp_path):
    """Oracle: the message; the ids of WordPiece tokens mean nothing to such a teacher."""
    other = tmp_path / "other"
    other.mkdir()
    huggingface.write(open_checkpoint(teacher), str(other))
    (other / "vocab.txt").unlink()
    (other / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    options = make_options(str(other), files, tmp_path / "out", init_checkpoint=teacher)
    with pytest.raises(ValueError, match="tokenizer.json is a SentencePiece vocabulary"):
        run(dataclasses.replace(options, recipe="pd"))


def test_what_the_teacher_held_out_is_held_out(teacher, tmp_path):
    """Oracle: the seed that chose it, also if the teacher is a student, or named by its weights."""
    source = open_checkpoint(teacher)
    for flags, seed in (
        ({}, None),
        ({"random_seed": 3}, 3),
        ({"random_seed": 3, "hold_out_seed": None}, 3),
        ({"random_seed": 3, "hold_out_seed": 0}, 0),
    ):
        (tmp_path / "flags.json").write_text(json.dumps(flags))
        options = make_options(str(tmp_path), "data", random_seed=9)
        given = dataclasses.replace(options, hold_out_seed=5)
        for folder in (tmp_path, tmp_path / "best"):
            teacher = dataclasses.replace(source, run=Run(str(folder)).whole)
            assert hold_out_as_teacher(options, teacher).hold_out_seed == seed
            assert hold_out_as_teacher(given, teacher).hold_out_seed == 5
        others = dataclasses.replace(teacher, run=None)
        assert hold_out_as_teacher(options, others).hold_out_seed is None


def test_the_seed_chooses_what_is_held_out(config, tmp_path):
    """Oracle: the same examples for another --random_seed."""
    lines = "".join(f"text {n}\t{n % 2}\n" for n in range(40))
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{lines}")
    spec = ModelSpec(config, Vocabulary((*SPECIAL_TOKENS, "a")), True)
    flags = dict(task="csv", train_file=f"{tmp_path}/train.tsv", output_dir="out", do_train=True)
    options = FineTuningOptions(**flags, max_seq_length=12, hold_out_seed=1)
    task = make_task(options, None)

    def held_out(**changes):
        changed = dataclasses.replace(options, **changes)
        return read_features(changed, task, spec, ["dev"], print)["dev"].examples.texts_a

    assert held_out(random_seed=1) == held_out(random_seed=2)
    assert held_out(hold_out_seed=None, random_seed=2) == held_out(hold_out_seed=2)
    assert held_out(hold_out_seed=2) != held_out()


def test_a_bert_is_no_student_of_albert(teacher, files, tmp_path):
    """Oracle: the message; no weights are written."""
    options = make_options(
        teacher, files, tmp_path / "out", recipe="albert", init_checkpoint=teacher
    )
    with pytest.raises(ValueError, match="--recipe=albert is for students whose layers share"):
        run(options)
    assert not Run(options.output_dir).has_checkpoint


def test_augmentation_needs_a_masked_lm(teacher, files, tmp_path):
    changes = {"recipe": "pd", "augment": 2, "masked_lm": teacher}
    with pytest.raises(ValueError, match="--masked_lm=.* has no masked-LM head"):
        run(make_options(teacher, files, tmp_path / "out", **changes))


class _OwnModel(keras.Model):
    """A model of a user's own: an encoder and one variable, without a `head`."""

    def __init__(self, config):
        super().__init__()
        self.encoder = BertEncoder(config)
        self.kernel = self.add_weight(name="kernel", shape=(config.hidden_size, 2))


def test_a_task_of_ones_own_starts_with_the_encoder(teacher, config):
    """Oracle: the variables of the encoder. Recipes with a teacher refuse such a task."""
    own = SimpleNamespace(name="own", head=None, objective=None, build_model=_OwnModel)
    source = open_checkpoint(teacher)
    task = StudentTraining(own, RECIPES["layers"], source, keeps_head=True)
    model = task.build_model(config)
    assert task.initial_weights(model) == model.encoder.weights
    with pytest.raises(ValueError, match="of tasks of your own, .* use --recipe=layers"):
        StudentTraining(own, RECIPES["pd"], source, keeps_head=True)


def test_a_given_task_is_learned_with_another_metric(teacher, files, tmp_path, monkeypatch):
    """Oracle: the losses of the recipe, and the metric."""
    found = []

    def stop(session, training, *_):
        found.append((training.objective(1).losses, training.task.metric))
        raise KeyboardInterrupt

    monkeypatch.setattr("bert_tf.finetuning.fine_tune.FineTuner", stop)
    options = make_options(teacher, files, tmp_path / "out", recipe="pkd6", metric="macro_f1")
    with pytest.raises(KeyboardInterrupt):
        compress(options, TASKS["sst2"])
    assert found == [(("labels", "soft_labels", "patience"), "macro_f1")]


def test_models_that_cannot_be_compared(teacher, files, config, mobile, tmp_path):
    """Oracle: the message, which names what differs."""
    source, task = open_checkpoint(teacher), TASKS["sst2"]
    for recipe, changes, message in (
        ("pkd6", {"hidden_size": 8}, "layers of one width .* hidden_size are 8 and 16"),
        ("theseus", {"hidden_size": 8}, "layers of one width"),
        ("tinybert", {"num_attention_heads": 4}, "as many heads .* are 4 and 2"),
        ("internal", {"pruned_heads": {0: [1]}}, "compares all attention heads"),
        ("pd", {"num_hidden_layers": 4}, "has 4 layers, more than the 3"),
        ("pkd6", {"is_decoder": True}, "student or teacher reads from left to right"),
        ("theseus", {"is_decoder": True}, "student or teacher reads from left to right"),
    ):
        with pytest.raises(ValueError, match=message):
            StudentTraining(task, RECIPES[recipe], source, False).build_model(
                dataclasses.replace(config, **changes)
            )
    with pytest.raises(ValueError, match="a student of your choice: give --bert_config_file"):
        make_options(teacher, files, recipe="mobilebert")
    with pytest.raises(ValueError, match="is a MobileBERT, whose heads cannot be removed"):
        spec = ModelSpec(mobile, source.spec.vocab, True)
        without_heads(make_options(teacher, files), task, dataclasses.replace(source, spec=spec))
    with pytest.raises(ValueError, match="--task=swag needs the kind multiple_choice"):
        run(make_options(teacher, files, tmp_path / "out", task="swag"))
    shutil.copytree(teacher, headless := tmp_path / "headless")
    (headless / "head.json").unlink()
    with pytest.raises(ValueError, match="is not a fine-tuned model"):
        run(make_options(str(headless), files, tmp_path / "out"))
    other = WordPieceTokenizer(Vocabulary((*source.spec.vocab.tokens, "more")), True)
    with pytest.raises(ValueError, match=r"vocabulary \(14 tokens\) or casing is not that of"):
        StudentTraining(task, RECIPES["tinybert"], source, False).featurize(None, other, 12)


@pytest.mark.parametrize("changes", [MASKED_AND_SAMPLED, REPLACED])
def test_masks_in_copies_are_tokens(changes, teacher, files, monkeypatch):
    """Oracle: the tokenizer that the training examples get, and no others."""
    source, sst2 = open_checkpoint(teacher), TASKS["sst2"]
    monkeypatch.setattr(type(sst2), "featurize", lambda self, examples, tokenizer, _: tokenizer)
    copying = Augmentation(None, 0, changes, 0)
    monkeypatch.setattr(Augmentation, "__call__", lambda self, examples: examples)
    task = StudentTraining(sst2, RECIPES["tinybert"], source, False, augmentation=copying)
    splits = task.read_splits(["train", "dev"], DataFiles(str(files)), 0)
    tokenizer = WordPieceTokenizer(source.spec.vocab, True)
    found = [task.featurize(splits[name], tokenizer, 12) for name in ("train", "dev")]
    reads_masks = [tokenizer.special_tokens_in_text for tokenizer in found]
    assert reads_masks == [changes is MASKED_AND_SAMPLED, False]


def test_a_student_may_read_other_tokens_than_its_teacher(teacher, files, config):
    """Oracles: the teacher's model on the teacher's tokens; the loss of these predictions."""
    source, sst2 = open_checkpoint(teacher), TASKS["sst2"]
    task = StudentTraining(sst2, RECIPES["pd"], source, keeps_head=False)
    splits = task.read_splits(["train", "dev"], DataFiles(str(files)), 0)
    vocab = source.spec.vocab
    other = WordPieceTokenizer(Vocabulary((*vocab.tokens[:5], *vocab.tokens[:4:-1])), True)
    features = task.featurize(splits["train"], other, 12)
    assert TEACHER not in task.featurize(splits["dev"], other, 12).targets
    own = sst2.featurize(splits["train"], WordPieceTokenizer(vocab, True), 12)
    model = BertTaskModel(config, 2)
    load_weights(teacher, source.tensors, model.weights)
    batch = next(iter(eval_batches(own, 32)))
    found = features.targets[TEACHER][batch["example_index"]]
    np.testing.assert_allclose(found, model(batch), atol=1e-5)

    student = task.build_model(dataclasses.replace(config, num_hidden_layers=1))
    assert student.teacher is None
    batch = next(iter(train_batches(features, 8, 1, 0)))
    losses = soft_labels(batch[TEACHER], student(batch))
    found = task.objective(1).sums(student, batch, False)["soft_labels"]
    np.testing.assert_allclose(found, tf.reduce_sum(losses), rtol=1e-5)
