"""Tags of entities: BIO, IOB1, IOBES and BILOU.

In BIO, also called IOB2, "B-PER" is the first word of an entity of type PER, "I-PER" a further one,
and "O" any other word. In IOB1, the original form of CoNLL-2003, "B-PER" occurs only right after
another entity of the same type. IOBES and BILOU also mark the last word and single words.
"""

import re
from collections.abc import Iterable, Sequence, Set

_ENTITY = re.compile(r"[BIESLU]-.+")
_PLAIN = {"O", "B", "I"}
_TO_BIO = {"E": "I", "L": "I", "S": "B", "U": "B"}


def tag_entities(tags: Iterable[str]) -> bool:
    """Returns whether tags are of one of the schemes; others describe words, such as NOUN."""
    tags = set(tags)
    return any(map(_ENTITY.fullmatch, tags)) or (bool(tags) and tags <= _PLAIN)


def is_entity_tag(tag: str) -> bool:
    """Returns whether one of the schemes has the tag."""
    return tag in _PLAIN or bool(_ENTITY.fullmatch(tag))


def entity_types(tags: Iterable[str]) -> set[str] | None:
    """Returns the types of the entities; None if a tag is of no scheme."""
    tags = set(tags)
    return {tag[2:] for tag in tags} - {""} if all(map(is_entity_tag, tags)) else None


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """Returns "BIO", "IOB1", "IOBES" or "BILOU" for the tags of all sentences."""
    prefixes, starts = set(), set()
    for tags in sentences:
        prefixes.update(tag[0] for tag in tags)
        starts.update(tags[i][0] for i in range(len(tags)) if _is_new(tags, i))
    if prefixes & {"E", "S"}:
        return "IOBES"
    if prefixes & {"L", "U"}:
        return "BILOU"
    return "IOB1" if starts == {"I"} else "BIO"


def to_bio(tags: Sequence[str], scheme: str) -> list[str]:
    """Converts the tags of a sentence to BIO."""
    if scheme == "IOB1":
        return ["B" + tag[1:] if _is_new(tags, i) else tag for i, tag in enumerate(tags)]
    if scheme == "BIO":
        return list(tags)
    return [_TO_BIO.get(tag[0], tag[0]) + tag[1:] for tag in tags]


def breaks(tags: Sequence[str]) -> list[int]:
    """Returns where a sentence breaks BIO: I-X that follows neither B-X nor I-X."""
    return [i for i, tag in enumerate(tags) if tag[0] == "I" and _is_new(tags, i)]


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1` of entities as conlleval counts them.

    An entity is correct if its words and its type are. `f1_TYPE` is the score of a type. A ratio
    without any entity is 0.

    Args:
        gold, predicted: the tags of every sentence, in BIO.
    """
    # Slow to import.
    from seqeval.metrics.sequence_labeling import get_entities

    right, found = (set(get_entities([list(tags) for tags in x])) for x in (gold, predicted))
    scores = _ratios(right, found)
    for entity_type in sorted({entity[0] for entity in right | found}):
        of_type = ({e for e in x if e[0] == entity_type} for x in (right, found))
        scores[f"f1_{entity_type}"] = _ratios(*of_type)["f1"]
    return scores


def _ratios(right: Set[tuple], found: Set[tuple]) -> dict[str, float]:
    correct = len(right & found)
    return {
        "precision": correct / max(len(found), 1),
        "recall": correct / max(len(right), 1),
        "f1": 2 * correct / max(len(found) + len(right), 1),
    }


def _is_new(tags: Sequence[str], index: int) -> bool:
    """Returns whether a tag of an entity follows none of the same type."""
    if tags[index] == "O":
        return False
    return index == 0 or tags[index - 1] == "O" or tags[index - 1][1:] != tags[index][1:]
