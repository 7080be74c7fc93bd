"""SQuAD 1.1 and 2.0, and questions on other texts in the same format; the module to export.

The module chooses answers in the graph as `squad.answers` does, and is tested against it.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.output_files import write_json
from bert_tf.config import Head
from bert_tf.finetuning.examples import choose_held_out
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.objectives import SpanObjective, Tensors
from bert_tf.finetuning.serving import ServingModule
from bert_tf.finetuning.squad import contexts
from bert_tf.finetuning.squad.answers import (
    CERTAINLY_NULL,
    Answer,
    Spans,
    best_spans,
    find_answers,
    score,
    score_with_nulls,
)
from bert_tf.finetuning.squad.questions import SquadExamples, read_squad_file, read_squad_tfds
from bert_tf.finetuning.task import DataFiles, Outputs, Task
from bert_tf.finetuning.tokenizing import most_context, note_constant
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer

# Source: SQuAD (arXiv:1606.05250) table 5.
_SLIDING_WINDOW_F1 = 0.2
# By chance, the best threshold gains less than this over answering no question.
_MARGIN = 0.01
# The score of the empty answer where every question has an answer.
_IMPOSSIBLE = -1e9


class AnswerModule(ServingModule):
    """Maps strings `question` and `context` [B] to the answers, [B] each.

    The outputs are `text`; `start` and `end`, int64, its byte offsets in the context; and `score`,
    float32, its probability. Contexts may have any length; windows have `max_seq_length`. If
    questions may be unanswerable, the text of such a question is "", its offsets are 0, and a
    further output, `null_odds`, float32, is the score of having no answer minus that of the best
    answer.
    """

    truncates = ("question", "the --max_query_length of the run")

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
        options: contexts.SquadOptions,
    ):
        contexts.check_lengths(max_seq_length, options.max_query_length)

        def read(question, context):
            queries = tokenizer.tokenize_flat(question)[:, : options.max_query_length]
            tokens = tokenizer.tokenize_with_offsets(context)
            ids, starts, limits = (values.merge_dims(1, 2) for values in tokens)
            rows, types, places = contexts.split_contexts(
                queries, ids, max_seq_length, options.doc_stride, tokenizer.vocab
            )
            # Without questions, there is no longest window.
            shape = tf.maximum(rows.bounding_shape(), [0, 1])
            inputs = {
                "input_word_ids": rows.to_tensor(tokenizer.vocab.pad_id, shape=shape),
                "input_mask": tf.ones_like(rows).to_tensor(shape=shape),
                "input_type_ids": types.to_tensor(shape=shape),
            }
            logits = model(inputs, training=False)
            padding = inputs["input_mask"][:, :, tf.newaxis] == 0
            return tf.where(padding, -np.inf, logits), places, (starts, limits)

        def serve(question, context):
            logits, places, offsets = read(question, context)
            nulls = tf.math.segment_min(tf.reduce_sum(logits[:, 0], axis=1), places.question)
            if options.threshold is None:
                nulls = tf.fill(tf.shape(nulls), _IMPOSSIBLE)
            spans = best_spans(logits, places, options)
            return _choose(spans, nulls, offsets, context, options)

        super().__init__(model, tokenizer, serve, {"question": 1, "context": 1})
        self._read, self._max_query_length = read, options.max_query_length

    def num_truncated(self, question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """Returns how many of some questions are truncated; contexts never are."""
        tokens = self._tokenizer.tokenize_flat(question).row_lengths()
        return tf.math.count_nonzero(tokens > self._max_query_length)

    def serve_tokens(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """Returns what the model says of each token of one context, given strings [1].

        The outputs are `start` and `end`, int64 [T], the bytes of the token in the context, and
        `logits`, float32 [T, 2], of being the first and the last token of the answer, in the window
        with the most context around the token.
        """
        logits, places, (starts, limits) = self._read(question, context)
        at = tf.ragged.range(places.first, places.first + places.length)
        tokens = tf.ragged.range(places.begin, places.begin + places.length).values
        own = tf.gather_nd(logits, tf.stack([at.value_rowids(), at.values], axis=1))
        best = most_context(places.begin, places.length).values
        tokens, own = tf.boolean_mask(tokens, best), tf.boolean_mask(own, best)
        found = tf.scatter_nd(tokens[:, tf.newaxis], own, [tf.size(starts.values, tf.int64), 2])
        return {"start": starts.values, "end": limits.values, "logits": found}


def _choose(
    spans: Spans,
    nulls: tf.Tensor,
    offsets: tuple[tf.RaggedTensor, tf.RaggedTensor],
    context: tf.Tensor,
    options: contexts.SquadOptions,
) -> dict[str, tf.Tensor]:
    """Returns the outputs; `nulls` score having no answer, `offsets` are those of all tokens."""
    count = tf.shape(context, tf.int64)[0]
    starts, limits = (
        tf.gather(values.values, tf.gather(values.row_starts(), spans.question) + tokens)
        for values, tokens in zip(offsets, (spans.start, spans.end), strict=True)
    )

    def by_question(values):
        return tf.RaggedTensor.from_value_rowids(values, spans.question, count, validate=False)

    scores = spans.start_logit + spans.end_logit
    rows = (*map(by_question, (scores, starts, limits)), nulls, context)
    start, end, score, odds = tf.map_fn(
        lambda row: _choose_one(*row, options),
        rows,
        fn_output_signature=(tf.int64, tf.int64, tf.float32, tf.float32),
    )
    outputs = {
        "text": tf.strings.substr(context, start, end - start),
        "start": start,
        "end": end,
        "score": score,
    }
    return outputs if options.threshold is None else outputs | {"null_odds": odds}


def _choose_one(scores, starts, limits, null, context, options):
    """Returns start, end, probability and null odds of the answer to one question."""
    order = tf.argsort(scores, direction="DESCENDING", stable=True)
    scores, starts, limits = (tf.gather(values, order) for values in (scores, starts, limits))
    texts, which = tf.unique(tf.strings.substr(context, starts, limits - starts))
    first = tf.math.unsorted_segment_min(tf.range(tf.size(which)), which, tf.size(texts))
    kept = tf.gather(scores, first)[: options.n_best_size]
    # Having no answer takes the place of a worse candidate.
    full = tf.equal(tf.size(kept), options.n_best_size)
    worst = tf.concat([[_IMPOSSIBLE], kept], 0)[-1]
    kept = kept[: tf.size(kept) - tf.cast(full & (null > worst), tf.int32)]
    total = tf.reduce_logsumexp(tf.concat([kept, [null]], 0))
    found = tf.size(scores) > 0
    best, start, end = (
        tf.concat([values, tf.constant([default], values.dtype)], 0)[0]
        for values, default in ((scores, _IMPOSSIBLE), (starts, 0), (limits, 0))
    )
    if options.threshold is None:
        return start, end, tf.where(found, tf.exp(best - total), 0.0), 0.0
    odds = tf.where(found, null - best, CERTAINLY_NULL)
    unanswered = odds > options.threshold
    start, end = (tf.where(unanswered, tf.constant(0, tf.int64), x) for x in (start, end))
    return start, end, tf.exp(tf.where(unanswered, null, best) - total), odds


class SquadTask(Task):
    """Finds the answers to questions in contexts.

    Args:
        options: questions with null odds above its threshold get no answer; without one, every
            question has an answer, as in SQuAD 1.1.

    Source: google-research/bert run_squad.py.
    """

    head = Head("span")
    objective = SpanObjective()
    token_outputs = ("logits",)
    long_inputs = "Contexts of any length are read in windows of {} tokens."

    def __init__(self, options: contexts.SquadOptions):
        self._options = options
        self._nulls = options.threshold is not None
        self.name, self._version = ("squad2", "v2.0") if self._nulls else ("squad", "v1.1")
        self.metrics = ("best_f1", "best_exact", "f1", "exact")
        if not self._nulls:
            self.metrics = ("f1", "exact_match")
        self.metric = self.metrics[0]

    def read(self, files: DataFiles, split: str) -> SquadExamples:
        path, name = getattr(files, f"{split}_file"), f"{split}-{self._version}.json"
        if path or files.data_dir:
            return read_squad_file(path or f"{files.data_dir}/{name}", split, self._nulls)
        if split == "test":
            raise FileNotFoundError("SQuAD's test set is not public: give --test_file")
        if not files.are_official:
            raise files.missing(self.name, split, name)
        return read_squad_tfds(f"squad/{self._version}", split, self._nulls)

    def hold_out(self, examples: SquadExamples) -> tuple[SquadExamples, SquadExamples]:
        """Holds out the questions on a tenth of the contexts."""
        none = np.zeros(len(examples.contexts), bool)
        chosen, notes = choose_held_out(none, none)
        held, kept = [], []
        for question in examples.questions:
            (held if chosen[question.context] else kept).append(question)
        tenth = dataclasses.replace(examples, questions=held, notes=notes)
        return dataclasses.replace(examples, questions=kept), tenth

    def featurize(
        self, examples: SquadExamples, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> contexts.SquadFeatures:
        lengths = self._options.max_query_length, self._options.doc_stride
        features = contexts.make_features(examples, tokenizer, max_seq_length, *lengths)
        if not self._nulls or not examples.has_answers:
            return features
        answerable = np.array([bool(question.answers) for question in examples.questions])
        notes = note_constant(answerable, lambda some: "with an answer" if some else "unanswerable")
        return dataclasses.replace(features, notes=(*features.notes, *notes))

    def decode(self, outputs: Outputs, features: contexts.SquadFeatures) -> dict[str, list[Answer]]:
        """Returns the answers to all questions."""
        return {"answers": find_answers(outputs["logits"], features, self._options)}

    def score(self, outputs: Outputs, features: contexts.SquadFeatures) -> dict[str, float]:
        """Returns the metrics of the official scripts, as shares; see `squad.answers`."""
        found = outputs["answers"]
        predictions = [answer.text for answer in found]
        answers = [question.answers for question in features.examples.questions]
        if not self._nulls:
            return score(predictions, answers)
        odds = [answer.null_odds for answer in found]
        return score_with_nulls(predictions, odds, answers, self._options.threshold)

    def problem(self, outputs: Outputs, features: contexts.SquadFeatures) -> str | None:
        """Reports an F1 that needs no model: of answering no question, or of comparing words."""
        scores, least = self.score(outputs, features), _SLIDING_WINDOW_F1
        # Rounded, because a mean of 0.2 may be 0.19999999999999998.
        found, answerable = round(scores[self.metrics[0]], 9), scores.get("HasAns_f1", 0.0)
        comparison = f"below the {least:.2f} that comparing words reaches without training"
        if self._nulls:
            questions = features.examples.questions
            least = sum(not question.answers for question in questions) / len(questions)
            comparison = f"hardly above the {least:.3f} of leaving every question unanswered"
        if found >= min(1.0, least + _MARGIN * self._nulls) or answerable >= _SLIDING_WINDOW_F1:
            return None
        return f"the model's {self.metrics[0]} is {found:.3f}, {comparison}: it ignores its input"

    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: contexts.SquadFeatures
    ) -> list[str]:
        """Writes predictions.json, nbest_predictions.json and, with null odds, null_odds.json.

        The names of splits other than "dev" are part of the names: predictions_test.json.
        """
        ids = [question.id for question in features.examples.questions]
        found, threshold = dict(zip(ids, outputs["answers"], strict=True)), self._options.threshold
        contents: dict[str, dict[str, Any]] = {
            "predictions": {
                id_: "" if self._nulls and answer.null_odds > threshold else answer.text
                for id_, answer in found.items()
            },
            "nbest_predictions": {
                id_: [candidate._asdict() for candidate in answer.candidates]
                for id_, answer in found.items()
            },
        }
        if self._nulls:
            contents["null_odds"] = {id_: answer.null_odds for id_, answer in found.items()}
        suffix = "" if split == "dev" else f"_{split}"
        names = []
        for name, content in contents.items():
            names.append(f"{name}{suffix}.json")
            write_json(f"{folder}/{names[-1]}", content, ensure_ascii=False)
        return names

    def serving(
        self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> AnswerModule:
        return AnswerModule(model, tokenizer, max_seq_length, self._options)

    def example_call(self) -> str:
        odds = ", and the null_odds" if self._nulls else ""
        return (
            '(["Who came?"], ["Ann came."])  # a dict: the text of the answer, its start and end '
            f"in the context in bytes, and its score, a probability{odds}"
        )


def make_squad(name: str, options: FineTuningOptions, head: Head | None = None) -> SquadTask:
    """Creates the task from the flags: "squad", or "squad2" with unanswerable questions."""
    if options.max_seq_length:
        contexts.check_lengths(options.max_seq_length, options.max_query_length)
    squad_options = contexts.SquadOptions(
        options.doc_stride,
        options.max_query_length,
        options.n_best_size or 20,
        options.max_answer_length or 30,
        None if name == "squad" else options.null_score_diff_threshold or 0.0,
    )
    return SquadTask(squad_options)
