"""Progress in a terminal and in a file. Oracle: the lines expected."""

import importlib.util
import io
import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from bert_tf.base import progress
from bert_tf.base.progress import progress_bar, say, with_progress


def test_a_file_gets_whole_lines(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with progress_bar(total=30, desc="Reading", unit=" tokens") as bar:
        bar.update(10)
        say("a message")
        bar.update(20)
    captured = capsys.readouterr()
    assert captured.out == "a message\n"
    first, last = captured.err.splitlines()
    assert re.fullmatch(r"Reading:  33% 10/30 \[00:00<.*, .* tokens/s\]", first)
    assert re.fullmatch(r"Reading: 100% 30/30 \[00:00<00:00, .* tokens/s\]", last)
    assert "\r" not in captured.err


def test_a_notebook_gets_one_line_that_changes(monkeypatch):
    """Oracle: by hand; a stream of ipykernel is no terminal, but carriage returns work in it."""
    kind = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    streams = [kind(), kind()]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with progress_bar(total=3) as bar:
        assert list(progress_bar(iterable="xy", total=2, desc="Inner", leave=False)) == ["x", "y"]
        say("a message of " + "words " * 20)
        bar.update(3)
    assert progress.shows_bars() and streams[1].getvalue() == ""
    lines = [line.rpartition("\r")[2] for line in streams[0].getvalue().split("\n")]
    assert lines[:-2] == ["a message of" + " words" * 11, " ".join(["words"] * 9)]
    assert re.fullmatch(r"100%\|[█#]+\| 3/3 \[.*\]", lines[-2]) and len(lines[-2]) == 100


def test_little_work_leaves_one_line(capsys):
    with progress_bar(total=1000) as bar:
        for _ in range(1000):
            bar.update()
    assert capsys.readouterr().err.count("\n") == 1


def test_a_slow_first_step_does_not_last():
    """Oracle: by hand: 1 step in 10 s and 9 in 5 s leave 15 s for as many again."""
    now = [100.0]
    with progress_bar(total=20) as bar:
        bar._time = lambda: now[0]
        bar.start_t = bar.last_print_t = now[0]
        for seconds, steps in ((10, 1), (5, 9)):
            now[0] += seconds
            bar.update(steps)
        assert "[00:15<00:15" in str(bar)


def test_quiet_leaves_warnings(capsys, monkeypatch):
    monkeypatch.setenv("BERT_TF_QUIET", "")  # removed again after the test
    progress.be_quiet()
    with progress_bar(total=30) as bar:
        bar.update(30)
        say("a message")
        say("several lines\nWARNING: one of 2 is a warning\n")
    assert capsys.readouterr() == ("WARNING: one of 2 is a warning\n", "")


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 100, 160])
def test_a_narrow_terminal_gets_a_bar_and_whole_details(columns, monkeypatch):
    """Oracles: the width of a real terminal; the details given, of which the first stay."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    details = ["00:00<00:00", "loss 6.104", "mlm 5.41", "nsp 0.694", "1,234 seq/s", "35% MFU"]
    with open(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with progress_bar(total=20_000, desc="Reading", show_rate=False, leave=False) as bar:
            bar.set_postfix_str(", ".join(details[1:]), refresh=False)
            bar.update(20_000)
            shown = str(bar)
    os.close(master)
    assert len(shown) <= columns
    found = re.fullmatch(r"Reading: 100%\|(\W+)\| 20000/20000(?: \[(.*)\])?", shown)
    assert found and len(found[1]) >= min(10, columns - 28)
    kept = found[2].split(", ") if found[2] else []
    assert kept == details[: len(kept)]
    assert len(kept) == len(details) or len(found[1]) < 10 + len(details[len(kept)]) + 4


def test_work_of_unknown_size_is_counted(capsys):
    with progress_bar(total=None, desc="Reading", unit=" tokens") as bar:
        bar.update(30)
    assert re.fullmatch(r"Reading: 30 \[00:00, .* tokens/s\]\n", capsys.readouterr().err)


def test_slow_batches_have_a_progress_bar(monkeypatch, capsys):
    """Oracle: the batches, and a line that counts them."""
    assert list(with_progress([1, 2, 3], "Predicting", total=3)) == [1, 2, 3]
    assert not capsys.readouterr().err
    monkeypatch.setattr(progress, "progress_bar", lambda **how: progress_bar(**how | {"delay": 0}))
    assert list(with_progress([1, 2, 3], "Predicting", total=3)) == [1, 2, 3]
    assert "Predicting: 100% 3/3" in capsys.readouterr().err
    assert list(with_progress([1], "Predicting", disable=True)) == [1]
    assert not capsys.readouterr().err


def test_in_a_terminal_messages_have_lines_of_their_own():
    """Oracle: what an unbuffered process sends to a terminal of 80 columns."""
    code = (
        "from bert_tf.base.process import prepare_process\n"
        "prepare_process()\n"
        "from bert_tf.base.progress import progress_bar, say\n"
        "with progress_bar(total=2) as bar:\n"
        "    bar.set_postfix_str('loss ' + 'x' * 60)\n"
        "    say('evaluation: ' + 'word ' * 30)\n"
        "    say('Next: python -m bert_tf.predict ' + 'word ' * 30)\n"
    )
    ours, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    unbuffered = os.environ | {"PYTHONUNBUFFERED": "1"}
    streams = dict(stdout=terminal, stderr=terminal)
    subprocess.run([sys.executable, "-c", code], check=True, env=unbuffered, **streams)
    os.close(terminal)
    lines = os.read(ours, 10**5).decode().split("\r\n")
    messages = [line.rpartition("\r")[2] for line in lines[:-1]]
    start = next(i for i, line in enumerate(messages) if line.startswith("evaluation: word"))
    assert messages[start : start + 3] == [
        "evaluation:" + " word" * 13, " ".join(["word"] * 16), "word"
    ]  # fmt: skip
    assert messages[start + 3].startswith("Next: python -m bert_tf.predict word word")
    assert len(messages[start + 3]) > 160
