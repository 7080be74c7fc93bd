"""Runs the rows of an ablation, each in processes of its own; writes their table and its picture.

Both show the results of the runs beside those of the paper.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.ablations.ablation_options import (
    GRIDS,
    LM_ACCURACY,
    PERPLEXITY,
    AblationOptions,
    parse_size,
)
from bert_tf.ablations.plan import RowPlan, count_parameters, make_plan
from bert_tf.base.command_help import command_line
from bert_tf.base.finite import NonFinite
from bert_tf.base.output_files import atomic_write, check_free, write_json
from bert_tf.base.progress import say
from bert_tf.config import sized_config
from bert_tf.examples.documents import Lexicon, read_phrases
from bert_tf.finetuning.run_process import run_apart
from bert_tf.finetuning.sweep import Score, ScoreTable, sweep
from bert_tf.inference.loading import load
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.plots.scores import ScoredModel, draw_lines, draw_scores
from bert_tf.plots.style import Picture
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.pretraining.run_records import check_records, name_records
from bert_tf.runs.run import FLAGS, SWEEP_RESULTS, Run
from tfrecords.dynamic_masking import graph_budget
from tfrecords.features import Layout
from tfrecords.reader import RecordSet, records_in_order
from tfrecords.records import serialized_records

# What the JSON file says about a row.
Values = Mapping[str, Any]
_PAPER_VOCABULARY = 30522


def run_ablation(options: AblationOptions) -> dict[str, Any]:
    """Pre-trains and fine-tunes every row of a grid, and compares them with the paper's.

    Finished runs are kept, and an interrupted one resumes. A run that diverges leaves its cell
    empty. The table is written after each row, to GRID.txt, GRID.png and GRID.json, of which the
    values are returned. A table without scores has no picture.

    Raises what `make_plan` does, also if the folder holds rows of other flags, and an Interrupted
    if a signal stopped training, after a checkpoint was saved.
    """
    # This process trains nothing, and must leave the memory of GPUs to those that do.
    tf.config.set_visible_devices([], "GPU")
    run = Run(options.folder)
    run.check_flags(options.values("place"))
    if "grid" not in run.flags:
        files = [f"{options.folder}.{end}" for end in ("json", "txt", "png")]
        check_free(run.file(FLAGS), *files, advice="move it away, or choose another --output_dir")
    plans = make_plan(options)
    write_json(run.file(FLAGS), dataclasses.asdict(options))
    values: dict[str, Any] = {}
    for number, plan in enumerate(plans, start=1):
        say(f"\nRow {number} of {len(plans)}: {plan.row.name}")
        try:
            _run_row(options, plan)
        except NonFinite as error:
            print(f"WARNING: {plan.row.name} diverged: {error}")
        values = write_grid(options, plans)
    files = ", .json and .png" if values["columns"] else " and .json"
    print(f"\n{values['text']}\nWrote {options.folder}.txt{files}.")
    return values


def _run_row(options: AblationOptions, plan: RowPlan) -> None:
    run = plan.pretraining
    if plan.evaluation:
        say(f"{run.output_dir} is finished.")
    elif run:
        say(f"$ {command_line('bert_tf.run_pretraining', **run.unusual)}")
        run_apart("bert_tf.pretraining.pretrain:pretrain", run)
    if options.lexicon_file and not Run(plan.folder).read_json(ENTITIES):
        say(f"Measuring the accuracy on the phrases of {options.lexicon_file} ...")
        name = "bert_tf.ablations.running:evaluate_entities"
        run_apart(name, run, options.lexicon_file, plan.folder)
    for run in plan.finetuning.values():
        say(f"\n$ {command_line('bert_tf.run_finetuning', **run.unusual)}")
        try:
            sweep(run)
        except NonFinite as error:
            print(f"WARNING: {run.output_dir} diverged: {error}")


def read_scores(plan: RowPlan) -> dict[str, Score]:
    """Reads the scores of a row's finished runs, by column; accuracies and F1 in percent."""
    scores = {}
    if evaluation := plan.evaluation:
        scores[PERPLEXITY] = Score(evaluation["masked_lm_perplexity"])
        scores[LM_ACCURACY] = Score(100 * evaluation["masked_lm_accuracy"])
    entities = Run(plan.folder).read_json(ENTITIES)
    shares = [name for name in GRIDS["entities"].results if name in entities]
    scores |= {name: Score(100 * entities[name]) for name in shares}
    for column, options in plan.finetuning.items():
        results = Run(options.output_dir).read_json(SWEEP_RESULTS)
        if not results:
            continue
        (setting,) = results["settings"]
        # A seed that diverged has no results.
        if sum(run is not None for run in setting["runs"].values()) == options.num_seeds:
            metric = setting["summary"][column.metric or results["metric"]]
            scores[column.name] = Score(*(100 * value for value in metric.values()))
    return scores


def write_grid(options: AblationOptions, plans: Sequence[RowPlan]) -> dict[str, Any]:
    """Writes GRID.txt, .png and .json; returns the values of .json, with the table as `text`."""
    grid = GRIDS[options.grid]
    names = [*grid.results, *(column.name for column in plans[0].finetuning)]
    rows = []
    for plan in plans:
        row, scores = plan.row, read_scores(plan)
        paper = row.beside or row.name
        theirs = sized_config(parse_size(paper), _PAPER_VOCABULARY) if row.size else None
        rows.append(
            {
                "row": row.name,
                "paper_row": paper if row.published else None,
                "paper_parameters": theirs and count_parameters(theirs),
                "run": row.run or None,
                "step": plan.step,
                "labels": row.labels or None,
                "parameters": count_parameters(plan.config),
                "config": dataclasses.asdict(plan.config),
                "scores": {name: scores[name]._asdict() for name in scores if name in names},
                "published": dict(row.published),
            }
        )
    values = {name: getattr(grid, name) for name in ("title", "axis")}
    values |= {"grid": options.grid, "columns": names, "rows": rows}
    text = _table(values).text()
    write_json(f"{options.folder}.json", values)
    atomic_write(f"{options.folder}.txt", f"{text}\n")
    if names:
        atomic_write(f"{options.folder}.png", draw_ablation(values).png())
    return values | {"text": text}


def draw_ablation(values: Values) -> Picture:
    """Draws the content of GRID.json: sizes as points, lines over its axis, other rows as bars."""
    axis, groups = values["axis"], dict[str, list[ScoredModel]]()
    for row in values["rows"]:
        ours = {name: (score["mean"], score["deviation"]) for name, score in row["scores"].items()}
        model = ScoredModel(row["row"], row[axis or "parameters"], ours)
        groups.setdefault(row["run"] if axis else "measured", []).append(model)
        if row["published"]:
            theirs = {name: (score, None) for name, score in row["published"].items()}
            model = ScoredModel(row["paper_row"], row["paper_parameters"], theirs)
            groups.setdefault("paper", []).append(model)
    drawn = values["columns"], groups, values["title"]
    return draw_lines(*drawn, axis) if axis else draw_scores(*drawn, values["grid"] == "sizes")


def _table(values: Values) -> ScoreTable:
    """Returns the table, with a column of the paper beside each of ours that it has."""
    names, rows, axis = values["columns"], values["rows"], values["axis"]
    published = {name for row in rows for name in row["published"]}
    has_others = any(row["paper_row"] not in (None, row["row"]) for row in rows)
    header, lines = ["", "parameters"], []
    if axis:
        header.append(axis)
    for name in names:
        header += [name, "paper"] if name in published else [name]
    for row in rows:
        line = [row["row"], f"{row['parameters']:,}"]
        if axis:
            line.append(f"{row[axis]:,}")
        for name in names:
            ours, paper = row["scores"].get(name), row["published"].get(name)
            scores = [ours and Score(**ours), paper and Score(paper)][: 1 + (name in published)]
            if name == PERPLEXITY:
                scores = [score and score.text(form=",.2f") for score in scores]
            line += scores
        lines.append([*line, row["paper_row"]] if has_others else line)
    if has_others:
        header.append("paper's row")
    return ScoreTable(values["title"], header, lines, form=",.1f")


ENTITIES = "entities.json"


def evaluate_entities(
    options: PretrainingOptions, lexicon_file: str, output_dir: str
) -> dict[str, float]:
    """Measures how many masked phrases a pre-trained model predicts fully, in held-out records.

    In each record, phrases of two or more tokens are masked as a whole, in random order, as far as
    the share of tokens to predict allows. A phrase counts as right if all of its tokens are. All
    models are tested on the same phrases, whatever they were trained with.

    `options` are those of the finished run, whose records are dynamic and were created with
    `lexicon_file`. The results go to `entities.json` in `output_dir`.

    Source: ERNIE: Enhanced Representation through Knowledge Integration (arXiv:1904.09223) section
    3.2 and the cloze test of section 4.6.
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

    `batches` are the features of dynamic `records`, which state the share of tokens to predict. The
    result has `entity_accuracy`, `token_accuracy` and the number of phrases, `entities`; it is
    empty if there are none.
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
    batch: dict[str, np.ndarray], lexicon: Lexicon, records: RecordSet, random: np.random.Generator
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
        # A phrase that data creation did not join, as one over two sentences, is not a unit.
        if end - start > 1 and not starts.ravel()[start + 1 : end].any():
            row, column = divmod(start, length)
            found[row].append((column, column + end - start))
    lengths, share = batch["input_mask"].sum(axis=1), records.masking.masked_lm_prob
    budgets = graph_budget(lengths, share, records.max_predictions_per_seq).numpy()
    chosen: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    for row, budget in enumerate(budgets):
        for index in random.permutation(len(found[row])):
            start, end = found[row][index]
            if end - start <= budget:
                chosen[row].append((start, end))
                budget -= end - start
    return chosen
