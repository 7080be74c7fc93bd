"""How well a vocabulary covers texts, counted in their tokens."""

from dataclasses import dataclass

import numpy as np

from tfrecords.vocabulary import Vocabulary, continues_word

# English words are 1.1 to 1.3 tokens in an English vocabulary, Finnish ones 1.9 in a multilingual
# one; in English ones, Russian words are 3.9 tokens, and 14% of Korean and 50% of Chinese [UNK].
_MOST_TOKENS, _MOST_UNKNOWN = 2.5, 0.05


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
        begins = [not continues_word(token) for token in vocab.tokens]
        return cls(int(counts[begins].sum()), int(counts[vocab.unk_id]), int(counts.sum()))

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
