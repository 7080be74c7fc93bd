"""Learns the tokens of a WordPiece vocabulary from counted words, or adds some to another one."""

import dataclasses
import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import VocabularyMapping
from tfrecords.vocabulary import MAX_CHARACTERS_PER_WORD, Vocabulary

# The most frequent characters, up to this share of the text, get a token. Words with any other
# character are [UNK]. Otherwise, rare foreign names in Wikipedia would take thousands of tokens.
_CHARACTER_COVERAGE = 0.9999
# The trainer reads text, not counts, so more words than this would take hours.
MAX_OCCURRENCES = 100_000_000
# A token that occurs, or that saves tokens, less often is left out.
MIN_FREQUENCY = 2
# As many as give [UNK] the id 100, as in the published vocabularies.
_UNUSED = [f"[unused{slot}]" for slot in range(99)]
_MAX_JOINED_TOKENS = 8
# The largest number of places for new tokens, at about 200 bytes each; the rarest words get none.
MAX_PLACES = 3_000_000
_WORDS_AT_ONCE = 100_000


def learn_vocabulary(
    words: Counter[str], vocab_size: int, max_occurrences: int = MAX_OCCURRENCES
) -> list[str]:
    """Returns the tokens of a BERT vocabulary, at most `vocab_size`, in the order of their ids.

    It takes normalized words, and how often they occur. A text of more than `max_occurrences` words
    is represented by an even, deterministic sample.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    reserved = ["[PAD]", *_UNUSED, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = _alphabet(words)
    words = Counter(
        {
            word: times
            for word, times in words.items()
            if len(word) <= MAX_CHARACTERS_PER_WORD and alphabet.issuperset(word)
        }
    )
    inner = sorted({character for word in words for character in word[1:]})
    # The trainer numbers "##x" in the random order of a hash table, and breaks ties between tokens
    # by number. As special tokens, they get fixed numbers, which makes the result deterministic.
    given = [*reserved, *sorted(alphabet), *(f"##{character}" for character in inner)]
    if len(given) > vocab_size:
        raise ValueError(
            f"--vocab_size={vocab_size} is too small: the special and [unused] tokens and the "
            f"characters of this text need {len(given)}"
        )
    one_in = max(1, -(-words.total() // max_occurrences))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=-(-MIN_FREQUENCY // one_in),
        special_tokens=given,
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(_repeat(_sample(words, one_in)), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _alphabet(words: Counter[str]) -> set[str]:
    """Returns the characters that get a token: frequent, and within the character coverage."""
    characters: Counter[str] = Counter()
    for word, times in words.items():
        for character in word:
            characters[character] += times
    room = characters.total() * (1 - _CHARACTER_COVERAGE)
    # Drops the rarest characters first. Code points break ties.
    for character, times in sorted(characters.items(), key=lambda item: (item[1], item[0])):
        room -= times
        if room < 0 and times >= MIN_FREQUENCY:
            break
        del characters[character]
    return set(characters)


def _sample(words: Counter[str], one_in: int) -> list[tuple[str, int]]:
    """Returns the sorted words, and how often each occurs in a sample of 1 in `one_in`."""
    # At even distances in the sorted text, so that rare words with the same beginning, which share
    # tokens, together get their fair share.
    ordered = sorted(words.items())
    taken = np.cumsum([0] + [times for _, times in ordered]) // one_in
    return [(word, times) for (word, _), times in zip(ordered, np.diff(taken), strict=True)]


def _repeat(words: list[tuple[str, int]], at_once: int = 1000) -> Iterator[str]:
    """Yields each word as often as it occurs, because the trainer takes text, not counts."""
    for word, times in words:
        whole, rest = divmod(times, at_once)
        for _ in range(whole):
            yield " ".join([word] * at_once)
        if rest:
            yield " ".join([word] * rest)


def choose_new_tokens(
    words: Counter[str], vocab: Vocabulary, num_tokens: int, lower_case: bool = True
) -> dict[str, tuple[int, ...]]:
    """Returns the tokens that shorten the text most, at most `num_tokens`, best first.

    Each is mapped to the ids of its tokens in the old vocabulary, or of [UNK].

    A new token replaces 2 to 8 adjacent tokens of a word, often the whole word. Its value is the
    number of tokens that it saves in the text; replacing an [UNK] counts as one. The algorithm is
    greedy: it takes the token with the highest value, updates the words that contain it, which
    lowers the values of other tokens, and repeats. Code points break ties. It never takes a token
    that saves fewer than `MIN_FREQUENCY` tokens. The words are normalized.
    """
    places = _Places()
    unknown: Counter[str] = Counter()
    for word, times, ids in _split_words(words, vocab, lower_case):
        if ids == (vocab.unk_id,):
            unknown[word] = times
        elif places.count < MAX_PLACES:
            places.add_word(word, times, ids, vocab)
    old_ids = places.old_ids | {word: (vocab.unk_id,) for word in unknown}

    def value_of(token: str) -> int:
        return unknown[token] + places.saved(token)

    chosen: dict[str, tuple[int, ...]] = {}
    # Values only fall, so the first entry of the heap is the best once its value is up to date.
    heap = [(-value_of(token), token) for token in old_ids]
    heapq.heapify(heap)
    while heap and len(chosen) < num_tokens:
        negative_value, token = heapq.heappop(heap)
        value = value_of(token)
        if value < MIN_FREQUENCY:
            continue
        if value < -negative_value:
            heapq.heappush(heap, (-value, token))
            continue
        chosen[token] = old_ids[token]
        places.join(token)
    return chosen


class _Places:
    """Words split into tokens, and the places where candidates for new tokens occur in them."""

    def __init__(self) -> None:
        self.count = 0
        self.old_ids: dict[str, tuple[int, ...]] = {}
        # For each candidate, the words that contain it, and its first character and end in each.
        self._places: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        # How often each word occurs, and for each of its characters, 1 if a token begins there.
        self._times: list[int] = []
        self._cuts: list[bytearray] = []

    def add_word(self, word: str, times: int, ids: tuple[int, ...], vocab: Vocabulary) -> None:
        starts = [0]
        for token_id in ids:
            starts.append(starts[-1] + len(vocab.tokens[token_id].removeprefix("##")))
        cuts = bytearray(len(word) + 1)
        for start in starts:
            cuts[start] = 1
        for first in range(len(ids)):
            for limit in range(first + 2, min(len(ids), first + _MAX_JOINED_TOKENS) + 1):
                token = ("##" if first else "") + word[starts[first] : starts[limit]]
                # The longest match at a position, and so these ids, are the same in every word.
                self.old_ids[token] = ids[first:limit]
                self._places[token].append((len(self._cuts), starts[first], starts[limit]))
                self.count += 1
        self._times.append(times)
        self._cuts.append(cuts)

    def saved(self, token: str) -> int:
        """Returns how many tokens of the text the candidate would save now."""
        return sum(
            self._times[word] * self._cuts[word].count(1, start + 1, limit)
            for word, start, limit in self._open(token)
        )

    def join(self, token: str) -> None:
        """Replaces adjacent tokens with the candidate wherever it still occurs."""
        for word, start, limit in self._open(token):
            self._cuts[word][start + 1 : limit] = bytes(limit - start - 1)

    def _open(self, token: str) -> Iterator[tuple[int, int, int]]:
        """Yields the places where the candidate still begins and ends with a token."""
        for word, start, limit in self._places.get(token, ()):
            if self._cuts[word][start] and self._cuts[word][limit]:
                yield word, start, limit


def _split_words(
    words: Counter[str], vocab: Vocabulary, lower_case: bool
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Yields the words that are several tokens or [UNK] with their ids, most frequent first."""
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    ordered = [item for item in ordered if len(item[0]) <= MAX_CHARACTERS_PER_WORD]
    for start in range(0, len(ordered), _WORDS_AT_ONCE):
        part = ordered[start : start + _WORDS_AT_ONCE]
        rows = tokenizer.tokenize_flat(tf.constant([word for word, _ in part])).to_list()
        for (word, times), ids in zip(part, rows, strict=True):
            if len(ids) > 1 or ids == [vocab.unk_id]:
                yield word, times, tuple(ids)


def extend(
    vocab: Vocabulary, new: Mapping[str, tuple[int, ...]], placement: str
) -> tuple[Vocabulary, VocabularyMapping]:
    """Returns the vocabulary with the new tokens, and what their embeddings start from.

    The placement "append" puts them after the last token; "unused" replaces [unused] tokens, which
    keeps the size.
    """
    tokens = [*vocab.lines, *vocab.tokens[len(vocab.lines) :]]
    if placement == "append":
        ids = range(len(tokens), len(tokens) + len(new))
        tokens += [""] * len(new)
    else:
        ids = [i for i, token in enumerate(tokens) if re.fullmatch(r"\[unused\d+\]", token)]
        if len(new) > len(ids):
            raise ValueError(
                f"the vocabulary has {len(ids)} [unused] tokens, fewer than the {len(new)} new "
                f"tokens: set --num_new_tokens={len(ids)}, or --placement=append"
            )
    new_tokens = dict(zip(ids, new, strict=False))
    for index, token in new_tokens.items():
        tokens[index] = token
    # Added tokens without a line now have one, so that their ids stay.
    extended = dataclasses.replace(vocab, lines=tuple(tokens))
    starts_from = dict(zip(ids, new.values(), strict=False))
    return extended, VocabularyMapping(len(vocab), len(extended), starts_from, new_tokens)
