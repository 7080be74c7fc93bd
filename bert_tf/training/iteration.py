"""Iterates over datasets without waiting for their threads to end."""

import contextlib
import threading
from collections.abc import Iterable, Iterator

from bert_tf.base.progress import progress_bar

_PATIENCE = 0.5  # seconds; to free an iterator usually takes a tenth of it


@contextlib.contextmanager
def open_iterator(dataset: Iterable) -> Iterator[list[Iterator]]:
    """Yields a list with an iterator over the dataset, which is freed at the end.

    The threads of `tf.data` sometimes take a minute to end; this waits half a second for them. The
    list is there so that the caller keeps no other reference to the iterator.
    """
    held = [iter(dataset)]
    try:
        yield held
    finally:
        # Not a daemon: if Python ended amid TensorFlow's code, the process would abort.
        release = threading.Thread(target=held.clear)
        release.start()
        release.join(_PATIENCE)


def iterate(dataset: Iterable) -> Iterator:
    """Yields the batches of a dataset, whose iterator is freed as by `open_iterator`."""
    with open_iterator(dataset) as held:
        while (batch := next(held[0], None)) is not None:
            yield batch


def with_progress(
    dataset: Iterable, desc: str, total: int | None = None, disable: bool = False
) -> Iterator:
    """Yields the batches as `iterate`, with a progress bar if they take more than five seconds."""
    bar = progress_bar(total=total, desc=desc, unit="batch", leave=False, delay=5, disable=disable)
    with bar:
        for batch in iterate(dataset):
            yield batch
            bar.update(1)
