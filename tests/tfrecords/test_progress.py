"""Progress in a terminal and in a file. Oracle: the lines expected."""

import io
import re

from tfrecords import progress
from tfrecords.progress import progress_bar, say


class _Terminal(io.StringIO):
    def isatty(self):
        return True


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


def test_little_work_leaves_one_line(capsys):
    with progress_bar(total=1000) as bar:
        for _ in range(1000):
            bar.update()
    assert capsys.readouterr().err.count("\n") == 1


def test_quiet_leaves_warnings(capsys, monkeypatch):
    monkeypatch.setenv("BERT_TF_QUIET", "")  # removed again after the test
    progress.be_quiet()
    with progress_bar(total=30) as bar:
        bar.update(30)
        say("a message")
        say("several lines\nWARNING: one of 2 is a warning\n")
    assert capsys.readouterr() == ("WARNING: one of 2 is a warning\n", "")


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar(total=30, desc="Reading", show_rate=False) as bar:
        bar.set_postfix_str("loss 7")
        bar.update(30)
    last = terminal.getvalue().rsplit("\r", 1)[1]
    assert re.fullmatch(r"Reading: 100%\|#+\| 30/30 \[00:00<00:00, loss 7\]\s*", last)


def test_work_of_unknown_size_is_counted(capsys):
    with progress_bar(total=None, desc="Reading", unit=" tokens") as bar:
        bar.update(30)
    assert re.fullmatch(r"Reading: 30 \[00:00, .* tokens/s\]\n", capsys.readouterr().err)
