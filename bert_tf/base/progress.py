"""Progress as a bar in a terminal or a notebook, and as lines elsewhere; nothing with --quiet."""

import contextlib
import contextvars
import importlib.util
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator

from tqdm import tqdm

from bert_tf.base.process import is_embedded

_SECONDS_BETWEEN_LINES = 10.0
_SHORTEST_BAR = 10  # columns
# A notebook does not tell its width, keeps every state of a bar, and has no line above another.
_IN_NOTEBOOK = {"ncols": 100, "mininterval": 1.0, "position": 0}
_UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60))
# In the environment, because processes that a command starts are as quiet as it is.
_QUIET = "BERT_TF_QUIET"
# Maps what `say` says, apart from commands to copy: functions of Python name arguments, not flags.
wording = contextvars.ContextVar("wording", default=str)


class _Bar(tqdm):
    """Leaves out the last details if the bar has too little room; the others stay whole."""

    def __str__(self) -> str:
        values = self.format_dict
        shown, _, details = values["bar_format"].partition(" [")
        details = details.removesuffix("{postfix}]").split(", ") + (self.postfix or "").split(", ")
        for count in range(len(details), -1, -1):
            kept = ", ".join(filter(None, details[:count]))
            values["bar_format"] = f"{shown} [{kept}]" if kept else shown
            others = values | {"bar_format": values["bar_format"].replace("{bar}", "")}
            if len(self.format_meter(**others)) + _SHORTEST_BAR <= (values["ncols"] or 100):
                break
        return self.format_meter(**values)


class _Lines(tqdm):
    """Writes a line now and then, for progress that goes to a file or a pipe."""

    _shown = 0

    def display(self, *_: object, **__: object) -> None:
        if self.n > self._shown:
            self._shown = self.n
            self.fp.write(f"{self}\n")
            self.fp.flush()

    def clear(self, *_: object, **__: object) -> None:
        """Lines stay."""

    def close(self) -> None:
        if not self.disable:
            if self._time() >= self.start_t + self.delay:
                self.display()
            self.disable = True
            self._decr_instances(self)


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun, such as "1 example" or "2,000 examples"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Returns a duration in its largest suitable unit, such as "2.5 hours"."""
    for unit, size in _UNITS:
        if seconds >= 1.5 * size:
            return f"{round(seconds / size, 1 if seconds < 10 * size else None):,} {unit}"
    return f"{seconds:.0f} seconds"


def progress_bar(
    *, total: float | None, desc: str = "", show_rate: bool = True, **arguments: object
) -> tqdm:
    """Returns a progress bar on standard error, a context manager.

    In a notebook, it is a widget if ipywidgets is installed, or else on standard output, as
    standard error is red there. In a file or a pipe, it is a line every ten seconds and one at the
    end; nothing with --quiet.
    `total` is the amount of work, in `unit`, or None. Other arguments are those of `tqdm`.
    """
    desc = f"{desc}: " if desc else ""
    rate = ", {rate_fmt}{postfix}]" if show_rate else "{postfix}]"
    times = "[{elapsed}<{remaining}" + rate
    if sys.stderr.isatty() or _is_notebook():
        layout = "{l_bar}{bar}| {n_fmt}/{total_fmt} " + times
        bar, pace = _Bar, {"dynamic_ncols": True}
        if _is_notebook():
            pace = _IN_NOTEBOOK | {"file": sys.stdout}
            if importlib.util.find_spec("ipywidgets"):
                from tqdm.notebook import tqdm as bar

                pace = {}
    else:
        layout = "{desc}{percentage:3.0f}% {n_fmt}/{total_fmt} " + times
        bar, pace = _Lines, {"mininterval": _SECONDS_BETWEEN_LINES, "miniters": 1}
        # With so few lines, a moving average would keep the slow first step for minutes.
        pace["smoothing"] = 0
    pace["bar_format"] = layout if total is not None else "{desc}{n_fmt} [{elapsed}" + rate
    if _is_quiet():
        arguments["disable"] = True
    return bar(total=total, desc=desc, **pace, **arguments)


def with_progress(
    batches: Iterable, desc: str, total: int | None = None, disable: bool = False
) -> tqdm:
    """Returns batches to iterate over, with a progress bar if they take more than five seconds."""
    shown = dict(total=total, desc=desc, unit="batch", leave=False, delay=5)
    return progress_bar(iterable=batches, disable=disable, **shown)


def be_quiet() -> None:
    """Leaves out progress, and what `say` says apart from warnings, from now on."""
    os.environ[_QUIET] = "1"


@contextlib.contextmanager
def quietly(wanted: bool) -> Iterator[None]:
    """Is as quiet as --quiet in the block, if `wanted`."""
    before = _is_quiet()
    if wanted:
        be_quiet()
    try:
        yield
    finally:
        if not before:
            os.environ.pop(_QUIET, None)


def shows_bars() -> bool:
    """Returns whether libraries should show progress bars."""
    return (sys.stderr.isatty() or _is_notebook()) and not _is_quiet()


def _is_notebook() -> bool:
    return type(sys.stderr).__module__.startswith("ipykernel.")


def _is_quiet() -> bool:
    return _QUIET in os.environ


def say(text: str, end: str = "\n") -> None:
    """Prints lines on standard output at once, and leaves progress bars intact.

    See `folded`. With --quiet, it prints only lines that begin with "WARNING: ". Print results
    with `print`.
    """
    lines = [x if "python -m" in x else wording.get()(x) for x in text.split("\n")]
    if _is_quiet():
        lines = [line for line in lines if line.startswith("WARNING: ")]
    if lines:
        # The text must be out before the bars are drawn again.
        with tqdm.external_write_mode():
            print(folded("\n".join(lines)), end=end, flush=True)


def for_caller(shell: str, python: str) -> str:
    """Returns the text for whoever called: a user of a command, or of a function of Python."""
    return python if is_embedded() else shell


def folded(text: str) -> str:
    """Returns a text in lines as wide as the terminal or notebook, broken at words.

    Indented lines and those with a command to copy stay whole, as does all that goes to a file.
    """
    if not (sys.stdout.isatty() or _is_notebook()):
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        line
        if line.startswith(" ") or "python -m" in line
        else textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
