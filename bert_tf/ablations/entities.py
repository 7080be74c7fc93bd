"""The accuracy on whole entities: how many masked phrases of a lexicon a model predicts fully.

Source: ERNIE: Enhanced Representation through Knowledge Integration (arXiv:1904.09223) section 3.2
and the cloze test of section 4.6.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.output_files import write_json
from bert_tf.examples.units import Lexicon, read_phrases
from bert_tf.loading import load
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.pretraining.records import check_records, name_records
from bert_tf.runs.run import Run
from tfrecords.dynamic_masking import graph_budget
from tfrecords.features import Layout
from tfrecords.reader import RecordSet, records_in_order
from tfrecords.records import serialized_records

ENTITIES = "entities.json"


def evaluate_entities(
    options: PretrainingOptions, lexicon_file: str, output_dir: str
) -> dict[str, float]:
    """Measures the accuracy of a pre-trained model on the phrases of held-out records.

    In each record, phrases of two or more tokens are masked as a whole, in random order, as far as
    the share of tokens to predict allows. A phrase counts as right if all of its tokens are. All
    models are tested on the same phrases, whatever they were trained with.

    `options` are those of the finished run, whose records are dynamic and were created with
    `lexicon_file`. The results go to `entities.json` in `output_dir`.
    """
    spec = Run(options.output_dir).spec
    (phase,) = check_records(options, spec, name_records(options), ())
    model, tokenizer, _ = load(options.output_dir)
    lexicon = Lexicon(read_phrases(lexicon_file), tokenizer)
    records = phase.evaluation
    layout = Layout.of(next(serialized_records(records.files[0])))
    serialized = records_in_order(records)
    batches = (
        {name: values.numpy() for name, values in layout.parse(batch).items()}
        for batch in serialized.batch(options.eval_batch_size).take(options.max_eval_steps)
    )
    results = entity_accuracy(model, batches, lexicon, records)
    if not results:
        raise ValueError(
            f"the held-out records contain no phrase of several tokens from {lexicon_file}: use "
            "more records or another lexicon"
        )
    write_json(f"{output_dir}/{ENTITIES}", results)
    return results


def entity_accuracy(
    model: BertPretrainer,
    batches: Iterator[dict[str, np.ndarray]],
    lexicon: Lexicon,
    records: RecordSet,
) -> dict[str, float]:
    """Returns the shares of phrases and of their tokens that are predicted correctly.

    `batches` are the features of dynamic `records`, which state the share of tokens to predict.

    Returns:
        `entity_accuracy`, `token_accuracy` and the number of phrases, `entities`; {} if there are
        none.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def predict(inputs):
        return tf.argmax(model(inputs, training=False)["mlm_logits"], axis=-1, output_type=tf.int32)

    random = np.random.default_rng(records.masking.seed)
    rights: list[np.ndarray] = []
    for batch in batches:
        chosen = choose_entities(batch, lexicon, records, random)
        ids = batch["input_word_ids"]
        masked = ids.copy()
        positions = np.zeros((len(ids), records.max_predictions_per_seq), np.int32)
        for row, spans in enumerate(chosen):
            columns = [column for span in spans for column in range(*span)]
            masked[row, columns] = records.masking.mask_id
            positions[row, : len(columns)] = columns
        inputs = {name: batch[name] for name in ("input_mask", "input_type_ids")}
        inputs |= {"input_word_ids": masked, "masked_lm_positions": positions}
        right = predict(inputs).numpy() == np.take_along_axis(ids, positions, axis=1)
        for row, spans in enumerate(chosen):
            ends = np.cumsum([end - start for start, end in spans])
            rights += np.split(right[row], ends)[: len(spans)]
    if not rights:
        return {}
    return {
        "entity_accuracy": float(np.mean([right.all() for right in rights])),
        "token_accuracy": float(np.concatenate(rights).mean()),
        "entities": len(rights),
    }


def choose_entities(
    batch: dict[str, np.ndarray],
    lexicon: Lexicon,
    records: RecordSet,
    random: np.random.Generator,
) -> list[list[tuple[int, int]]]:
    """Returns the columns [start, end) of the phrases to mask in each row, in random order."""
    ids, starts = batch["input_word_ids"], batch["word_starts"] > 0
    rows, length = ids.shape
    special = ~batch["input_mask"].astype(bool) | np.isin(
        ids, (records.masking.cls_id, records.masking.sep_id)
    )
    borders = np.arange(0, rows * length + 1, length)
    found: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    for start, end in lexicon.find(ids.ravel(), (starts | special).ravel(), borders):
        # A phrase that data creation did not join, as one over two sentences, is no unit.
        if end - start > 1 and not starts.ravel()[start + 1 : end].any():
            row, column = divmod(start, length)
            found[row].append((column, column + end - start))
    lengths, share = batch["input_mask"].sum(axis=1), records.masking.masked_lm_prob
    budgets = graph_budget(lengths, share, records.max_predictions_per_seq).numpy()
    return [
        _within(budget, [spans[i] for i in random.permutation(len(spans))])
        for budget, spans in zip(budgets, found, strict=True)
    ]


def _within(budget: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the spans, in order, that fit into the budget; skips the others."""
    taken = []
    for start, end in spans:
        if end - start <= budget:
            taken.append((start, end))
            budget -= end - start
    return taken
