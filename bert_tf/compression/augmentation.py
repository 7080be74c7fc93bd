"""More examples for a student: copies of texts in which words were replaced."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from bert_tf.base.progress import progress_bar
from bert_tf.compression.candidates import Glove, MaskedLM
from bert_tf.compression.compression_options import CompressionOptions
from bert_tf.compression.precomputed import computed_once
from bert_tf.finetuning.examples import TextExamples
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.vocabulary import MASK

# The target that is 1 where the labels are those of the data, and 0 for the copies.
LABELED = "labeled"
_LONGEST_NGRAM = 5

Words = Sequence[str]


class Changes(NamedTuple):
    """The probabilities of what happens to a copy of a text.

    `replaced` is that a word becomes one of its candidates, `masked` that it becomes [MASK], and
    `sampled` that only 1 to 5 successive words of the text are kept.
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

    Of the `copies` of an example, those that equal it or each other are left out. `model` finds the
    candidates of words that are one token, and `glove` those of other words, if it is given.
    """

    model: MaskedLM
    copies: int
    changes: Changes
    seed: int
    run_folder: str
    glove: Glove | None = None

    @classmethod
    def of(cls, options: CompressionOptions, changes: Changes, teacher: Checkpoint) -> Self | None:
        """Returns what the flags ask for; None without --augment."""
        if not options.augment:
            return None
        model = MaskedLM(options.masked_lm, options.max_seq_length)
        if teacher.spec.lower_case is False and model.lower_case:
            raise ValueError(
                f"--masked_lm={options.masked_lm} lower-cases text, which the teacher does not: "
                "give a model that does not either"
            )
        glove = Glove(options.glove_file) if options.glove_file else None
        seed, folder = options.random_seed, options.output_dir
        return cls(model, options.augment, changes, seed, folder, glove)

    def __call__(self, examples: TextExamples) -> TextExamples:
        """Returns the examples, followed by their copies, with the target `LABELED`."""
        columns = [texts for texts in (examples.texts_a, examples.texts_b) if texts is not None]
        candidates = self.model.fingerprint, self.glove and self.glove.fingerprint()
        inputs = self.copies, self.changes, self.seed, candidates, columns
        made = computed_once(self.run_folder, "copies", inputs, lambda: self._make(columns))
        origins = made["origins"]
        # Without copies, there is not even an empty line.
        texts = [
            made[f"texts_{i}"].tobytes().split(b"\n")[: len(origins)] for i in range(len(columns))
        ]
        copies = examples.take(origins)
        targets = {
            name: np.concatenate([values, copies.targets[name]])
            for name, values in examples.targets.items()
        }
        labeled = np.repeat([1.0, 0.0], [len(examples), len(origins)]).astype(np.float32)
        return TextExamples(
            examples.texts_a + texts[0],
            examples.texts_b and examples.texts_b + texts[1],
            targets | {LABELED: labeled},
            examples.ids and examples.ids + copies.ids,
            (*examples.notes, f"{len(origins):,} of them copies with other words"),
        )

    def _make(self, columns: Sequence[Sequence[bytes]]) -> dict[str, np.ndarray]:
        """Returns the copies: the indices of their originals, and the bytes of texts as lines."""
        made: list[tuple[bytes, ...]] = []
        origins: list[int] = []
        rows = list(zip(*columns, strict=True))
        with progress_bar(total=len(rows), desc="Augmenting", unit="example", leave=False) as bar:
            for index, texts in enumerate(rows):
                random = np.random.default_rng([self.seed, index])
                read = [self.model.candidates(text, self.glove) for text in texts]
                copies = dict.fromkeys(
                    tuple(" ".join(change(*text, self.changes, random)) for text in read)
                    for _ in range(self.copies)
                )
                copies.pop(tuple(" ".join(words) for words, _ in read), None)
                made += [tuple(text.encode() for text in copy) for copy in copies]
                origins += [index] * len(copies)
                bar.update()
        arrays = {"origins": np.array(origins, np.int64)}
        for i in range(len(columns)):
            lines = b"\n".join(copy[i] for copy in made)
            arrays[f"texts_{i}"] = np.frombuffer(lines, np.uint8)
        return arrays
