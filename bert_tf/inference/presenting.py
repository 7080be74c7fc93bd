"""Answers of a model: as JSON, as lines to read, and as notebooks show them."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from bert_tf.config import Head
from bert_tf.finetuning.predictions import one_line
from bert_tf.inference.texts import PAIR

JsonAnswer = dict[str, Any]
# A part of a text: its start and end in bytes, what it is, and how probable that is.
_Span = tuple[int, int, str, float]
# The order of outputs, which SavedModels do not keep.
_ORDER = "probabilities label labels index value tag probability text start end score null_odds"
_ORDER += " entity entity_type entity_start entity_end entity_probability"
# How many bars, and how many answers of a list, a notebook shows.
_MOST_BARS, _MOST_ANSWERS = 10, 20
# Longer parts without a mark lose their middle.
_MOST_CHARACTERS = 1000
# Black on these is legible, and the color-blind can distinguish them.
_COLORS = ("#ffd8a8", "#b2d8ff", "#b8f0c2", "#e3c8f5", "#f7c6d9", "#fff0a3", "#c9d3df")
# The colors of words for and against a class, which the color-blind can distinguish, too.
_FOR, _AGAINST, _SMALLEST_EFFECT = (0x56, 0xB4, 0xE9), (0xE6, 0x9F, 0x00), 0.005
# Ends of answers that are less probable are not shown.
_LIKELY = 0.05


def answer_of(
    outputs: Mapping[str, Any], labels: Sequence[str], text: str | Sequence[str], head: Head
) -> JsonAnswer:
    """Returns what a module predicts for one example, without padding, for JSON.

    `labels` name the columns of `probabilities`, which are then by label. For a tagged text, the
    first input, `words` has an object for each word, and `entities` one for each entity. Labels
    have the types that the `head` states.
    """
    values = {name: _plain(outputs[name]) for name in sorted(outputs, key=_ORDER.find)}
    if "tag" in values:
        entities = {n: values.pop(n) for n in list(values) if n.startswith("entity")}
        data = joined(text).encode()
        spans = zip(values["start"], values["end"], strict=True)
        words = [data[start:end].decode("utf-8", "replace") for start, end in spans]
        answer = {"words": _objects({"word": words} | values)}
        for word in answer["words"]:
            word["tag"] = head.value_of(word["tag"])
        if entities:
            names = {name: name.removeprefix("entity_") for name in entities} | {"entity": "text"}
            answer["entities"] = _objects({names[n]: column for n, column in entities.items()})
        return answer
    if "probabilities" in values and labels:
        values["probabilities"] = dict(zip(labels, values["probabilities"], strict=True))
    if "label" in values:
        values["label"] = head.value_of(values["label"])
    if head.listed_labels:
        chosen = itertools.compress(labels, outputs["probabilities"] >= 0.5)
        values["labels"] = [*map(head.value_of, chosen)]
    return values


def joined(text: str | Sequence[str]) -> str:
    """Returns a text, or its words with spaces between them."""
    return text if isinstance(text, str) else " ".join(text)


def _plain(value: Any) -> Any:
    """Returns a value with the types of JSON."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return float(f"{value:.6g}") if isinstance(value, np.floating) else int(value)


def _objects(columns: Mapping[str, list]) -> list[JsonAnswer]:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    # Shorter rows of a batch are padded; no word or entity ends where the text begins.
    return [row for row in rows if row["end"]]


def line_of(answer: JsonAnswer, example: Mapping[str, Any]) -> str:
    """Returns an answer of `answer_of`, and the text, pair or question, as a line to read."""
    if "words" in answer:
        # The entities, or the tag of each word, are in the text: "[Ann PER 99.1%] came".
        parts = _marked(joined(example["text"]), _tags(answer))
        return one_line("".join(f"[{x} {kind} {p:.1%}]" if kind else x for x, kind, p in parts))
    texts = [example[name] for name in ("text", "text_b", "question") if name in example]
    return f"{one_line(_shown(answer))}\t{one_line(PAIR.join(texts))}"


def _shown(answer: JsonAnswer) -> str:
    if "label" in answer:
        return f"{_name(answer['label'])} {max(answer['probabilities'].values()):.1%}"
    if "labels" in answer:
        shares = sorted(answer["probabilities"].items(), key=lambda item: -item[1])
        return ", ".join(f"{label} {p:.1%}" for label, p in shares if p >= 0.5) or "(none)"
    if "score" in answer:
        return f"{answer['text'] or '(no answer)'} {answer['score']:.1%}"
    if "index" in answer:
        return f"{answer['index']} {answer['probabilities'][answer['index']]:.1%}"
    return " ".join(f"{value}" for value in answer.values())


def _name(label: Any) -> str:
    """Returns the name of a label, which may be a number or a boolean."""
    return label if isinstance(label, str) else json.dumps(label)


def _tags(answer: Mapping[str, Any]) -> list[_Span]:
    """Returns start, end, kind and probability of each entity, or of each word."""
    name = "type" if "entities" in answer else "tag"
    spans = answer["entities" if name == "type" else "words"]
    return [(x["start"], x["end"], _name(x[name]), x["probability"]) for x in spans]


def _marked(text: str, spans: Iterable[_Span]) -> list[tuple[str, str, float]]:
    """Cuts a text at the bytes of spans; each part has the kind and probability of its span."""
    data, parts, last = text.encode(), [], 0
    for start, end, kind, share in spans:
        parts += [(data[last:start], "", 0.0), (data[start:end], kind, share)]
        last = end
    parts.append((data[last:], "", 0.0))
    return [(x.decode("utf-8", "replace"), kind, share) for x, kind, share in parts if x]


def drawing_of(row: Mapping[str, Any]) -> dict[str, list]:
    """Returns what notebooks and the explorer draw of an example with its answer, for JSON.

    Returns:
        texts: each text as a list of parts, `text`, `kind` and `color`; only tagged parts, answers
            to questions and words with an effect have a color.
        bars: names, each as a `token`, and their `probability`, the largest first.
        note: a number, a vector, that there is no answer, how many bars are left out, or what the
            colors of words mean.
    """
    texts = [joined(row[name]) for name in ("text", "text_b") if name in row]
    marks, bars, note, shares = [], [], "", row.get("probabilities", ())
    if "words" in row:
        marks = _tags(row)
    elif "context" in row:
        texts = [row["question"], row["context"]]
        marks = [(row["start"], row["end"], f"{row['score']:.1%}", row["score"])]
        note = "" if row["text"] and "tokens" not in row else _shown(row)
        if tokens := row.get("tokens"):
            marks = _likely_ends(tokens)
    elif isinstance(shares, dict):
        bars = shares.items()
    elif "index" in row:
        bars = zip(row["choices"], shares, strict=True)
    elif "masks" in row:
        # The bars are of the first mask.
        first, *rest = [[[*x.values()] for x in mask] for mask in row["masks"]] or [[]]
        bars, note = first, ", ".join(f"{x[0][0]} {x[0][1]:.1%}" for x in rest)
    else:
        inputs = ("id", "text", "text_b")
        note = _shown({name: value for name, value in row.items() if name not in inputs})
    spans = [[] for _ in texts[1:]] + [marks]
    if effects := row.get("effects"):
        spans = [_effects_on(name, effects) for name in ("text", "text_b")]
    bars = sorted(bars, key=lambda bar: -bar[1])
    if len(bars) > _MOST_BARS:
        note = f"... and {len(bars) - _MOST_BARS:,} more"
    if effects:
        note += f"\nBlue words speak for {row['explained']}, orange ones against it."
    parts = map(_marked, texts, spans)
    return {
        "texts": [[_part_of(x, kind, _color_in(row, kind, p)) for x, kind, p in y] for y in parts],
        "bars": [{"token": str(x), "probability": share} for x, share in bars[:_MOST_BARS]],
        "note": _cropped(note.lstrip()),
    }


def _part_of(text: str, kind: str, color: str) -> dict[str, str]:
    return {"text": text if kind else _cropped(text), "kind": kind, "color": color if kind else ""}


def _color_in(row: Mapping[str, Any], kind: str, share: float) -> str:
    """Returns a color for each tag; for effects blue or, if negative, orange, pale if small."""
    if "effects" not in row:
        return _COLORS[sum(kind.encode()) % len(_COLORS) if "words" in row else 0]
    full, strength = _FOR if share > 0 else _AGAINST, min(1.0, 0.2 + abs(share))
    return "#" + "".join(f"{round(255 - strength * (255 - x)):02x}" for x in full)


def _likely_ends(tokens: Sequence[Mapping[str, Any]]) -> list[_Span]:
    """Returns the tokens at which an answer may well start or end."""
    spans = []
    for token in tokens:
        kinds = [f"{x} {token[x]:.0%}" for x in ("starts", "ends") if token[x] >= _LIKELY]
        spans += [(token["start"], token["end"], ", ".join(kinds), 0.0)] if kinds else []
    return spans


def _effects_on(name: str, effects: Sequence[Mapping[str, Any]]) -> list[_Span]:
    """Returns the words of an input whose effects are not negligible."""
    return [
        (x["start"], x["end"], f"{x['effect']:+.1%}", x["effect"])
        for x in effects
        if x["input"] == name and abs(x["effect"]) >= _SMALLEST_EFFECT
    ]


def _cropped(text: str) -> str:
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= 2 * half else f"{text[:half]} … {text[-half:]}"


class Prediction(dict):
    """An example with its answer, as `predict --json` prints it; a notebook draws it."""

    def _repr_html_(self) -> str:
        drawing = drawing_of(self)
        texts = "".join(f"<div>{''.join(map(_part, parts))}</div>" for parts in drawing["texts"])
        rows = "".join(map(_bar, drawing["bars"]))
        table = f'<table style="margin: 0.2em 0">{rows}</table>' if rows else ""
        note = f"<div><i>{escape(drawing['note'])}</i></div>" if drawing["note"] else ""
        return f'<div style="margin: 0.6em 0; max-width: 60em">{texts}{table}{note}</div>'


class Predictions(list):
    """The answers to several examples; a notebook draws the first ones."""

    def _repr_html_(self) -> str:
        shown = "".join(answer._repr_html_() for answer in self[:_MOST_ANSWERS])
        more = len(self) - _MOST_ANSWERS
        return shown + (f"<div>... and {more:,} more</div>" if more > 0 else "")


def _part(part: Mapping[str, str]) -> str:
    text = escape(part["text"])
    if not part["kind"]:
        return text
    style = f"background: {part['color']}; color: black"
    return f'<mark style="{style}">{text} <small>{escape(part["kind"])}</small></mark>'


def _bar(bar: Mapping[str, Any]) -> str:
    share = f"{bar['probability']:.1%}"
    filled = f'<div style="width: {share}; height: 0.8em; background: #0072b2"></div>'
    cells = (f"<bdi>{escape(bar['token'])}</bdi>", filled, share)
    widths = ("max-width: 20em", "width: 16em", "min-width: 3.5em")
    styled = zip(cells, widths, strict=True)
    row = "".join(f'<td style="text-align: left; {width}">{cell}</td>' for cell, width in styled)
    return f"<tr>{row}</tr>"
