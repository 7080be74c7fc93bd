"""Stops a run cleanly when its process receives SIGTERM or Ctrl-C."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from bert_tf.base.process import end_process, is_embedded

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Notes a first SIGTERM or Ctrl-C; a second one ends the process at once.

    In a process of the user's, which must not end, the second one raises a KeyboardInterrupt.

    `on_request` is called right after the first signal, in a thread of its own: the main thread may
    be inside TensorFlow, where Python handles no signals. `signal` is its number, or None.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.signal: int | None = None
        self._on_request = on_request
        self._raises = False
        self._noticed = self._handled = 0
        self._ends_process = not is_embedded()

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Catches the two signals. Does nothing outside the main thread, where it is impossible."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        watcher = threading.Thread(target=self._watch, args=(receiver,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            sender.close()
            watcher.join()
            receiver.close()

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raises `Interrupted` at a signal inside the context, for work that needs no saving."""
        self._raises = True
        try:
            if self.signal:
                raise Interrupted(self.signal)
            yield
        finally:
            self._raises = False

    def _on_signal(self, number: int, frame: object) -> None:
        self._handled += 1
        # Python handles several signals that arrive inside TensorFlow as one.
        if max(self._handled, self._noticed) > 1 and not self._ends_process:
            raise KeyboardInterrupt
        self.signal = self.signal or number
        if self._raises:
            raise Interrupted(self.signal)

    def _watch(self, receiver: socket.socket) -> None:
        while received := receiver.recv(1):
            number = received[0]
            if number not in _SIGNALS:
                continue
            self._noticed += 1
            if self._noticed > 1 and self._ends_process:
                end_process(128 + number)
            self.signal = self.signal or number
            if self._noticed == 1 and not self._raises:
                self._on_request()


class Interrupted(SystemExit):
    """A signal stopped training after a checkpoint; the exit code is 128 plus its number."""

    def __init__(self, signal_number: int):
        super().__init__(128 + signal_number)
