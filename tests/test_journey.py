"""From text to SavedModels, by the commands that each command prints as the next."""

import pathlib
import subprocess
import webbrowser
from unittest import mock

import pytest
from support import one_line, quick_runs  # noqa: F401

import bert_tf
from bert_tf import quickstart
from bert_tf.build_vocab import Options, run
from bert_tf.training.reports import EVAL_RESULTS, read_results

NAME = "my friend's text"
# Less work; everything else is as printed.
SMALLER = {
    "bert_tf.create_pretraining_data": {"dupe_factor": 2, "num_workers": 1},
    "bert_tf.run_pretraining": {
        "train_batch_size": 2,
        "num_train_steps": 2,
        "num_warmup_steps": 0,
        "max_eval_steps": 1,
    },
}


@pytest.mark.slow
def test_every_printed_command_runs(tmp_path, monkeypatch, capsys, run_printed):
    """Oracle: the commands, parsed as a shell does, and the files they leave.

    Names contain a space and a quote, and the names that the commands would choose are taken.
    """
    monkeypatch.chdir(tmp_path)
    for taken in ("run", "encoder"):
        pathlib.Path(taken).mkdir()
        pathlib.Path(taken, "precious").touch()
    text = "".join(f"One sentence {n}.\nAnother follows it.\n\n" for n in range(60))
    pathlib.Path(f"{NAME}.txt").write_text(text)
    run(Options(input_file=f"{NAME}*.txt", output_file=f"{NAME}.vocab", num_workers=1))
    ran = []
    printed = _commands(capsys)
    # tests/export/test_encoder.py runs the line after these.
    while printed and "export.preprocessor" not in printed[0]:
        module = printed[0].split()[2]
        run_printed(printed.pop(0), **SMALLER.get(module, {}))
        ran.append(module)
        printed += _commands(capsys)
    assert ran == [
        "bert_tf.create_pretraining_data",
        "tfrecords.inspect",
        "bert_tf.run_pretraining",
        "export.encoder",
    ]
    assert len(printed) == 1
    assert pathlib.Path("run-2", EVAL_RESULTS).exists()
    assert pathlib.Path("encoder-2", "saved_model.pb").exists()


def test_quickstart_makes_no_folder_in_the_name_of_a_download(tmp_path, monkeypatch):
    """Oracle: the folder stays empty."""
    monkeypatch.chdir(tmp_path)
    with one_line("^hf:a/b can only be read: name an output on a disk"):
        quickstart.run(quickstart.Options(output_dir="hf:a/b"))
    assert not [*tmp_path.iterdir()]


def test_quickstart_leaves_finished_files_alone(tmp_path, monkeypatch):
    """Oracles: the bytes of the user's files; only commands that write nothing run."""
    names = ("train.txt", "heldout.txt", "vocab.txt", "train.tfrecord", "heldout.tfrecord")
    names += ("pretraining/ckpt-2600.index", "encoder", "preprocessor", "explore.html")
    for file in map(tmp_path.joinpath, names):
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    ran, opened = mock.Mock(return_value=mock.Mock(returncode=0)), []
    monkeypatch.setattr(subprocess, "run", ran)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    quickstart.run(quickstart.Options(output_dir=str(tmp_path), open=True))
    assert [call.args[0][2] for call in ran.call_args_list] == ["export.check", "bert_tf.fill_mask"]
    assert {file.read_text() for file in map(tmp_path.joinpath, names)} == {"mine"}
    assert opened == [(tmp_path / "explore.html").as_uri()]


def _commands(capsys) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    return [line[line.index("python -m ") :] for line in lines if "python -m " in line]


@pytest.mark.usefixtures("no_learning", "eagerly")
def test_functions_take_what_the_one_before_returns(tmp_path):
    """Oracles: what is on disk, and what the objects say of it, by hand."""
    text = "".join(f"One sentence {n}.\nAnother follows it.\n\n" for n in range(60))
    (tmp_path / "text.txt").write_text(text)
    vocab = bert_tf.build_vocabulary(
        [tmp_path / "text.txt"], tmp_path / "vocab.txt", num_workers=1, quiet=True
    )
    assert vocab == bert_tf.load_vocab(str(tmp_path / "vocab.txt"))
    assert repr(vocab) == f"Vocabulary({len(vocab):,} tokens)"
    records = bert_tf.create_examples(
        tmp_path / "text.txt",
        output_file=tmp_path / "x.tfrecord",
        vocab_file=tmp_path / "vocab.txt",
        num_shards=2,
        num_workers=1,
        quiet=True,
    )
    assert records == f"{tmp_path}/x.tfrecord-*"
    flags = dict(bert_config_file=tmp_path / "c.json", num_train_steps=2, train_batch_size=4)
    bert_tf.BertConfig(len(vocab), 16, 1, 2, 32).to_json_file(str(tmp_path / "c.json"))
    made = bert_tf.pretrain(records, tmp_path / "run", quiet=True, max_eval_steps=1, **flags)
    accuracy = read_results(f"{tmp_path}/run/{EVAL_RESULTS}")["masked_lm_accuracy"]
    shown = f"pre-training, masked_lm_accuracy {accuracy:.4f}, step 2"
    assert repr(made) == f"TrainedRun('{tmp_path}/run': {shown})"
    assert bert_tf.open_run(tmp_path / "run").metrics == made.metrics
    loaded = bert_tf.load(made.path)
    tokenizer = f"WordPieceTokenizer({len(vocab):,} tokens, lower-cases text)"
    assert repr(loaded) == f"LoadedRun(BertPretrainer with 1 layers of 16, {tokenizer})"
    with pytest.raises(FileNotFoundError, match="text.txt holds no run"):
        bert_tf.open_run(tmp_path / "text.txt")
