"""Predicts examples with the module of a fine-tuning task, for JSON and as lines to read."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.fine_tuned import load_task_model, member_paths, open_members
from bert_tf.finetuning.predictions import one_line
from bert_tf.finite import check_computed
from bert_tf.inference.inference_options import LITE, ONNX, FineTunedOptions, PredictOptions
from bert_tf.inference.models import load_tokenizer
from bert_tf.inference.single_file import open_single_file
from bert_tf.inference.texts import PAIR, Example, columns_of_run, in_groups
from bert_tf.models.encoder import skip_padding
from bert_tf.weights.checkpoint import Checkpoint

JsonAnswer = dict[str, Any]


def answer_of(outputs: Mapping[str, Any], labels: Sequence[str], text: str) -> JsonAnswer:
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
    """Returns an answer and its text, pair of texts or question as a line to read.

    Args:
        answer: as `answer_of` returns it; the offsets of tags are in the bytes of the text.
        example: the inputs by name.
    """
    if "words" in answer:
        return one_line(_tagged(answer, example["text"]))
    texts = [example[name] for name in ("text", "text_b", "question") if name in example]
    return f"{one_line(_shown(answer))}\t{one_line(PAIR.join(texts))}"


def _shown(answer: JsonAnswer) -> str:
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


def _tagged(answer: JsonAnswer, text: str) -> str:
    """Puts the entities, or the tag of each word, into the text: "[Ann PER 99.1%] came"."""
    spans = answer.get("entities", answer["words"])
    kind, data, parts, last = "type" if "entities" in answer else "tag", text.encode(), [], 0
    for span in spans:
        start, end = span["start"], span["end"]
        parts += [data[last:start], b"[", data[start:end]]
        parts.append(f" {span[kind]} {span['probability']:.1%}]".encode())
        last = end
    return b"".join([*parts, data[last:]]).decode("utf-8", "replace")


# Batches of longer examples are smaller, because all windows of their texts are in memory at once.
_CHARACTERS = 4096


class Predictor:
    """Predicts examples in batches of similar length.

    Args:
        module: what `Task.serving` returns.
        batch_size: the most examples per call of the model.
        checkpoint: the model, also as an attribute; None for one in a single file.

    Attributes:
        signature: the inputs of the model.
        truncates: what the module truncates, and the flag that sets how many tokens it reads; None
            if it reads everything, in windows.
        num_truncated: how many of these were truncated so far.
        columns: the columns of the tables that the model was trained on.
    """

    def __init__(self, module: tf.Module, batch_size: int, checkpoint: Checkpoint | None = None):
        self.truncates, self.num_truncated = getattr(module, "truncates", None), 0
        self.signature = module.serving.input_signature
        self.columns = columns_of_run(checkpoint and checkpoint.run)
        self.checkpoint = checkpoint
        self._serve, self._batch_size = module.serving, batch_size
        if self.truncates:
            # As a graph, because tokenizing a text takes most of the time otherwise.
            self._count = tf.function(module.num_truncated, self.signature, autograph=False)
        labels = getattr(module, "labels", None)
        self._labels = () if labels is None else [name.decode() for name in labels.numpy()]

    def predict(self, examples: Sequence[Example]) -> list[JsonAnswer]:
        """Returns the answers to examples, in their order."""
        answers: list[JsonAnswer | None] = [None] * len(examples)
        names = [spec.name for spec in self.signature]
        strings = [tf.nest.flatten([example[name] for name in names]) for example in examples]
        for batch in self._batches([(len(texts), sum(map(len, texts))) for texts in strings]):
            columns = [tf.constant([examples[i][name] for i in batch]) for name in names]
            if self.truncates:
                self.num_truncated += int(self._count(*columns))
            outputs = self._serve(*columns)
            outputs = {name: values.numpy() for name, values in outputs.items()}
            check_computed(outputs)
            for row, index in enumerate(batch):
                own = {name: values[row] for name, values in outputs.items()}
                answers[index] = answer_of(own, self._labels, examples[index][names[0]])
        return answers

    def _batches(self, sizes: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
        """Yields indices of examples with as many strings, given this number and their length."""
        order = sorted(range(len(sizes)), key=sizes.__getitem__)
        for _, same in itertools.groupby(order, lambda i: sizes[i][0]):
            characters = self._batch_size * _CHARACTERS
            yield from in_groups(same, lambda i: max(sizes[i][1], _CHARACTERS), characters)


def load_predictor(options: PredictOptions) -> Predictor:
    """Loads the best weights of one or several fine-tuned models, or a model in a single file."""
    paths = member_paths(options.checkpoint)
    if alone := [path for path in paths if path.endswith((LITE, ONNX))]:
        if len(paths) > 1:
            raise ValueError(f"{alone[0]} predicts alone: several models must be checkpoints")
        flags = (field.name for field in dataclasses.fields(FineTunedOptions))
        options.refuse(flags, f"has no effect, as {options.checkpoint} states its own")
        return Predictor(open_single_file(options.checkpoint), options.batch_size)
    checkpoint, task, length = open_members(
        options.checkpoint,
        options.max_seq_length,
        options.pairs,
        options.null_score_diff_threshold,
        options.vocab_file,
    )
    tokenizer = load_tokenizer(checkpoint, options)
    model = load_task_model(task, checkpoint)
    skip_padding(model)
    return Predictor(task.serving(model, tokenizer, length), options.batch_size, checkpoint)
