"""Text whose words have tags: the data of tagging tasks."""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from bert_tf.base.progress import counted, say
from bert_tf.finetuning.examples import choose_held_out
from bert_tf.finetuning.labels import sorted_classes, warn_about_names
from bert_tf.finetuning.tagging import tags as schemes

_TAGS_SHOWN = 9
# The last character of a word and the first of the next one, in scripts without spaces.
_JOINED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]{2}")
# Two words of a letter each. In raw text, they are one word, except Chinese characters.
_SINGLE = re.compile(r"[^\W\d_\u3400-\u9fff]{2}")
_DIVIDED = re.compile("[\u3400-\u9fff]{2}")
# Where a second tag begins, as in B-PER|I-LOC.
_SEVERAL = re.compile(r"[^\w-] ?[BIMESLUW]-")


class Sentence(NamedTuple):
    """Words, their tags ([] if unknown), and the numbers of the lines that they come from."""

    words: Sequence[str]
    tags: Sequence[str]
    lines: Sequence[int]


@dataclass(frozen=True)
class TaggedText:
    """Documents of sentences: at least one each, which have at least one word each.

    Unless the file, `path` in messages, says where documents begin, `marks_documents`, every
    sentence is a document. The notes are faults in the data, with their counts. `columns` are
    values of flags for the columns in which the words and tags were found, if these are not the
    usual ones. `json_tags` says whether the tags were numbers.
    """

    path: str
    documents: list[list[Sentence]]
    marks_documents: bool = False
    notes: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    json_tags: bool = False

    def __len__(self) -> int:
        return len(self.sentences)

    @functools.cached_property
    def sentences(self) -> list[Sentence]:
        return [*itertools.chain.from_iterable(self.documents)]

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """The words of each sentence."""
        return [tuple(sentence.words) for sentence in self.sentences]

    @functools.cached_property
    def words(self) -> list[str]:
        return [word for sentence in self.sentences for word in sentence.words]

    @functools.cached_property
    def tags(self) -> list[str]:
        """The tags of all words; [] if they are unknown."""
        return [tag for sentence in self.sentences for tag in sentence.tags]

    def describe(self) -> str:
        """Returns the amount of text, for messages."""
        line = f"{counted(len(self.words), 'word')} in {counted(len(self), 'sentence')}"
        documents = counted(len(self.documents), "document")
        return f"{line} and {documents}" if self.marks_documents else line

    def word_splits(self, by_document: bool) -> np.ndarray:
        """Returns where documents, or else sentences, begin among the words, and the end; int64."""
        texts = self.documents if by_document else [[sentence] for sentence in self.sentences]
        lengths = [sum(len(sentence.words) for sentence in text) for text in texts]
        return np.append(0, np.cumsum(lengths))

    def by_sentence(self, values: Sequence[str]) -> list[list[str]]:
        """Divides a list with a value for every word into the sentences."""
        values = iter(values)
        return [[*itertools.islice(values, len(sentence.words))] for sentence in self.sentences]

    def line_of(self, tag: str) -> int:
        """Returns the number of the first line with the tag."""
        sentence = next(sentence for sentence in self.sentences if tag in sentence.tags)
        return sentence.lines[list(sentence.tags).index(tag)]


def label_names(text: TaggedText) -> tuple[str, ...]:
    """Returns the tags of a training set, in BIO if they are of entities, with "O" first."""
    tags = {*text.tags}
    if has_entities := schemes.tag_entities(tags) or bool(schemes.spellings(tags)):
        tags = {*_in_bio(text)[0].tags}
    names = sorted(sorted_classes(tags), key=lambda tag: tag != "O")
    if not names:
        raise ValueError(
            f"{text.path} has no tags: training needs them in the last column or in --label_column"
        )
    if all(re.fullmatch('".+"', name) for name in names):
        raise ValueError(
            f"{text.path}: the tags are in quotes, such as {names[0]}: write words and tags without"
        )
    if len(names) == 1:
        raise ValueError(
            f'{text.path}: every word has the tag "{names[0]}": nothing to learn; --label_column '
            "names another column"
        )
    warn_about_names(text.path, names)
    _warn_about_units(text)
    if all(name.removeprefix("-").isdecimal() for name in names):
        say(
            f"WARNING: {text.path}: the tags are numbers, so entities are not counted. To name "
            "them, replace each number n by names[n]; in Hugging Face datasets, names is "
            "dataset.features['ner_tags'].feature.names."
        )
    elif several := [name for name in names if has_entities and _SEVERAL.search(name)]:
        say(
            f"WARNING: {text.path}: tags such as {several[0]} hold several tags, and each "
            "combination counts as a type of its own: keep one tag for each word."
        )
    elif "O" in names and not has_entities:
        say(
            f"WARNING: {text.path}: tags such as {', '.join(names[1:_TAGS_SHOWN])} do not say "
            "where entities begin, so each counts by itself and entities are not counted. If they "
            'are of entities, write "B-TYPE" for the first word of each and "I-TYPE" for others.'
        )
    return tuple(names)


def _warn_about_units(text: TaggedText) -> None:
    """Warns of words that are not those of raw text; see `tagging.module.split_words`."""
    pairs = [pair for s in text.sentences for pair in itertools.pairwise(s.words)]
    joined = [a + b for a, b in pairs if _JOINED.fullmatch(a[-1] + b[0])]
    single = [a + b for a, b in pairs if _SINGLE.fullmatch(a + b)]
    divided = [word for word in text.words if _DIVIDED.search(word)]
    spaced = [word for word in text.words if len(word.split()) > 1]
    apart = "one word", "two", "put a space after each word of texts to predict"
    for found, least, (theirs, ours, advice) in (
        (joined, 0.05 * len(pairs), apart),
        (single, max(2, 0.5 * len(pairs)), apart),
        (divided, 0.05 * len(text.words), ("several words", "one", "tag each character")),
        (spaced, 0, ("several words", "one", "tag each of them")),
    ):
        if len(found) > least:
            say(
                f"WARNING: {text.path}: predict and the exported model read {found[0]!r} as "
                f"{theirs}, not as {ours} ({len(found):,} such cases): {advice}."
            )


def prepare_tags(text: TaggedText, labels: Sequence[str]) -> TaggedText:
    """Returns the text in BIO, and warns of faults in its tags and of tags not in `labels`."""
    tags = {*text.tags}
    if schemes.tag_entities(labels) and (
        any(map(schemes.is_entity_tag, tags)) or schemes.spellings(tags)
    ):
        text, messages = _in_bio(text)
        for message in messages:
            say(message)
    odd = [word for word in text.words if not any(map(str.isalpha, word))]
    if 2 * len(odd) > len(text.words):
        say(
            f"WARNING: {text.path}: {len(odd):,} of {len(text.words):,} words have no letter, such "
            f'as "{odd[0]}": is --text_column the column of words?'
        )
    counts = Counter(text.tags)
    if counts and not counts.keys() & set(labels):
        raise ValueError(
            f'{text.path}: none of its tags, such as "{text.tags[0]}", is among the training '
            f"tags: {', '.join(labels[:_TAGS_SHOWN])}. Tags must be in the last column or in "
            "--label_column; to predict text without tags, keep only the column of words"
        )
    for tag in sorted(counts.keys() - set(labels)):
        say(
            f'WARNING: {text.path}, line {text.line_of(tag)}: the training data has no tag "{tag}";'
            f" the words with it ({counts[tag]:,}) count as errors of the model."
        )
    return text


def _in_bio(text: TaggedText) -> tuple[TaggedText, list[str]]:
    """Returns the text in BIO, and messages on what is converted and what breaks the scheme."""
    names = schemes.spellings({*text.tags})
    tags = [[names.get(tag, tag) for tag in sentence.tags] for sentence in text.sentences]
    for tag in schemes.odd_tags({*itertools.chain(*tags)}):
        raise ValueError(
            f'{text.path}, line {text.line_of(tag)}: the tag "{tag}" is neither "O" nor of the '
            'form "B-TYPE" or "I-TYPE", as other tags are'
        )
    scheme, messages = schemes.scheme_of(tags), []
    if names:
        tag = max(sorted(names), key=lambda tag: names[tag] != "O")
        messages.append(
            f'{text.path}: read the tag "{tag}" as "{names[tag]}", and others likewise.'
        )
    if scheme != "BIO":
        messages.append(f"{text.path}: converted the tags from {scheme} to BIO.")
    pairs = zip(text.sentences, tags, strict=True)
    found = [(s.lines[i], x[i]) for s, x in pairs for i in schemes.breaks(x)]
    if found and scheme not in ("IOB1", "IOE"):
        line, tag = found[0]
        messages.append(
            f"WARNING: {text.path}: {len(found):,} of {len(text.tags):,} tags break {scheme}, the "
            f'first in line {line}: "{tag}" follows no tag of its type. As in conlleval, it begins '
            "an entity."
        )
    rest = iter(tags if scheme == "BIO" else map(schemes.to_bio, tags))
    documents = [[s._replace(tags=next(rest)) for s in document] for document in text.documents]
    return replace(text, documents=documents), messages


def hold_out_documents(text: TaggedText) -> tuple[TaggedText, TaggedText]:
    """Holds out a random tenth of the documents; returns the rest and that tenth."""
    tags = [{tag for sentence in document for tag in sentence.tags} for document in text.documents]
    counts = Counter(itertools.chain.from_iterable(tags))
    only = np.array([any(counts[tag] == 1 for tag in found) for found in tags])
    chosen, notes = choose_held_out(np.zeros(len(tags), np.int32), only)
    rest, tenth = ([*itertools.compress(text.documents, x)] for x in (~chosen, chosen))
    # Other notes count all documents.
    return replace(text, documents=rest), replace(text, documents=tenth, notes=notes)
