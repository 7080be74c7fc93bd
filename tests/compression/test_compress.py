"""The command, from a fine-tuned model to the run folder of its student."""

import dataclasses
import json
import shutil
from pkgutil import resolve_name

import numpy as np
import pytest
import tensorflow as tf
from support import save_checkpoint, save_run

from bert_tf.comparison.comparing import published_tables, read_groups
from bert_tf.compress import run
from bert_tf.compression.augmentation import MASKED_AND_SAMPLED, REPLACED, Augmentation
from bert_tf.compression.distillation import TEACHER
from bert_tf.compression.losses import soft_labels
from bert_tf.compression.run_files import num_parameters
from bert_tf.config import Head, ModelSpec
from bert_tf.conversion.converting import write_run
from bert_tf.finetuning import sweep
from bert_tf.finetuning.batches import eval_batches, train_batches
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.preparing import read_features
from bert_tf.finetuning.registry import TASKS, make_task
from bert_tf.finetuning.task import DataFiles
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import Options as FineTuningOptions
from bert_tf.run_finetuning import run as run_finetuning
from bert_tf.runs.run import COMMAND, FINISHED, Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import latest_checkpoint
from bert_tf.weights.checkpoint import load_weights
from bert_tf.weights.formats import huggingface
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

SST2 = TASKS["sst2"]


def test_all_layers_of_the_teacher_are_the_teacher(teacher, make_learner, start, batch, config):
    """Oracle: the teacher's outputs; half of its layers by default."""
    learner, student = (make("layers", student_layers="0-2") for make in (make_learner, start))
    model, expected = learner.build_model(None, student.spec), BertTaskModel(config, 2)
    load_weights(teacher, student.tensors, learner.initial_weights(model))
    load_weights(teacher, open_checkpoint(teacher).tensors, expected.weights)
    np.testing.assert_array_equal(model(batch), expected(batch))
    assert start("layers").spec.config.num_hidden_layers == 2
    with pytest.raises(ValueError, match="--student_layers=0-3: the layers are 0 to 2"):
        start("pd", student_layers="0-3")


@pytest.mark.usefixtures("eagerly")
def test_the_outputs_of_a_teacher_may_have_another_order(teacher, make_options, tmp_path):
    """Oracle: the teacher's own accuracy, for a student that is the teacher."""
    other = str(shutil.copytree(teacher, tmp_path / "other"))
    Run(other).write_head(Head("classifier", open_checkpoint(teacher).head.labels[::-1]))
    run(make_options(teacher=other, student_layers="0-2", num_train_epochs=0.0))
    values = json.loads((tmp_path / "student/compression.json").read_text())
    assert values["student_value"] == values["teacher_value"]


def test_a_bilstm_starts_with_the_teachers_word_embeddings(
    teacher, make_learner, start, batch, tmp_path
):
    """Oracles: the teacher's table; the model that was saved; the message of other commands."""
    source, learner = open_checkpoint(teacher), make_learner("bilstm")
    student = start("bilstm")
    config = student.spec.config
    # 150 units and 400, as in section 4.3 of the paper.
    assert (config.intermediate_size, config.hidden_size, config.embedding_size) == (150, 400, 16)
    assert config.bilstm == "single" and student.spec.vocab == source.spec.vocab
    for name in ("mrpc", "swag"):
        assert start("bilstm", TASKS[name]).spec.config.bilstm == "siamese"
    model = learner.build_model(None, ModelSpec(config))
    (words,) = learner.initial_weights(model)
    load_weights(teacher, student.tensors, [words])
    table = source.tensors["encoder/embeddings/word_embeddings"].read()
    np.testing.assert_array_equal(words, table)
    assert len(model.weights) == len(model.student.weights)

    folder = save_run(tmp_path, model.student, source.spec.vocab, head=SST2.head)
    found = open_checkpoint(folder, any_encoder=True)
    assert num_parameters(found) == model.student.count_params()
    loaded = SST2.build_model(found.spec.config)
    load_weights(folder, found.tensors, loaded.weights)
    np.testing.assert_array_equal(loaded(batch), model(batch))
    with pytest.raises(ValueError, match="is a BiLSTM, which has no layers of BERT"):
        open_checkpoint(folder)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("recipe", ["theseus", "bilstm", "mobilebert"])
@pytest.mark.slow
def test_recipes_resume_exactly(recipe, teacher, make_options, mobile, tmp_path, run_and_resume):
    """Oracle: the uninterrupted run."""
    changes = {}
    if recipe == "mobilebert":
        mobile.to_json_file(str(tmp_path / "mobile.json"))
        changes["bert_config_file"] = str(tmp_path / "mobile.json")
        changes["vocab_file"] = f"{teacher}/vocab.txt"
    run_and_resume(run, make_options(recipe, **changes), rtol=1e-7, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_narrower_student_learns_in_two_stages_and_resumes_exactly(
    teacher, files, make_options, tmp_path, config, capsys, run_and_resume
):
    """Oracles: the uninterrupted run; the parameters of the two models; what reads run folders."""
    narrow = dataclasses.replace(config, num_hidden_layers=1, hidden_size=8)
    narrow.to_json_file(str(tmp_path / "narrow.json"))
    encoder = dict(
        bert_config_file=str(tmp_path / "narrow.json"),
        vocab_file=f"{teacher}/vocab.txt",
        learning_rate=1e-2,
    )
    options = make_options("tinybert", **encoder)
    results, printed = run_and_resume(run, options, rtol=1e-7, atol=1e-6)
    line = printed.splitlines()[-1]
    before, after = (BertTaskModel(c, 2).count_params() for c in (config, narrow))
    assert line.startswith(f"Teacher and student: {before:,} and {after:,} parameters (")
    values = json.loads((tmp_path / "student" / "compression.json").read_text())
    sizes = ["teacher_parameters", "student_parameters", "student_bytes"]
    assert [*values] == ["recipe", "teacher", *sizes, "metric", "teacher_value", "student_value"]
    assert values["student_value"] == results["eval_accuracy"]
    assert f"accuracy {values['teacher_value']:.4f} and {values['student_value']:.4f} on" in line
    tuning = dict(
        task="sst2", data_dir=str(files), max_seq_length=12, train_batch_size=8, **encoder
    )
    with pytest.raises(ValueError, match="command=compress, not run_finetuning"):
        run_finetuning(
            FineTuningOptions(
                output_dir=options.output_dir, do_train=True, num_train_epochs=2.0, **tuning
            )
        )

    # A finished run prints its comparison again.
    assert run(options) == results
    assert capsys.readouterr().out.splitlines()[-1] == line
    checkpoint, task, length = open_fine_tuned(options.output_dir, None, None, False)
    assert (checkpoint.spec.config, task.name, length) == (narrow, "sst2", 12)
    tables = published_tables(read_groups(options.output_dir)[0])
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


@pytest.mark.parametrize(
    ("recipe", "step"), [("tinybert", 71), ("internal", 51), ("theseus", 67), ("pkd6", 1)]
)
def test_the_best_weights_are_of_the_last_stage(recipe, step, make_learner):
    """Oracle: the first of 100 steps after 70%, 50% and two thirds of them, by hand."""
    learner = make_learner(recipe)
    assert (learner.first_best_step(100), learner.first_best_step(0)) == (step, 0)


def test_several_seeds_make_several_students(make_options, monkeypatch):
    """Oracles: the seeds of the runs; the results of the best one."""
    seeds = []

    def compress(options):
        seeds.append(options.random_seed)
        return {"eval_accuracy": options.random_seed % 2 / 2}

    monkeypatch.setattr(sweep, "run_apart", lambda name, *rest: resolve_name(name)(*rest))
    monkeypatch.setattr("bert_tf.compression.compressing.compress", compress)
    options = make_options(num_seeds=3, random_seed=8)
    assert run(options) == {"eval_accuracy": 0.5} and seeds == [8, 9, 10]


def test_a_resumed_student_keeps_its_flags(make_options, config, monkeypatch):
    """Oracle: the share that the run began with, which the command that resumes it omits."""
    options = make_options("weights", sparsity=0.7)
    save_checkpoint(options.output_dir, BertTaskModel(config, 2))
    flags = options.values() | {COMMAND: options.command, FINISHED: False}
    Run(options.output_dir).write(ModelSpec(config), flags)

    def stop(options, learner):
        raise InterruptedError(f"removes {learner._options.pruned_share}")

    monkeypatch.setattr("bert_tf.compression.compressing.fine_tune", stop)
    with pytest.raises(InterruptedError, match="removes 0.7"):
        run(make_options("weights"))


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("tinybert", {"early_stopping": 1}, "--early_stopping does not suit --recipe=tinybert"),
        ("pd", {"class_weights": "balanced"}, "--class_weights does not suit --recipe=pd"),
        ("pd", {"num_train_examples": 9}, "--num_train_examples does not suit --recipe=pd"),
        ("layers", {"lora_rank": 8}, "--lora_rank does not suit --recipe=layers"),
        ("layers", {"augment": 2}, "--augment has no effect without --masked_lm"),
        ("layers", {"glove_file": "x"}, "--glove_file has no effect without --augment"),
        ("layers", {"augment": 2, "masked_lm": "x"}, "--augment does not suit --recipe=layers"),
        ("bilstm", {"preset": "tiny"}, "--preset does not suit --recipe=bilstm"),
        ("bilstm", {"layer_decay": 0.9}, "--layer_decay does not suit --recipe=bilstm"),
        ("layers", {"do_train": False}, "use run_finetuning --do_eval"),
        ("layers", {"preset": "tiny", "student_layers": "0"}, "--student_layers has no effect"),
        ("pd", {"sparsity": 0.5}, "--sparsity has no effect without --recipe=heads or --rec"),
        ("heads", {"preset": "tiny"}, "--preset does not suit --recipe=heads"),
        ("weights", {"freeze_encoder": True}, "--freeze_encoder does not suit --recipe=weights"),
        ("q8bert", {"bits": "4"}, "--bits has no effect without --recipe=qbert"),
        ("qbert", {"bits": "2/9"}, "--bits=2/9: give a number from 2 to 8, or two such"),
        ("qbert", {"student_layers": "0"}, "--student_layers does not suit --recipe=qbert"),
        ("albert", {}, "--recipe=albert has no default student: give --init_checkpoint"),
        ("mobilebert", {}, "--recipe=mobilebert has no default student"),
    ],
)
def test_flags_that_do_not_fit(recipe, changes, message, make_options, tmp_path):
    """Oracle: the message; nothing is written."""
    with pytest.raises(ValueError, match=message):
        run(make_options(recipe, **changes))
    assert not (tmp_path / "student").exists()


def test_a_teacher_of_other_tokens_is_refused(teacher, make_options, tmp_path):
    """Oracle: the message; the ids of WordPiece tokens mean nothing to such a teacher."""
    other = tmp_path / "other"
    other.mkdir()
    huggingface.write(open_checkpoint(teacher), str(other))
    (other / "vocab.txt").unlink()
    (other / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    with pytest.raises(ValueError, match="SentencePiece vocabulary for BertTokenizer, not A"):
        run(make_options("pd", teacher=str(other), init_checkpoint=teacher))


def test_all_seeds_hold_out_the_same_examples(config, tmp_path):
    """Oracle: the same examples for another --random_seed, so also for teacher and student."""
    lines = "".join(f"text {n}\t{n % 2}\n" for n in range(40))
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{lines}")
    spec = ModelSpec(config, Vocabulary((*SPECIAL_TOKENS, "a")), True)
    flags = dict(task="csv", train_file=f"{tmp_path}/train.tsv", output_dir="out", do_train=True)
    options = FineTuningOptions(**flags, max_seq_length=12)
    task = make_task(options, None)

    def held_out(seed):
        changed = options.changed(random_seed=seed)
        return read_features(changed, task, spec, ["dev"], print)["dev"].examples.texts_a

    assert held_out(1) == held_out(2) and len(held_out(1)) == 4


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("pkd6", {"hidden_size": 8}, "whose hidden_size are 8 and 16"),
        ("theseus", {"hidden_size": 8}, "whose hidden_size are 8 and 16"),
        ("tinybert", {"num_attention_heads": 4}, "whose num_attention_heads are 4 and 2"),
        ("internal", {"pruned_heads": {0: [1]}}, "whose pruned_heads are"),
        ("pd", {"num_hidden_layers": 4}, "whose num_hidden_layers are 4 and 3"),
        ("pkd6", {"is_decoder": True}, "whose is_decoder are True and False"),
        ("theseus", {"is_decoder": True}, "whose is_decoder are True and False"),
    ],
)
def test_models_that_cannot_be_compared(recipe, changes, message, make_learner, config):
    """Oracle: the message, which names what differs."""
    with pytest.raises(ValueError, match=message):
        make_learner(recipe).build_model(None, ModelSpec(dataclasses.replace(config, **changes)))


def test_models_that_a_recipe_refuses(teacher, make_options, make_learner, start, mobile, tmp_path):
    """Oracle: the message, which names what to change."""
    source = open_checkpoint(teacher)
    with pytest.raises(
        ValueError, match="is a MobileBERT or shares weights .* heads cannot be removed"
    ):
        spec = ModelSpec(mobile, source.spec.vocab, True)
        start("heads", teacher=dataclasses.replace(source, spec=spec))
    with pytest.raises(ValueError, match="--recipe=albert is for students whose layers share"):
        run(make_options("albert", init_checkpoint=teacher))
    assert not Run(str(tmp_path / "student")).has_checkpoint
    with pytest.raises(ValueError, match="--masked_lm=.* has no masked-LM head"):
        run(make_options("pd", augment=2, masked_lm=teacher))
    shutil.copytree(teacher, headless := tmp_path / "headless")
    (headless / "head.json").unlink()
    with pytest.raises(ValueError, match="is not a fine-tuned model"):
        run(make_options(teacher=str(headless)))
    other = WordPieceTokenizer(Vocabulary((*source.spec.vocab.tokens, "more")), True)
    with pytest.raises(ValueError, match=r"vocabulary \(14 tokens\) or casing is not that of"):
        make_learner("tinybert").task.featurize(None, other, 12)


@pytest.mark.parametrize("changes", [MASKED_AND_SAMPLED, REPLACED])
def test_masks_in_copies_are_tokens(changes, teacher, files, make_learner, monkeypatch):
    """Oracle: the tokenizer that the training examples get, and no others."""
    monkeypatch.setattr(type(SST2), "featurize", lambda self, examples, tokenizer, _: tokenizer)
    monkeypatch.setattr(Augmentation, "of", lambda *_: Augmentation(None, 0, changes, 0, ""))
    monkeypatch.setattr(Augmentation, "__call__", lambda self, examples: examples)
    learner = make_learner("tinybert")
    splits = learner.task.read_splits(["train", "dev"], DataFiles(str(files)))
    tokenizer = WordPieceTokenizer(open_checkpoint(teacher).spec.vocab, True)
    found = [learner.task.featurize(splits[name], tokenizer, 12) for name in ("train", "dev")]
    reads_masks = [tokenizer.special_tokens_in_text for tokenizer in found]
    assert reads_masks == [changes is MASKED_AND_SAMPLED, False]


def test_a_student_may_read_other_tokens_than_its_teacher(teacher, files, make_learner, config):
    """Oracles: the teacher's model on the teacher's tokens; the loss of these predictions."""
    source, learner = open_checkpoint(teacher), make_learner("pd")
    splits = learner.task.read_splits(["train", "dev"], DataFiles(str(files)))
    vocab = source.spec.vocab
    other = WordPieceTokenizer(Vocabulary((*vocab.tokens[:5], *vocab.tokens[:4:-1])), True)
    features = learner.task.featurize(splits["train"], other, 12)
    assert TEACHER not in learner.task.featurize(splits["dev"], other, 12).targets
    own = SST2.featurize(splits["train"], WordPieceTokenizer(vocab, True), 12)
    model = BertTaskModel(config, 2)
    load_weights(teacher, source.tensors, model.weights)
    batch = next(iter(eval_batches(own, 16)))
    found = features.targets[TEACHER][batch["example_index"]]
    np.testing.assert_allclose(found, model(batch), atol=1e-5)

    student = learner.build_model(None, ModelSpec(dataclasses.replace(config, num_hidden_layers=1)))
    assert student.teacher is None
    batch = next(iter(train_batches(features, 8, range(1), 0)))
    losses = soft_labels(batch[TEACHER], student(batch))
    found = learner.objective(None, 1).sums(student, batch, False)["soft_labels"]
    np.testing.assert_allclose(found, tf.reduce_sum(losses), rtol=1e-5)
