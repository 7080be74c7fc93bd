"""Stops a run cleanly when its process receives SIGTERM or Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class StopRequest:
    """Records a first SIGTERM or Ctrl-C; a second one ends the process at once.

    Attributes:
        signal: the number of the signal received while listening, or None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Catches the two signals. Does nothing outside the main thread, where it is impossible."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def on_signal(number: int, frame: object) -> None:
            self.signal = number
            for caught, handler in before.items():
                signal.signal(caught, handler)

        for number in before:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Interrupted(SystemExit):
    """A signal stopped training after a checkpoint; the exit code is 128 plus its number."""

    def __init__(self, signal_number: int):
        super().__init__(128 + signal_number)
