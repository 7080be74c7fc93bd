"""The predictions of a fine-tuned model, as JSON objects and as lines to read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.inference.examples import PAIR

Answer = dict[str, Any]


def answer_of(outputs: Mapping[str, Any], labels: Sequence[str], text: str) -> Answer:
    """Returns what a module predicts for one example, without padding, for JSON.

    `probabilities` is by label if there are labels. What is known of each word and of each entity
    of a tagged text becomes an object per word, in `words`, and per entity, in `entities`.

    Args:
        outputs: the outputs of an exported module for one example.
        labels: the names of the columns of `probabilities`.
        text: the first input of the example, in whose bytes tagged words have offsets.
    """
    values = {name: _plain(value) for name, value in outputs.items()}
    if "tag" in values:
        entities = {n: values.pop(n) for n in list(values) if n.startswith("entity")}
        data = text.encode()
        spans = zip(values["start"], values["end"], strict=True)
        words = [data[start:end].decode("utf-8", "replace") for start, end in spans]
        answer = {"words": _objects({"word": words} | values)}
        if entities:
            names = {name: name.removeprefix("entity_") for name in entities} | {"entity": "text"}
            answer["entities"] = _objects({names[n]: column for n, column in entities.items()})
        return answer
    if "probabilities" in values and labels:
        values["probabilities"] = dict(zip(labels, values["probabilities"], strict=True))
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return float(f"{value:.6g}") if isinstance(value, np.floating) else int(value)


def _objects(columns: Mapping[str, list]) -> list[Answer]:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    # Shorter rows of a batch are padded; no word or entity ends where the text begins.
    return [row for row in rows if row["end"]]


def line_of(answer: Answer, example: Mapping[str, Any]) -> str:
    """Returns an answer and its text, pair of texts or question as a line to read.

    Args:
        answer: as `answer_of` returns it; the offsets of tags are in the bytes of the text.
        example: the inputs by name.
    """
    if "words" in answer:
        return _one_line(_tagged(answer, example["text"]))
    texts = [example[name] for name in ("text", "text_b", "question") if name in example]
    return f"{_one_line(_shown(answer))}\t{_one_line(PAIR.join(texts))}"


def _one_line(text: str) -> str:
    """Returns a text with spaces in place of tabs and line ends, as in files of predictions."""
    return " ".join(text.replace("\t", " ").splitlines())


def _shown(answer: Answer) -> str:
    if "label" in answer:
        return f"{answer['label']} {max(answer['probabilities'].values()):.1%}"
    if "labels" in answer:
        shares = sorted(answer["probabilities"].items(), key=lambda item: -item[1])
        return ", ".join(f"{label} {p:.1%}" for label, p in shares if p >= 0.5) or "(none)"
    if "score" in answer:
        return f"{answer['text'] or '(no answer)'} {answer['score']:.1%}"
    if "index" in answer:
        return f"{answer['index']} {answer['probabilities'][answer['index']]:.1%}"
    return " ".join(f"{value}" for value in answer.values())


def _tagged(answer: Answer, text: str) -> str:
    """Puts the entities, or the tag of each word, into the text: "[Ann PER 99.1%] came"."""
    spans = answer.get("entities", answer["words"])
    kind, data, parts, last = "type" if "entities" in answer else "tag", text.encode(), [], 0
    for span in spans:
        start, end = span["start"], span["end"]
        parts += [data[last:start], b"[", data[start:end]]
        parts.append(f" {span[kind]} {span['probability']:.1%}]".encode())
        last = end
    return b"".join([*parts, data[last:]]).decode("utf-8", "replace")
