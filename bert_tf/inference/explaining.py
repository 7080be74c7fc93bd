"""Why a model answers as it does: which words moved a class, and where an answer may be."""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import softmax

from bert_tf.inference.presenting import JsonAnswer, Prediction
from bert_tf.inference.texts import Example

# As BERT's tokenizer does, it takes each Chinese character for a word.
_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CHINESE}]|[^\s{_CHINESE}]+")
# Encoders read up to 512 tokens.
_MOST_WORDS = 512


def explained(predict: Callable[[list[Example]], list[JsonAnswer]], example: Example) -> Prediction:
    """Returns an example with its answer and the effects of its words; see `Predictor.explain`.

    `predict` returns the answers to examples. Raises a ValueError if they have no classes.
    """
    places = [
        (name, found)
        for name, text in example.items()
        if name in ("text", "text_b") and isinstance(text, str)
        for found in itertools.islice(_WORD.finditer(text), _MOST_WORDS)
    ]
    changed = [
        example | {name: found.string[: found.start()] + found.string[found.end() :]}
        for name, found in places
    ]
    answer, *others = predict([example, *changed])
    if not isinstance(answer.get("probabilities"), dict):
        raise ValueError("only classifiers are explained, but this model has no named classes")
    label = max(answer["probabilities"], key=answer["probabilities"].get)
    share = answer["probabilities"][label]
    effects = []
    for (name, found), other in zip(places, others, strict=True):
        start = len(found.string[: found.start()].encode())
        effects.append(
            {
                "input": name,
                "word": found[0],
                "start": start,
                "end": start + len(found[0].encode()),
                "effect": round(share - other["probabilities"][label], 6),
            }
        )
    return Prediction(example | answer | {"explained": label, "effects": effects})


def located(example: Example, answer: JsonAnswer, found: Mapping[str, np.ndarray]) -> Prediction:
    """Returns a question with its answer and the tokens of its context; see `Predictor.explain`.

    `found` is what `AnswerModule.serve_tokens` returns.
    """
    context, logits = example["context"].encode(), found["logits"]
    shares = softmax(logits, axis=0) if len(logits) else logits
    columns = found["start"].tolist(), found["end"].tolist(), shares.tolist()
    tokens: list[dict[str, Any]] = [
        {
            "token": context[start:end].decode("utf-8", "replace"),
            "start": start,
            "end": end,
            "starts": round(first, 6),
            "ends": round(last, 6),
        }
        for start, end, (first, last) in zip(*columns, strict=True)
    ]
    return Prediction(example | answer | {"tokens": tokens})
