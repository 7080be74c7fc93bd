"""Iterators are freed without waiting. Oracles: events; the list's own elements."""

import threading

from bert_tf.base.progress import progress_bar
from bert_tf.training import iteration
from bert_tf.training.iteration import with_progress


class _SlowToFree:
    """An iterator that is freed only when `allowed` is set."""

    def __init__(self):
        self.allowed, self.freed = threading.Event(), threading.Event()

    def __iter__(self):
        return _Numbers(self.allowed, self.freed)


class _Numbers:
    def __init__(self, allowed, freed):
        self._left, self._allowed, self._freed = iter([1, 2, 3]), allowed, freed

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._left)

    def __del__(self):
        self._allowed.wait(60)
        self._freed.set()


def test_nobody_waits_for_an_iterator_that_is_slow_to_free():
    dataset = _SlowToFree()
    batches = with_progress(dataset, "Predicting", disable=True)
    assert [next(batches), next(batches)] == [1, 2]
    batches.close()
    assert not dataset.freed.is_set()
    dataset.allowed.set()
    assert dataset.freed.wait(60)


def test_slow_batches_have_a_progress_bar(monkeypatch, capsys):
    """Oracle: the batches, and a line that counts them."""
    assert list(with_progress([1, 2, 3], "Predicting", total=3)) == [1, 2, 3]
    assert not capsys.readouterr().err
    monkeypatch.setattr(iteration, "progress_bar", lambda **how: progress_bar(**how | {"delay": 0}))
    assert list(with_progress([1, 2, 3], "Predicting", total=3)) == [1, 2, 3]
    assert "Predicting: 100% 3/3" in capsys.readouterr().err
    assert list(with_progress([1], "Predicting", disable=True)) == [1]
    assert not capsys.readouterr().err
