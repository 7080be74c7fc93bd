"""Learns the tokens of a WordPiece vocabulary from counted words."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from tfrecords.vocabulary import MAX_CHARACTERS_PER_WORD

# The most frequent characters, up to this share of the text, get a token. Words with any other
# character are [UNK]. Otherwise, rare foreign names in Wikipedia would take thousands of tokens.
_CHARACTER_COVERAGE = 0.9999
# The trainer reads text, not counts, so more words than this would take hours.
MAX_OCCURRENCES = 100_000_000


def learn_vocabulary(
    words: Counter[str],
    vocab_size: int,
    min_frequency: int = 2,
    num_unused: int = 99,
    max_occurrences: int = MAX_OCCURRENCES,
) -> list[str]:
    """Returns the tokens of a BERT vocabulary, at most `vocab_size`, in the order of their ids.

    It takes normalized words, and how often they occur. A text of more than `max_occurrences` words
    is represented by an even, deterministic sample.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    unused = [f"[unused{slot}]" for slot in range(num_unused)]
    reserved = ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = _alphabet(words, min_frequency)
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
        min_frequency=-(-min_frequency // one_in),
        special_tokens=given,
        show_progress=False,
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(_repeat(_sample(words, one_in)), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _alphabet(words: Counter[str], min_frequency: int) -> set[str]:
    """Returns the characters that get a token: frequent, and within the character coverage."""
    characters: Counter[str] = Counter()
    for word, times in words.items():
        for character in word:
            characters[character] += times
    room = characters.total() * (1 - _CHARACTER_COVERAGE)
    # Drops the rarest characters first. Code points break ties.
    for character, times in sorted(characters.items(), key=lambda item: (item[1], item[0])):
        room -= times
        if room < 0 and times >= min_frequency:
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
