"""How well a vocabulary covers texts, counted in their tokens."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bert_tf.base.progress import say
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

# English words are 1.1 to 1.3 tokens in an English vocabulary, Finnish ones 1.9 in a multilingual
# one; in English ones, Russian words are 3.9 tokens, and 14% of Korean and 50% of Chinese [UNK].
_MOST_TOKENS, _MOST_UNKNOWN = 2.5, 0.05
_NUM_TEXTS = 1000
# Fewer may be names or mistyped.
_FEWEST_WORDS = 5


@dataclass(frozen=True)
class TokenCounts:
    """The numbers of words, among them those that became [UNK], and of their tokens."""

    words: int
    unknown: int
    tokens: int

    @classmethod
    def of(cls, ids: np.ndarray, vocab: Vocabulary) -> "TokenCounts":
        """Counts in the ids of tokens, int [N]; [CLS], [SEP] and [PAD] are no words."""
        counts = np.bincount(ids, minlength=len(vocab))
        counts[[vocab.cls_id, vocab.sep_id, vocab.pad_id]] = 0
        return cls(
            int(counts[[*vocab.begins_word]].sum()), int(counts[vocab.unk_id]), int(counts.sum())
        )

    def describe(self) -> str:
        """Returns the tokens per word and the share of [UNK]."""
        tokens, unknown = self.tokens / max(self.words, 1), self.unknown / max(self.words, 1)
        return f"{tokens:.1f} tokens per word, {unknown:.1%} [UNK]"

    def warning(self) -> str | None:
        """Returns a line for a vocabulary that does not suit the texts, or None."""
        few = self.tokens <= _MOST_TOKENS * self.words
        if few and self.unknown <= _MOST_UNKNOWN * self.words:
            return None
        return (
            f"WARNING: the vocabulary hardly covers these texts ({self.describe()}): use a "
            "checkpoint for their language"
        )


class CoverageCheck:
    """Warns if the first texts that a model reads are not those its vocabulary suits.

    Args:
        tokenizer: that of the model; None for one that has it inside, which is not checked.
    """

    def __init__(self, tokenizer: WordPieceTokenizer | None):
        self._tokenizer, self._is_done = tokenizer, tokenizer is None

    def __call__(self, texts: Iterable[str | bytes]) -> None:
        """Checks up to 1,000 texts; does nothing once they had a few words."""
        if self._is_done:
            return
        first = [*itertools.islice(texts, _NUM_TEXTS)]
        ids = self._tokenizer.tokenize_flat(np.array(first, object)).flat_values.numpy()
        counts = TokenCounts.of(ids, self._tokenizer.vocab)
        self._is_done = counts.words >= _FEWEST_WORDS
        if self._is_done and (warning := counts.warning()):
            say(warning)
