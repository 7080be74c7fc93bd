"""Questions and contexts -> windows of tokens with the places of answers."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import counted
from bert_tf.finetuning.squad.questions import SquadExamples
from bert_tf.finetuning.tokenizing import Features, map_texts
from bert_tf.text.bert_preprocessor import join_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

# [CLS], and [SEP] after the question and after the context.
_SPECIAL_TOKENS = 3


class SquadOptions(NamedTuple):
    """The flags of these names; `threshold` is None if every question has an answer."""

    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    threshold: float | None = None


class Places(NamedTuple):
    """Where windows lie, int64 [W] each.

    `question` is the index of the question; ascending. `begin` is the first token in the window,
    among those of the contexts of all questions, `offset` which token of its context that is, and
    `first` its position in the window. `length` is the number of tokens of the context in the
    window.
    """

    question: tf.Tensor
    begin: tf.Tensor
    offset: tf.Tensor
    first: tf.Tensor
    length: tf.Tensor


def check_lengths(max_seq_length: int, max_query_length: int) -> None:
    """Checks that a window has room for the context."""
    if max_seq_length <= max_query_length + _SPECIAL_TOKENS:
        raise ValueError(
            f"--max_seq_length={max_seq_length} leaves no room for the context beside questions of "
            f"--max_query_length={max_query_length} and {_SPECIAL_TOKENS} special tokens: 384 is "
            "usual for SQuAD"
        )


def split_contexts(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    max_seq_length: int,
    doc_stride: int,
    vocab: Vocabulary,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, Places]:
    """Splits contexts into overlapping windows; a context without tokens has one empty window.

    Both have token ids, int32 [Q, (tokens)]; a question leaves room for at least one token of the
    context. There are `doc_stride` tokens between the starts of neighboring windows, or less where
    windows are shorter. Returns ids and types, int32 [W, (length)], and where the windows lie.
    """
    query_lengths, lengths = questions.row_lengths(), contexts.row_lengths()
    room = max_seq_length - _SPECIAL_TOKENS - query_lengths
    stride = tf.minimum(tf.constant(doc_stride, tf.int64), room)
    counts = 1 + tf.maximum(lengths - room + stride - 1, 0) // stride
    numbers = tf.ragged.range(counts)
    question = numbers.value_rowids()
    offset = numbers.values * tf.gather(stride, question)
    windows = Places(
        question,
        tf.gather(contexts.row_starts(), question) + offset,
        offset,
        tf.gather(query_lengths, question) + 2,
        tf.minimum(tf.gather(room, question), tf.gather(lengths, question) - offset),
    )
    tokens = tf.ragged.range(windows.begin, windows.begin + windows.length)
    parts = tf.gather(contexts.values, tokens)
    return *join_segments([tf.gather(questions, question), parts], vocab), windows


@dataclass(frozen=True, kw_only=True)
class SquadFeatures(Features):
    """Windows; the targets are `start` and `end`, the positions of the answer or 0.

    `windows` says where they lie, as NumPy arrays. `starts` and `limits` are the byte offsets of
    every token, int64 [contexts, (tokens)].
    """

    examples: SquadExamples
    windows: Places
    starts: tf.RaggedTensor
    limits: tf.RaggedTensor

    def count(self) -> str:
        """Returns the numbers of questions, contexts and windows in words."""
        return (
            f"{counted(len(self.examples), 'question')} on "
            f"{counted(len({x.context for x in self.examples.questions}), 'context')} in "
            f"{counted(len(self), 'window')} of up to {self.max_seq_length} tokens"
        )


def make_features(
    examples: SquadExamples,
    tokenizer: WordPieceTokenizer,
    max_seq_length: int,
    max_query_length: int,
    doc_stride: int,
) -> SquadFeatures:
    """Tokenizes questions and contexts and makes windows, showing a progress bar."""
    check_lengths(max_seq_length, max_query_length)

    def tokenize(contexts):
        return [values.merge_dims(1, 2) for values in tokenizer.tokenize_with_offsets(contexts)]

    parts = map_texts(tokenize, [examples.contexts], "context")
    ids, starts, limits = (tf.concat(values, axis=0) for values in zip(*parts, strict=True))
    questions = [question.text.encode() for question in examples.questions]
    queries = tf.RaggedTensor.from_row_splits(*tokenizer.tokenize_lines(questions))
    contexts = np.array([question.context for question in examples.questions])
    row_ids, types, windows = split_contexts(
        queries[:, :max_query_length],
        tf.gather(ids, contexts),
        max_seq_length,
        doc_stride,
        tokenizer.vocab,
    )
    windows = Places(*(values.numpy() for values in windows))
    cut = int(np.sum(queries.row_lengths() > max_query_length))
    cut = [f"{counted(cut, 'question')} truncated to {max_query_length} tokens"] if cut else []
    return SquadFeatures(
        ids=row_ids,
        types=types,
        targets=_targets(examples, starts, limits, windows) if examples.has_answers else {},
        examples=examples,
        vocab=tokenizer.vocab,
        max_seq_length=max_seq_length,
        notes=(*cut, *examples.notes),
        windows=windows,
        starts=starts,
        limits=limits,
    )


def _targets(
    examples: SquadExamples, starts: tf.RaggedTensor, limits: tf.RaggedTensor, windows: Places
) -> dict[str, np.ndarray]:
    """Returns the positions of the answer in every window, int32 [W]; 0 where it is not in it."""
    first, last = answer_tokens(examples, starts, limits)
    first, last = (tokens[windows.question] - windows.offset for tokens in (first, last))
    inside = (first >= 0) & (last < windows.length) & (first <= last)
    targets = {"start": first, "end": last}
    return {
        name: np.where(inside, tokens + windows.first, 0).astype(np.int32)
        for name, tokens in targets.items()
    }


def answer_tokens(
    examples: SquadExamples, starts: tf.RaggedTensor, limits: tf.RaggedTensor
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and last token that overlap with each answer, or -1 and -1; int64 [Q]."""
    splits = starts.row_splits.numpy()
    starts, limits = starts.values.numpy(), limits.values.numpy()
    found = np.full((2, len(examples)), -1)
    for index, question in enumerate(examples.questions):
        if question.span:
            rows = slice(*splits[question.context : question.context + 2])
            found[0, index] = np.searchsorted(limits[rows], question.span[0], side="right")
            found[1, index] = np.searchsorted(starts[rows], question.span[1], side="left") - 1
    return found[0], found[1]
