"""Sums over pre-training records, as text and as a plot."""

import io
import os

import numpy as np

from bert_tf.base.output_files import atomic_write
from tfrecords.features import Layout
from tfrecords.vocabulary import Vocabulary

# If a larger share of the records has the same label, the label teaches nothing. With fewer records
# than this, that may be chance.
_ONE_SIDED = 0.9
_FEW_RECORDS = 10
# What `next_sentence_labels` 0 and 1 say of the second segment, by objective.
SEGMENT_LABELS = {"nsp": ("IsNext", "NotNext"), "sop": ("InOrder", "Swapped")}


def label_warning(positive: int, records: int, source: str = "the records") -> str | None:
    """Returns a warning if nearly all labels of the `source` are the same; `positive` are 1."""
    share = max(positive, records - positive) / max(1, records)
    if records < _FEW_RECORDS or share <= _ONE_SIDED:
        return None
    label, kind = (1, "random or swapped") if 2 * positive > records else (0, "a true neighbor")
    return (
        f"WARNING: in {share:.1%} of {source}, next_sentence_labels is {label} (the second segment "
        f"is {kind}), so predicting it teaches nothing. Train with --objective=mlm, or create "
        "the examples from documents of several sentences each."
    )


def prediction_warning(predictions: float, source: str = "the records") -> str | None:
    """Returns a warning if no token is predicted; `predictions` is the sum of the weights."""
    if predictions:
        return None
    return (
        f"WARNING: {source} predict no token, because all masked_lm_weights are 0: there is "
        "nothing for the masked LM to learn."
    )


class RecordStatistics:
    """Sums over records of one layout; a vocabulary distinguishes [MASK] from random tokens."""

    def __init__(self, layout: Layout, vocab: Vocabulary | None) -> None:
        self._layout = layout
        self._vocab = vocab
        # How many records have each length and each number of predictions.
        self._lengths = np.zeros(layout.max_seq_length + 1, np.int64)
        self._predictions = np.zeros(layout.max_predictions_per_seq + 1, np.int64)
        # How many masked tokens or, in dynamic records, word starts there are at each position.
        self._marked_at = np.zeros(layout.max_seq_length, np.int64)
        self._positive_labels = 0
        self._pairs = 0
        self._shown = {"[MASK]": 0, "a random token": 0, "itself": 0}

    def add(self, batch: dict[str, np.ndarray]) -> None:
        """Adds valid records [B, length] to the sums."""
        lengths = np.count_nonzero(batch["input_mask"], axis=1)
        self._lengths += np.bincount(lengths, minlength=len(self._lengths))
        self._positive_labels += int(batch["next_sentence_labels"].sum())
        self._pairs += int(batch["input_type_ids"].any(axis=1).sum())
        if self._layout.dynamic:
            self._marked_at += batch["word_starts"].sum(axis=0)
            return
        rows, slots = np.nonzero(batch["masked_lm_weights"])
        counts = np.bincount(rows, minlength=len(batch["input_mask"]))
        self._predictions += np.bincount(counts, minlength=len(self._predictions))
        positions = batch["masked_lm_positions"][rows, slots]
        self._marked_at += np.bincount(positions, minlength=len(self._marked_at))
        if self._vocab:
            shown = batch["input_word_ids"][rows, positions]
            masked = int(np.count_nonzero(shown == self._vocab.mask_id))
            kept = int(np.count_nonzero(shown == batch["masked_lm_ids"][rows, slots]))
            self._shown["[MASK]"] += masked
            self._shown["a random token"] += len(rows) - masked - kept
            self._shown["itself"] += kept

    def lines(self, names: tuple[str, str]) -> list[str]:
        """Returns the statistics as lines of text; `names` are those of the segments' labels."""
        records = int(self._lengths.sum())
        if not records:
            return ["no valid records"]
        length = self._layout.max_seq_length
        share = np.cumsum(self._lengths) / records
        quantiles = [int(np.searchsorted(share, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
        tokens = int(self._lengths @ np.arange(length + 1))
        mean = tokens / records
        lines = [
            f"records: {records:,}, {'dynamic' if self._layout.dynamic else 'masked'}, "
            f"{length} tokens each",
            f"fill: {mean / length:.2%} ({mean:.1f} tokens per record; "
            f"{self._lengths[-1] / records:.2%} of the records are full)",
            "length percentiles 5, 25, 50, 75, 95: " + ", ".join(map(str, quantiles)),
        ]
        if self._layout.dynamic:
            words = int(self._marked_at.sum())
            lines.append(f"words: {words / records:.1f} per record, masked while reading")
        else:
            total = int(self._marked_at.sum())
            lines.append(
                f"predictions: {total / records:.2f} per record, {total / tokens:.2%} of the "
                f"tokens; records with none: {self._predictions[0]:,}, with all "
                f"{self._layout.max_predictions_per_seq}: {self._predictions[-1]:,}"
            )
            lines += filter(None, [prediction_warning(total)])
            if self._vocab and total:
                shares = (f"{count / total:.2%} as {name}" for name, count in self._shown.items())
                lines.append(f"predicted tokens shown: {', '.join(shares)}")
        if self._pairs:
            lines.append(
                f"two segments: {self._pairs / records:.2%} of the records; "
                f"{names[1]} (next_sentence_labels 1): {self._positive_labels / records:.2%}"
            )
            lines += filter(None, [label_warning(self._positive_labels, records)])
        else:
            lines.append("one segment per record")
        return lines

    def plot(self, path: str, overwrite: bool) -> None:
        """Writes a figure of lengths, fill and masked positions, in the form of the extension."""
        # Imported here because it takes half a second and few runs plot.
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 4), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        left.bar(np.arange(len(self._lengths)), self._lengths, width=1)
        left.set(title="Lengths", xlabel="tokens per record", ylabel="records", yscale="log")
        # The records that are longer than p have a token at position p.
        records = self._lengths.sum()
        present = records - np.cumsum(self._lengths)[:-1]
        middle.plot(present / max(1, records))
        middle.set(title="Fill", xlabel="position", ylabel="share of records", ylim=(0, 1.05))
        title = "Word starts" if self._layout.dynamic else "Masked tokens"
        right.plot(self._marked_at / np.maximum(1, present))
        right.set(title=title, xlabel="position", ylabel="share of tokens at the position")
        right.set_ylim(bottom=0)
        image = io.BytesIO()
        figure.savefig(image, format=os.path.splitext(path)[1][1:] or "png")
        atomic_write(path, image.getvalue(), overwrite)
