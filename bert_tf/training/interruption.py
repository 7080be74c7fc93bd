"""Stopping a run when its process is asked to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class StopRequest:
    """Whether SIGTERM, or Ctrl-C, has come since `listen`; a second one ends the process at once.

    Attributes:
        signal: the number of the signal that came, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Catches the two signals; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def on_signal(number: int, frame: object) -> None:
            self.signal = number
            for known, handler in before.items():
                signal.signal(known, handler)

        for number in before:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Interrupted(SystemExit):
    """Training has stopped, and saved, because a signal asked for it; the exit code says which."""

    def __init__(self, signal_number: int):
        super().__init__(128 + signal_number)
