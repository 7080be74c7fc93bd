"""Sums over pre-training records, in words and as a plot."""

import io
import os

import numpy as np

from tfrecords.features import Layout
from tfrecords.vocabulary import Vocabulary
from tfrecords.writer import atomic_write


class Statistics:
    """Sums over records of one layout; `vocab`, where known, tells [MASK] from random pieces."""

    def __init__(self, layout: Layout, vocab: Vocabulary | None):
        self._layout = layout
        self._vocab = vocab
        self.lengths = np.zeros(layout.max_seq_length + 1, np.int64)
        self.predictions = np.zeros(layout.max_predictions_per_seq + 1, np.int64)
        # Where a masked piece is or, in dynamic records, where a word starts.
        self.marked_at = np.zeros(layout.max_seq_length, np.int64)
        self.labels_of_one = 0
        self.two_segments = 0
        self.shown_as = {"[MASK]": 0, "a random piece": 0, "itself": 0}

    @property
    def records(self) -> int:
        return int(self.lengths.sum())

    @property
    def tokens(self) -> int:
        return int(self.lengths @ np.arange(len(self.lengths)))

    def add(self, batch: dict[str, np.ndarray]) -> None:
        """Counts in records [B, length] that are without fault."""
        lengths = np.count_nonzero(batch["input_mask"], axis=1)
        self.lengths += np.bincount(lengths, minlength=len(self.lengths))
        self.labels_of_one += int(batch["next_sentence_labels"].sum())
        self.two_segments += int(batch["input_type_ids"].any(axis=1).sum())
        if self._layout.dynamic:
            self.marked_at += batch["word_starts"].sum(axis=0)
            return
        rows, slots = np.nonzero(batch["masked_lm_weights"])
        counts = np.bincount(rows, minlength=len(lengths))
        self.predictions += np.bincount(counts, minlength=len(self.predictions))
        positions = batch["masked_lm_positions"][rows, slots]
        self.marked_at += np.bincount(positions, minlength=len(self.marked_at))
        if self._vocab:
            shown = batch["input_word_ids"][rows, positions]
            masked = int(np.count_nonzero(shown == self._vocab.mask_id))
            kept = int(np.count_nonzero(shown == batch["masked_lm_ids"][rows, slots]))
            for name, count in zip(
                self.shown_as, (masked, len(rows) - masked - kept, kept), strict=True
            ):
                self.shown_as[name] += count

    def lines(self) -> list[str]:
        """What there is to say, a line each."""
        if not self.records:
            return ["no sound records"]
        length = self._layout.max_seq_length
        share = np.cumsum(self.lengths) / self.records
        quantiles = [int(np.searchsorted(share, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
        mean = self.tokens / self.records
        lines = [
            f"records: {self.records:,}, {'dynamic' if self._layout.dynamic else 'masked'}, "
            f"of {length} pieces",
            f"fill: {mean / length:.2%} ({mean:.1f} pieces a record; "
            f"{self.lengths[-1] / self.records:.2%} of the records are full)",
            "lengths at 5, 25, 50, 75, 95 %: " + ", ".join(map(str, quantiles)),
        ]
        if self._layout.dynamic:
            words = int(self.marked_at.sum())
            lines.append(f"words: {words / self.records:.1f} a record, masked when they are read")
        else:
            lines += self._lines_of_predictions()
        if self.two_segments:
            lines.append(
                f"two segments: {self.two_segments / self.records:.2%} of the records; "
                f"next_sentence_labels 1: {self.labels_of_one / self.records:.2%}"
            )
        else:
            lines.append("one segment in each record")
        return lines

    def _lines_of_predictions(self) -> list[str]:
        total = int(self.predictions @ np.arange(len(self.predictions)))
        lines = [
            f"predictions: {total / self.records:.2f} a record, {total / self.tokens:.2%} of the "
            f"pieces; {self.predictions[0]:,} records have none, {self.predictions[-1]:,} all "
            f"{self._layout.max_predictions_per_seq}"
        ]
        if self._vocab and total:
            shares = (f"{count / total:.2%} as {name}" for name, count in self.shown_as.items())
            lines.append(f"shown: {', '.join(shares)}")
        return lines

    def plot(self, path: str) -> None:
        """Writes a picture of lengths, fill and mask positions; its ending says the format.

        Raises:
            ValueError: the ending is no format of a picture.
            OSError: the file cannot be written.
        """
        # Half a second to import, for few.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 4), layout="constrained")
        FigureCanvasAgg(figure)
        left, middle, right = figure.subplots(1, 3)
        left.bar(np.arange(len(self.lengths)), self.lengths, width=1)
        left.set(title="Lengths", xlabel="pieces in a record", ylabel="records", yscale="log")
        # At position p are the records longer than p.
        present = self.records - np.cumsum(self.lengths)[:-1]
        middle.plot(present / max(1, self.records))
        middle.set(title="Fill", xlabel="position", ylabel="share of records", ylim=(0, 1.05))
        what = "word starts" if self._layout.dynamic else "masked pieces"
        right.plot(self.marked_at / np.maximum(1, present))
        right.set(title=what.capitalize(), xlabel="position", ylabel="share of the pieces there")
        right.set_ylim(bottom=0)
        ending = os.path.splitext(path)[1][1:] or "png"
        picture = io.BytesIO()
        figure.savefig(picture, format=ending)
        atomic_write(path, picture.getvalue())
