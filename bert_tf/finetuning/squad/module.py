"""The module to export: questions and contexts -> answers, in the graph.

`answers.py` describes the choice of answers; this is the same choice, tested against it.
"""

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.serving import ServingModule
from bert_tf.finetuning.squad.answers import CERTAINLY_NULL, Spans, best_spans
from bert_tf.finetuning.squad.contexts import SquadOptions, check_lengths, split_contexts
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.preprocessor import with_equal_rows
from bert_tf.text.tokenizer import WordPieceTokenizer

# The score of the empty answer where every question has an answer.
_IMPOSSIBLE = -1e9


class AnswerModule(ServingModule):
    """Maps strings `question` and `context` [B] to the answers, [B] each.

    The outputs are `text`; `start` and `end`, int64, its byte offsets in the context; and `score`,
    float32, its probability. Contexts may have any length. If questions may be unanswerable, the
    text of such a question is "", its offsets are 0, and a further output, `null_odds`, float32, is
    the score of having no answer minus that of the best answer.

    Args:
        max_seq_length: the length of the windows.
    """

    truncates = ("question", "the --max_query_length of the run")

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
        options: SquadOptions,
    ):
        check_lengths(max_seq_length, options.max_query_length)

        def serve(question, context):
            question, context = with_equal_rows(question, context)
            queries = tokenizer.tokenize_flat(question)[:, : options.max_query_length]
            tokens = tokenizer.tokenize_with_offsets(context)
            ids, starts, limits = (values.merge_dims(1, 2) for values in tokens)
            rows, types, places = split_contexts(
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
            nulls = tf.math.segment_min(tf.reduce_sum(logits[:, 0], axis=1), places.question)
            if options.threshold is None:
                nulls = tf.fill(tf.shape(nulls), _IMPOSSIBLE)
            padding = inputs["input_mask"][:, :, tf.newaxis] == 0
            spans = best_spans(tf.where(padding, -np.inf, logits), places, options)
            return _choose(spans, nulls, (starts, limits), context, options)

        super().__init__(model, tokenizer, serve, {"question": 1, "context": 1})
        self._max_query_length = options.max_query_length

    def num_truncated(self, question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """Returns how many of some questions are truncated; contexts never are."""
        tokens = self._tokenizer.tokenize_flat(question).row_lengths()
        return tf.math.count_nonzero(tokens > self._max_query_length)


def _choose(
    spans: Spans,
    nulls: tf.Tensor,
    offsets: tuple[tf.RaggedTensor, tf.RaggedTensor],
    context: tf.Tensor,
    options: SquadOptions,
) -> dict[str, tf.Tensor]:
    """Returns the outputs of the module.

    Args:
        nulls: the score of having no answer, [B].
        offsets: the starts and limits of the tokens, bytes [B, (tokens)].
    """
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
