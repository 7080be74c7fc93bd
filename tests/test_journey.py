"""From text to SavedModels, by the commands that each command prints as the next."""

import pathlib

import pytest
from support import quick_runs  # noqa: F401

from bert_tf.build_vocab import Options, run
from bert_tf.training.reports import EVAL_RESULTS

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


def _commands(capsys) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    return [line[line.index("python -m ") :] for line in lines if "python -m " in line]
