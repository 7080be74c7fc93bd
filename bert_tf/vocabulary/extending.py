"""Adds the words and pieces of a domain to a published vocabulary."""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.growing import VocabularyMapping
from tfrecords.vocabulary import Vocabulary

PLACEMENTS = ("append", "unused")
_MAX_CHARACTERS_PER_WORD = 200
_MAX_PIECES_JOINED = 8
# Places in words that a new token could take; some 200 bytes each. The rarest words go without.
MAX_PLACES = 3_000_000
_WORDS_AT_ONCE = 100_000


@dataclass(frozen=True)
class NewToken:
    """A token to add. `old_ids` is how the old vocabulary spells it, [UNK] where it cannot."""

    token: str
    old_ids: tuple[int, ...]


def choose_tokens(
    words: Counter[str],
    vocab: Vocabulary,
    num_tokens: int,
    lower_case: bool = True,
    min_frequency: int = 2,
) -> list[NewToken]:
    """The tokens that shorten the text most, at most `num_tokens`, the most useful first.

    A new token stands for 2 to 8 neighbouring pieces of a word, often for all of it. It is worth
    the pieces it saves in the text, [UNK]s cured included. The best is taken, the words that hold
    it become shorter, what the others are worth falls accordingly, and the next best is taken; code
    points decide among equals. A token that saves fewer than `min_frequency` pieces is not taken.
    """
    places = _Places()
    unknown: Counter[str] = Counter()
    for word, times, ids in _split_words(words, vocab, lower_case):
        if ids == (vocab.unk_id,):
            unknown[word] = times
        elif places.count < MAX_PLACES:
            places.add_word(word, times, ids, vocab)
    old_ids = places.old_ids | {word: (vocab.unk_id,) for word in unknown}

    def worth(token: str) -> int:
        return unknown[token] + places.saved(token)

    chosen: list[NewToken] = []
    # What a token is worth only falls: when the first of the heap is up to date, it is the best.
    heap = [(-worth(token), token) for token in old_ids]
    heapq.heapify(heap)
    while heap and len(chosen) < num_tokens:
        promised, token = heapq.heappop(heap)
        value = worth(token)
        if value < min_frequency:
            continue
        if value < -promised:
            heapq.heappush(heap, (-value, token))
            continue
        chosen.append(NewToken(token, old_ids[token]))
        places.join(token)
    return chosen


class _Places:
    """Words cut into pieces, and where in them the candidates for new tokens stand."""

    def __init__(self) -> None:
        self.count = 0
        self.old_ids: dict[str, tuple[int, ...]] = {}
        # For each candidate the words it occurs in, and its first character there and its limit.
        self._places: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        # For each word its occurrences, and for each of its characters 1 if a piece begins there.
        self._times: list[int] = []
        self._cuts: list[bytearray] = []

    def add_word(self, word: str, times: int, ids: tuple[int, ...], vocab: Vocabulary) -> None:
        starts = [0]
        for piece in ids:
            starts.append(starts[-1] + len(vocab.tokens[piece].removeprefix("##")))
        cuts = bytearray(len(word) + 1)
        for start in starts:
            cuts[start] = 1
        for first in range(len(ids)):
            for limit in range(first + 2, min(len(ids), first + _MAX_PIECES_JOINED) + 1):
                token = ("##" if first else "") + word[starts[first] : starts[limit]]
                # The longest match from a place on is the same in every word.
                self.old_ids[token] = ids[first:limit]
                self._places[token].append((len(self._cuts), starts[first], starts[limit]))
                self.count += 1
        self._times.append(times)
        self._cuts.append(cuts)

    def saved(self, token: str) -> int:
        """How many pieces of the text the token would save now."""
        return sum(
            self._times[word] * self._cuts[word].count(1, start + 1, limit)
            for word, start, limit in self._open(token)
        )

    def join(self, token: str) -> None:
        """Makes the pieces that the token stands for one piece."""
        for word, start, limit in self._open(token):
            self._cuts[word][start + 1 : limit] = bytes(limit - start - 1)

    def _open(self, token: str) -> Iterator[tuple[int, int, int]]:
        """The places where the token still begins and ends with a piece."""
        for word, start, limit in self._places.get(token, ()):
            if self._cuts[word][start] and self._cuts[word][limit]:
                yield word, start, limit


def _split_words(
    words: Counter[str], vocab: Vocabulary, lower_case: bool
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Words that the vocabulary splits or lacks, frequent ones first, with their ids."""
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    ordered = [item for item in ordered if len(item[0]) <= _MAX_CHARACTERS_PER_WORD]
    for start in range(0, len(ordered), _WORDS_AT_ONCE):
        part = ordered[start : start + _WORDS_AT_ONCE]
        rows = tokenizer.tokenize_flat(tf.constant([word for word, _ in part])).to_list()
        for (word, times), ids in zip(part, rows, strict=True):
            if len(ids) > 1 or ids == [vocab.unk_id]:
                yield word, times, tuple(ids)


def extend(
    vocab: Vocabulary, new: list[NewToken], placement: str
) -> tuple[Vocabulary, VocabularyMapping]:
    """The vocabulary with the new tokens, and what the embeddings of these start from.

    Args:
      placement: "append" after the last token, or "unused": in place of [unused] tokens, so that
        the size stays.

    Raises:
      ValueError: there are more new tokens than [unused] ones.
    """
    tokens = list(vocab.tokens)
    if placement == "append":
        ids = range(len(tokens), len(tokens) + len(new))
        tokens += [""] * len(new)
    else:
        ids = [i for i, token in enumerate(tokens) if re.fullmatch(r"\[unused\d+\]", token)]
        if len(new) > len(ids):
            raise ValueError(
                f"the vocabulary has {len(ids)} [unused] tokens, fewer than --num_new_tokens="
                f"{len(new)}: ask for {len(ids)}, or take --placement=append"
            )
    starts_from = {}
    for index, item in zip(ids, new, strict=False):
        tokens[index] = item.token
        starts_from[index] = item.old_ids
    extended = Vocabulary(tuple(tokens))
    return extended, VocabularyMapping(len(vocab), len(extended), starts_from)
