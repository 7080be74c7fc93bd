"""What --help and --helpfull show."""

from dataclasses import dataclass

import pytest

from tfrecords import command
from tfrecords.command import option
from tfrecords.command_help import help_text

DOC = """Does it.

  python -m does.it --number=3

It does this.

It also does that.
"""


@dataclass(frozen=True, kw_only=True)
class Shared(command.Options):
    seed: int = option(1, help="Seed. Another sentence.", rare=True, aliases=("random_seed",))
    output_dir: str = option(help="Folder.")


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    kind: str = option("a", help="Which. More about it. Default: see above.", choices=("a", "b"))
    fast: bool = option(True, help="Hurry.")
    slow: bool = option(False, help="Wait.")
    number: int | None = option(None, help="How many " + "of these and " * 8 + "those.")


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
    assert text.count("\n  --") == 9
