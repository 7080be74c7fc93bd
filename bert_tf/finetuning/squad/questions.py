"""Questions on contexts, from files in SQuAD's format or from tensorflow-datasets."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

from bert_tf.base import files
from bert_tf.base.files import check_single, errors_at
from bert_tf.finetuning import examples
from bert_tf.finetuning.task import TRAIN
from bert_tf.tables.memory import TableInMemory
from bert_tf.tables.rows import not_empty, read_rows, table_kind

_ANSWER = {"answer_start": int, "text": str}
_QUESTION = {"id": str | int, "question": str}
_QUESTION |= {"answers?": list[_ANSWER], "is_impossible?": bool | None}
_PARAGRAPH = {"context": str, "qas": list[_QUESTION]}
_ARTICLE = {"paragraphs": list[_PARAGRAPH]}
_FILE = {"data": list[_ARTICLE]}
_ROW = {"id": str | int, "question": str, "context": str}
_ROW |= {"answers?": ({"text": list[str], "answer_start": list[int]}, NoneType)}


class Question(NamedTuple):
    """A question on a context; `id` identifies it in files of predictions.

    `context` is the index of its context. The answers are the correct ones; () if it is
    unanswerable, None if they are unknown. `span` has the byte offsets of the answer to train on,
    start and limit; None if there is none.
    """

    id: str
    text: str
    context: int
    answers: tuple[str, ...] | None
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class SquadExamples:
    """The questions of a split, in the order of the file, and their contexts, UTF-8 bytes.

    `has_answers` says whether the answers of all questions are known. The notes are faults in the
    data, with their counts.
    """

    contexts: list[bytes]
    questions: list[Question]
    has_answers: bool
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def keys(self) -> list[tuple[str, bytes]]:
        """Each question with its context."""
        return [(question.text, self.contexts[question.context]) for question in self.questions]


_MOVED = "answers moved from a wrong offset to the nearest occurrence of their text"
_ABSENT = "questions left out because their answer is not in the context"
_ELSEWHERE = "answers at a wrong offset"
_NOWHERE = "answers that are not in the context"
_DROPPED = 'unanswerable questions ("is_impossible") whose answers are ignored'
_UNMARKED = 'questions without answers, treated as unanswerable despite "is_impossible": false'
_EMPTY = "empty questions"
_UNKNOWN = 'questions without "answers", so no question is scored'


class _Row(NamedTuple):
    """A question as it is in a file; `answers` are texts and offsets in characters."""

    id: str
    text: str
    context: str
    answers: list[tuple[str, int]] | None
    faults: tuple[str, ...] = ()


def read_squad_file(path: str | TableInMemory, split: str, unanswerable: bool) -> SquadExamples:
    """Reads a file in the format of SQuAD 1.1 or 2.0, or a table of its questions.

    The columns of a table (.jsonl or .parquet) are those of Hugging Face's. Only the questions of
    the split "test" may lack answers. `unanswerable` says whether a question may have none, as in
    2.0.
    """
    if table_kind(path) in ("jsonl", "parquet", "memory"):
        with errors_at(str(path)):
            return _examples(_table_rows(path), split, unanswerable)
    check_single(path)
    content = not_empty(path, files.read_file(path))
    with errors_at(str(path)):
        with errors_at(f"not in SQuAD's JSON format{examples.OWN_TABLE}"):
            content = files.parse_json(content, _FILE)
        return _examples(_rows(content), split, unanswerable)


def read_squad_tfds(name: str, split: str, unanswerable: bool) -> SquadExamples:
    """Reads "train" or "dev" of tensorflow-datasets' "squad/v1.1" or "squad/v2.0"."""
    rows, _ = examples.tfds_rows(name, {"dev": "validation"}.get(split, split))
    questions = []
    for row in rows:
        texts = [text.decode() for text in row["answers"]["text"]]
        answers = list(zip(texts, map(int, row["answers"]["answer_start"]), strict=False))
        id_, text, context = (row[key].decode() for key in ("id", "question", "context"))
        questions.append(_Row(id_, text, context, answers))
    return _examples(questions, split, unanswerable)


def _table_rows(path: str | TableInMemory) -> Iterator[_Row]:
    """Yields the questions of a table, whose "answers" are a list of texts and one of offsets."""
    for number, row in read_rows(path)[1]:
        if isinstance(row, ValueError):
            raise row
        row = {"id": number} | row
        with errors_at(f"row {number:,}"):
            files.check_kind(row, _ROW)
        answers = row.get("answers")
        if answers is not None:
            answers = [*zip(answers["text"], answers["answer_start"], strict=False)]
        yield _Row(str(row["id"]), row["question"], row["context"], answers)


def _rows(content: dict[str, Any]) -> Iterator[_Row]:
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                given, impossible = question.get("answers"), question.get("is_impossible")
                faults = (_DROPPED,) if impossible and given else ()
                faults += (_UNMARKED,) if impossible is False and given == [] else ()
                answers = given and [(answer["text"], answer["answer_start"]) for answer in given]
                answers = [] if impossible else answers
                id_, context = str(question["id"]), paragraph["context"]
                yield _Row(id_, question["question"], context, answers, faults)


def _examples(rows: Iterable[_Row], split: str, unanswerable: bool) -> SquadExamples:
    """Collects contexts and questions, and counts faults."""
    contexts: dict[str, int] = {}
    questions, ids, counts = [], set(), Counter()
    for row in rows:
        _check(row, split, unanswerable)
        if row.id in ids and split != TRAIN:
            raise ValueError(f"two questions have the id {row.id}: give each its own")
        ids.add(row.id)
        counts[_EMPTY] += not row.text.strip()
        counts.update(row.faults)
        answers, span = row.answers or [], None
        places = [(*answer, _nearest(row.context, *answer)) for answer in answers]
        found = [place for place in places if place[2] is not None]
        if split != TRAIN:
            counts[_NOWHERE] += len(answers) - len(found)
            counts[_ELSEWHERE] += sum(start != place for _, start, place in found)
        elif found:
            text, start, place = found[0]
            first = len(row.context[:place].encode())
            span = first, first + len(text.encode())
            counts[_MOVED] += start != place
        elif answers:
            counts[_ABSENT] += 1
            continue
        context = contexts.setdefault(row.context, len(contexts))
        texts = None if row.answers is None else tuple(text for text, _ in answers)
        questions.append(Question(row.id, row.text, context, texts, span))
    unknown = sum(question.answers is None for question in questions)
    # Such a file is only predicted.
    counts[_UNKNOWN] = unknown if unknown < len(questions) else 0
    notes = tuple(f"{fault}: {count:,}" for fault, count in sorted(counts.items()) if count)
    if not questions:
        raise ValueError("; ".join([f"no usable questions for {split}", *notes]))
    return SquadExamples([context.encode() for context in contexts], questions, not unknown, notes)


def _check(row: _Row, split: str, unanswerable: bool) -> None:
    if not row.context.strip():
        raise ValueError(f"the context of question {row.id} is empty")
    if split != "test" and row.answers is None:
        raise ValueError(f'question {row.id} has no "answers": they are needed for {split}')
    if row.answers == [] and not unanswerable:
        raise ValueError(f"question {row.id} has no answer: use --task=squad2, which allows that")


def _nearest(context: str, text: str, start: int) -> int | None:
    """Returns the offset of the occurrence of `text` that is nearest to `start`."""
    if not text.strip():
        return None
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - start), default=None)
