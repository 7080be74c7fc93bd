"""Tags of entities: their schemes, and the entities in them.

In BIO, also called IOB2, "B-PER" is the first word of an entity of type PER, "I-PER" a further one,
and "O" any other word. In IOB1, the original form of CoNLL-2003, "B-PER" occurs only right after
another entity of the same type. IOE marks last words instead of first ones. IOBES, BILOU and BMES
mark both, and single words.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence, Set

# The first letters of tags that begin an entity, and of those that end one.
BEGINS, ENDS = "BSUW", "ESLUW"
_ENTITY = re.compile(r"[BIMESLUW]-.+")
_PLAIN = {"O", "B", "I"}
_BARE = {*_PLAIN, *"MESLUW"}
# Other spellings, and ours of the same tag.
_SPELLINGS = (
    (re.compile(r"([BIMESLUW])[-_:/.|](.+)", re.IGNORECASE), r"\1-\2"),
    (re.compile(r"(.+)[-_:/.|]([BIMESLUW])", re.IGNORECASE), r"\2-\1"),
)


def tag_entities(tags: Iterable[str]) -> bool:
    """Returns whether tags are of one of the schemes; others describe words, such as NOUN."""
    tags = set(tags)
    return any(map(_ENTITY.fullmatch, tags)) or (bool(tags) and not odd_tags(tags))


def is_entity_tag(tag: str) -> bool:
    """Returns whether one of the schemes has the tag."""
    return tag in _PLAIN or bool(_ENTITY.fullmatch(tag))


def spellings(tags: Set[str]) -> Mapping[str, str]:
    """Returns tags of entities in other spellings, such as B_PER, b-PER and PER-B, and ours."""
    others = {tag for tag in tags if tag.upper() != "O"}
    for form, ours in _SPELLINGS:
        found = {tag: match.expand(ours) for tag in others if (match := form.fullmatch(tag))}
        names = {tag: name[0].upper() + name[1:] for tag, name in found.items()}
        first = {name[0] for name in names.values()}
        if others and others == names.keys() and (others < tags or {"B"} < first):
            names |= {tag: "O" for tag in tags - others}
            return {tag: name for tag, name in names.items() if tag != name}
    return {}


def from_brackets(cells: Sequence[str]) -> list[str]:
    """Converts the tags of a sentence to BIO from brackets: "(PER*", "*)", "(LOC)" and "*"."""
    tags, inside = [], ""
    for cell in cells:
        opened = cell.strip("()*")
        tags.append(f"B-{opened}" if opened else f"I-{inside}" if inside else "O")
        inside = "" if cell.endswith(")") else opened or inside
    return tags


def entity_types(tags: Iterable[str]) -> set[str] | None:
    """Returns the types of the entities; None if a tag is of no scheme."""
    tags = set(tags)
    return None if odd_tags(tags) else {tag[2:] for tag in tags} - {""}


def odd_tags(tags: Set[str]) -> list[str]:
    """Returns the tags that are not of entities."""
    return [] if tags <= _BARE and "B" in tags else sorted(t for t in tags if not is_entity_tag(t))


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """Returns "BIO", "IOB1", "IOE", "IOBES", "BILOU" or "BMES" for the tags of all sentences."""
    letters, starts = set(), set()
    for tags in sentences:
        letters.update(tag[0] for tag in tags)
        pairs = itertools.pairwise(["O", *tags])
        starts.update(b[0] for a, b in pairs if b != "O" and (a == "O" or a[1:] != b[1:]))
    for scheme, own in (("BMES", {*"MW"}), ("BILOU", {*"LU"}), ("IOBES", {"S"})):
        if letters & own:
            return scheme
    if "E" in letters:
        return "IOBES" if "B" in letters else "IOE"
    return "IOB1" if starts == {"I"} else "BIO"


def to_bio(tags: Sequence[str]) -> list[str]:
    """Converts the tags of a sentence to BIO from any scheme."""
    return [t if t == "O" else "IB"[_begins(tags, i)] + t[1:] for i, t in enumerate(tags)]


def breaks(tags: Sequence[str]) -> list[int]:
    """Returns where a sentence breaks its scheme: I-X that follows neither B-X nor I-X."""
    return [i for i, t in enumerate(tags) if t[0] not in BEGINS and _begins(tags, i)]


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1` of entities as conlleval counts them.

    An entity is correct if its words and its type are. `f1_TYPE` is the score of a type. A ratio
    without any entity is 0. The arguments are the tags of every sentence, in BIO.
    """
    # Slow to import.
    from seqeval.metrics import classification_report

    names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
    gold, predicted = ([list(tags) for tags in sentences] for sentences in (gold, predicted))
    if {*itertools.chain(*gold, *predicted)} == {"O"}:
        return dict.fromkeys(names, 0.0)
    report = classification_report(gold, predicted, output_dict=True, zero_division=0)
    total, *_ = (report.pop(f"{average} avg") for average in ("micro", "macro", "weighted"))
    scores = {name: float(total[column]) for name, column in names.items()}
    return scores | {f"f1_{kind}": float(x["f1-score"]) for kind, x in report.items()}


def _begins(tags: Sequence[str], index: int) -> bool:
    """Returns whether a word begins an entity, as conlleval and seqeval have it."""
    if tags[index] == "O":
        return False
    before = tags[index - 1] if index else "O"
    same = before[1:] == tags[index][1:] and before != "O" and before[0] not in ENDS
    return not same or tags[index][0] in BEGINS
