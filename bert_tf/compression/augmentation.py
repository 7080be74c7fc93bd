"""More examples for a student: copies of texts in which words were replaced."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.compression.candidates import Glove, MaskedLM
from bert_tf.compression.precomputed import computed_once
from bert_tf.finetuning.examples import TextExamples
from tfrecords.progress import progress_bar

# The target that is 1 where the labels are those of the data, and 0 for the copies.
LABELED = "labeled"
MASK = "[MASK]"
_LONGEST_NGRAM = 5

Words = Sequence[str]


class Changes(NamedTuple):
    """What happens to a copy of a text.

    Attributes:
        replaced: the probability that a word is replaced with one of its candidates.
        masked: the probability that [MASK] replaces a word.
        sampled: the probability that only 1 to 5 successive words of the text are kept.
    """

    replaced: float
    masked: float = 0.0
    sampled: float = 0.0


# Source: TinyBERT (arXiv:1909.10351) algorithm 1 and section 4.2.
REPLACED = Changes(0.4)
# Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) sections 3.3 and 4.3.
MASKED_AND_SAMPLED = Changes(0.1, masked=0.1, sampled=0.25)


def change(
    words: Words, candidates: Sequence[Words], changes: Changes, random: np.random.Generator
) -> list[str]:
    """Returns a changed copy of a text, given the candidates for each word, if there are any."""
    copy = list(words)
    for place, draw in enumerate(random.random(len(words))):
        if draw < changes.masked:
            copy[place] = MASK
        elif draw < changes.masked + changes.replaced and len(candidates[place]):
            copy[place] = str(random.choice(candidates[place]))
    if random.random() < changes.sampled:
        length = random.integers(1, _LONGEST_NGRAM, endpoint=True)
        first = random.integers(0, max(1, len(copy) - length + 1))
        copy = copy[first : first + length]
    return copy


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Makes copies of examples; equal examples and seeds give equal copies.

    A resumed run reads the copies from its folder, because finding the words takes a long time.

    Args:
        model: finds the candidates of words that are one token.
        copies: the number of copies of each example. Those that equal the example or each other
            are left out.
        changes: what happens to the texts of a copy.
        glove: finds the candidates of other words; by default, they have none.
        run_folder: where the copies are kept; None to keep none.
    """

    model: MaskedLM
    copies: int
    changes: Changes
    seed: int
    glove: Glove | None = None
    run_folder: str | None = None

    def __call__(self, examples: TextExamples) -> TextExamples:
        """Returns the examples, followed by their copies, with the target `LABELED`."""
        columns = [texts for texts in (examples.texts_a, examples.texts_b) if texts is not None]
        candidates = self.model.fingerprint, self.glove and self.glove.fingerprint()
        inputs = candidates, self.copies, self.changes, self.seed, columns
        made = computed_once(self.run_folder, "copies", inputs, lambda: self._make(columns))
        copies = [_split(made[f"texts_{i}"], made[f"sizes_{i}"]) for i in range(len(columns))]
        return _joined(examples, copies, made["origins"])

    def _make(self, columns: Sequence[Sequence[bytes]]) -> dict[str, np.ndarray]:
        """Returns the copies: the indices of their originals, and the bytes and sizes of texts."""
        made: list[tuple[bytes, ...]] = []
        origins: list[int] = []
        rows = list(zip(*columns, strict=True))
        with progress_bar(total=len(rows), desc="Augmenting", unit="example", leave=False) as bar:
            for index, texts in enumerate(rows):
                copies = self._copies(index, texts)
                made += copies
                origins += [index] * len(copies)
                bar.update()
        arrays = {"origins": np.array(origins, np.int64)}
        for i in range(len(columns)):
            texts = [copy[i] for copy in made]
            arrays[f"texts_{i}"] = np.frombuffer(b"".join(texts), np.uint8)
            arrays[f"sizes_{i}"] = np.array([len(text) for text in texts], np.int64)
        return arrays

    def _copies(self, index: int, texts: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        """Returns the different copies of an example, a tuple of texts each."""
        random = np.random.default_rng([self.seed, index])
        read = [self.model.candidates(text, self.glove) for text in texts]
        original = tuple(" ".join(words) for words, _ in read)
        copies = dict.fromkeys(
            tuple(" ".join(change(*text, self.changes, random)) for text in read)
            for _ in range(self.copies)
        )
        copies.pop(original, None)
        return [tuple(text.encode() for text in copy) for copy in copies]


def _split(data: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    """Splits concatenated texts by their sizes in bytes."""
    ends, content = np.cumsum(sizes), data.tobytes()
    return [content[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _joined(
    examples: TextExamples, made: Sequence[list[bytes]], origins: np.ndarray
) -> TextExamples:
    """Returns the examples followed by the copies of those at `origins`."""
    copies = examples.take(origins)
    labeled = np.repeat([1.0, 0.0], [len(examples), len(origins)]).astype(np.float32)
    targets = {
        name: np.concatenate([values, copies.targets[name]])
        for name, values in examples.targets.items()
    }
    return TextExamples(
        examples.texts_a + made[0],
        examples.texts_b and examples.texts_b + made[1],
        targets | {LABELED: labeled},
        examples.ids and examples.ids + copies.ids,
        (*examples.notes, f"{len(origins):,} of them copies with other words"),
    )
