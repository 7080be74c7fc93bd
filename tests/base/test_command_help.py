"""What --help and --helpfull show, and commands as users type them."""

import shlex
import textwrap
from dataclasses import dataclass

import pytest

from bert_tf.base import command
from bert_tf.base.command import option, rare_option
from bert_tf.base.command_help import command_line, help_text, python_call, unused_name, wrapped

DOC = """Does it.

  python -m does.it --number=3

It does this.

It also does that.
"""


@dataclass(frozen=True, kw_only=True)
class Shared(command.Options):
    seed: int = rare_option(1, "Seed. Another sentence.", aliases=("random_seed",))
    output_dir: str = option(help="Folder.")


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    kind: str = option("a", "Which. More about it. Default: see above.", choices=("a", "b"))
    fast: bool = option(True, "Hurry.")
    slow: bool = option(False, "Wait.")
    number: int | None = option(None, "How many " + "of these and " * 8 + "those.")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def test_help_is_short():
    """Oracle: worked by hand. Required flags come first, then those of the class itself."""
    assert (
        help_text(DOC, Options, full=False)
        == """Does it.

  python -m does.it --number=3

It does this.

Flags:
  --output_dir=VALUE        Folder. Required.
  --kind=a|b                Which. Default: see above. Default: a.
  --[no]fast                Hurry. Default: true.
  --slow                    Wait.
  --number=N                How many of these and of these and of these and of these and of these
                            and of these and of these and of these and those.

--helpfull says more, and lists all flags."""
    )


def test_helpfull_is_complete():
    """Oracle: the docstring, and each flag's help, default and alias; no flags of a library."""
    text = help_text(DOC, Options, full=True)
    assert text.startswith(DOC)
    for line in (
        "  --kind=a|b                Which. More about it. Default: see above. Default: a.",
        "  --seed=N                  Seed. Another sentence. Default: 1. Also: --random_seed.",
        "  --quiet                   Print only warnings, errors and results.",
    ):
        assert f"\n{line}\n" in text
    assert text.count("\n  --") == 10


@pytest.mark.parametrize("columns", ["40", "60", "80", "99", "nonsense", "-1", "1000"])
def test_help_is_as_wide_as_the_terminal(columns, monkeypatch):
    """Oracles: the words, and the examples as they are; 100 columns at most."""
    monkeypatch.setenv("COLUMNS", columns)
    text = help_text(LONG, Options, full=True)
    width = int(columns) if columns in ("40", "60", "80", "99") else 100
    examples = LONG.splitlines()[2:4]
    assert "\n".join(examples) in text
    others = [line for line in text.splitlines() if line not in examples]
    assert 0.8 * width < max(map(len, others)) <= width
    monkeypatch.setenv("COLUMNS", "100")
    assert text.split() == help_text(LONG, Options, full=True).split()


LONG = f"""Does it.

  python -m does.it --number=3 --name_of_a_file=a-long-name --another=another-long-name \\
    --and_so_on

It does {"this or that --some_flag=a-b, " * 5}
and more.

Kinds:
  first   {"what it is " * 6}
          continued
  second-and-last
          below
- {"a point " * 14}
- another
"""


def test_joined_lines_are_those_of_one_paragraph():
    """Oracle: the lines of the same text by textwrap, for prose; rows and points by hand."""
    prose = "some words of a paragraph " * 20
    assert wrapped(textwrap.fill(prose, 50)) == textwrap.fill(prose, 100)
    text = "Kinds:\n  one  a\n       b\n  two  c\n- d\n- e\n\n  python x \\\n    -y\n"
    assert wrapped(text) == text.replace("\n       b", " b")


def test_a_command_survives_the_shell():
    """Oracle: shlex, which splits as a POSIX shell does."""
    line = command_line(
        "a.b", "two words", file="it's my text*.txt", count=3, fast=True, cased=False, nothing=None
    )
    flags = ["--file=it's my text*.txt", "--count=3", "--fast", "--nocased"]
    assert shlex.split(line) == ["python", "-m", "a.b", *flags, "two words"]


def test_a_call_can_be_copied():
    """Oracle: by hand."""
    call = python_call("pretrain", input_file="it's.txt", steps=3, strategy=None)
    assert call == """bert_tf.pretrain(input_file="it's.txt", steps=3)"""


def test_unused_names_keep_their_suffix(tmp_path, monkeypatch):
    """Oracle: the files that exist."""
    monkeypatch.chdir(tmp_path)
    assert unused_name("run.v1.txt") == "run.v1.txt"
    for name in ("run", "data.tfrecord", "data-2.tfrecord"):
        (tmp_path / name).touch()
    assert (unused_name("run"), unused_name("data.tfrecord")) == ("run-2", "data-3.tfrecord")
