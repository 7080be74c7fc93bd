"""More examples for a student: copies of texts in which other words, found here, stand for some."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf

from bert_tf.base.content import estimate_content_bytes, read_lines
from bert_tf.base.progress import counted, progress_bar, say
from bert_tf.compression.compression_options import CompressionOptions
from bert_tf.compression.recipes import RECIPES
from bert_tf.compression.run_files import computed_once
from bert_tf.finetuning.examples import TextExamples
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import Checkpoint, fingerprint, load_weights
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import resolve_vocab
from tfrecords.vocabulary import MASK

# Source: TinyBERT (arXiv:1909.10351) section 4.2, for neighbors and for words of the masked LM.
CANDIDATES = 15


class Glove:
    """Finds the 15 words whose vectors have the largest cosine with that of a word.

    Each line of the file holds a word and the numbers of its vector, separated by spaces; words
    may contain spaces, too. If a word occurs twice, its first vector counts. Words that are not
    UTF-8, vectors of zeros only and blank lines are left out. The vectors stay in memory, with 4
    bytes per number. The file may be compressed with gzip, bzip2, xz or zstd.

    Source: TinyBERT (arXiv:1909.10351) algorithm 1.
    """

    def __init__(self, path: str):
        self._rows: dict[str, int] = {}
        self._found: dict[str, list[str]] = {}
        # It grows in place, so that memory never holds all vectors twice.
        values, size, left_out = bytearray(), 0, 0
        for number, line in enumerate(_lines(path), start=1):
            fields = line.split()
            if not fields:
                continue
            size = size or len(fields) - 1
            vector = _numbers(fields[-size:])
            if not 1 < size < len(fields) or not np.isfinite(vector).all():
                raise ValueError(
                    f"{path}, line {number:,} must hold a word and finite numbers, as many as the "
                    "first line: correct it, or delete it if it is a header"
                )
            length = np.linalg.norm(vector)
            word = b" ".join(fields[:-size]).decode(errors="replace")
            if not length or "\ufffd" in word or word in self._rows:
                left_out += 1
                continue
            self._rows[word] = len(self._rows)
            values += np.array(vector / length, np.float32).tobytes()
        if not self._rows:
            raise ValueError(f"{path} holds no word vectors: give a file in GloVe's format")
        self._words = list(self._rows)
        self._vectors = np.frombuffer(values, np.float32).reshape(-1, size)
        others = f"; {counted(left_out, 'line')} left out" if left_out else ""
        say(f"Read {len(self._rows):,} word vectors of {size} numbers from {path}{others}.")

    def fingerprint(self) -> str:
        """Returns a checksum of the words and vectors."""
        digest = hashlib.sha256(self._vectors.reshape(-1))
        digest.update("\n".join(self._words).encode())
        return digest.hexdigest()

    def neighbors(self, word: str) -> list[str]:
        """Returns the nearest other words, the nearest and, if equal, first in the file first."""
        row = self._rows.get(word)
        if row is None:
            return []
        if word in self._found:
            return self._found[word]
        count = min(CANDIDATES, len(self._words) - 1)
        # Not a matrix product, which rounds equal rows differently, depending on their places.
        cosines = np.einsum("ij,j->i", self._vectors, self._vectors[row])
        cosines[row] = -np.inf
        near = np.flatnonzero(cosines >= np.partition(cosines, -count)[-count])
        order = np.argsort(-cosines[near], kind="stable")[:count]
        self._found[word] = [self._words[index] for index in near[order]]
        return self._found[word]


def _lines(path: str) -> Iterator[bytes]:
    shown = dict(desc="Reading vectors", unit="B", unit_scale=True, leave=False, delay=5)
    with progress_bar(total=estimate_content_bytes([path]), **shown) as bar:
        for part in read_lines(path):
            yield from part.removesuffix(b"\n").split(b"\n")
            bar.update(len(part))


def _numbers(fields: Sequence[bytes]) -> np.ndarray:
    """Returns fields as numbers, float64; NaN if one of them is not a number."""
    try:
        return np.array(list(map(float, fields)))
    except ValueError:
        return np.array(np.nan)


class MaskedLM:
    """Finds the 15 likeliest words for each word of a text that is one token.

    As in the code of TinyBERT's authors, each word is masked alone, in the unchanged text. Words
    beyond `max_seq_length` tokens have no candidates. `fingerprint` is a checksum of everything
    that determines the candidates.
    """

    def __init__(self, path: str, max_seq_length: int):
        checkpoint = open_checkpoint(path)
        if "masked_lm" not in checkpoint.parts:
            raise ValueError(
                f"--masked_lm={path} has no masked-LM head, which predicts the words: give a run "
                "of run_pretraining, or another checkpoint with such a head"
            )
        vocab, self.lower_case = resolve_vocab(checkpoint)
        self._tokenizer = WordPieceTokenizer(vocab, self.lower_case)
        positions = checkpoint.spec.config.max_position_embeddings
        self._room = min(max_seq_length, positions) - 2
        self.fingerprint = f"{fingerprint(checkpoint)}, {self._room} tokens"
        self._model = BertPretrainer(checkpoint.spec.config)
        optional = ("pooler", "next_sentence")
        load_weights(checkpoint.path, checkpoint.tensors, self._model.weights, None, optional)
        # Special and unused tokens are not words.
        special = [len(token) > 1 and token.startswith("[") for token in vocab.tokens]
        words = np.flatnonzero(self._tokenizer.starts_word & ~np.array(special)).astype(np.int32)
        self._predict = tf.function(
            lambda ids, positions: _likeliest(self._model, ids, positions, words),
            autograph=False,
            reduce_retracing=True,
        )

    def candidates(
        self, text: bytes, glove: Glove | None = None
    ) -> tuple[list[str], list[list[str]]]:
        """Returns the normalized words of a text, and the candidates of each word.

        Words that are several tokens or [UNK] have the candidates of `glove`, or none without it.
        """
        vocab = self._tokenizer.vocab
        words = [word.decode() for word in self._tokenizer.words([text])[0].numpy()]
        found: list[list[str]] = [[] for _ in words]
        pieces = self._tokenizer.tokenize([text])[0]
        ids, starts = pieces.values.numpy()[: self._room], pieces.row_starts().numpy()
        read = np.flatnonzero(starts < len(ids))
        known = ids[starts[read]] != vocab.unk_id
        is_single = (pieces.row_lengths().numpy()[read] == 1) & known
        if glove:
            for word in read[~is_single]:
                found[word] = glove.neighbors(words[word])
        single = read[is_single]
        if not len(single):
            return words, found
        masked = np.repeat([[vocab.cls_id, *ids, vocab.sep_id]], len(single), axis=0)
        positions = starts[single] + 1
        masked[np.arange(len(single)), positions] = vocab.mask_id
        best = self._predict(tf.constant(masked, tf.int32), tf.constant(positions, tf.int32))
        for word, chosen in zip(single, best.numpy(), strict=True):
            found[word] = [vocab.tokens[token] for token in chosen]
        return words, found


def _likeliest(
    model: BertPretrainer, ids: tf.Tensor, positions: tf.Tensor, words: np.ndarray
) -> tf.Tensor:
    """Returns the likeliest of the tokens `words` at one position of every row, int32 [N, 15]."""
    inputs = {
        "input_word_ids": ids,
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
        "masked_lm_positions": positions[:, tf.newaxis],
    }
    logits = tf.gather(model(inputs, training=False)["mlm_logits"][:, 0], words, axis=1)
    best = tf.math.top_k(logits, min(CANDIDATES, len(words))).indices
    return tf.gather(words, best)


# The target that is 1 where the labels are those of the data, and 0 for the copies.
LABELED = "labeled"
_LONGEST_NGRAM = 5

Words = Sequence[str]


class Changes(NamedTuple):
    """The probabilities of what happens to a copy of a text."""

    replaced: float  # that a word becomes one of its candidates
    masked: float = 0.0  # that it becomes [MASK]
    sampled: float = 0.0  # that only 1 to 5 successive words of the text are kept


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

    A resumed run reads the copies from its folder, because finding the words takes a long time. Of
    the `copies` of an example, those that equal it or each other are left out. `model` finds the
    candidates of words that are one token, and `glove` those of other words, if it is given.
    """

    model: MaskedLM
    copies: int
    changes: Changes
    seed: int
    run_folder: str
    glove: Glove | None = None

    @classmethod
    def of(cls, options: CompressionOptions, teacher: Checkpoint) -> Self | None:
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
        changes = MASKED_AND_SAMPLED if RECIPES[options.recipe].samples else REPLACED
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
