"""The table of an ablation: results of the runs beside those of the paper."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.ablations.ablation_options import AblationOptions
from bert_tf.ablations.entities import ENTITIES
from bert_tf.ablations.grids import GRIDS, PERPLEXITY, Column
from bert_tf.ablations.memory import count_parameters
from bert_tf.ablations.plan import RowPlan
from bert_tf.comparison.runs import Score
from bert_tf.finetuning.runs.tables import aligned
from bert_tf.plots.curves import draw_steps
from bert_tf.runs.run import SWEEP_RESULTS, Run
from bert_tf.training.reports import EVAL_RESULTS, read_results
from tfrecords.writer import atomic_write


def read_scores(plan: RowPlan) -> dict[str, Score]:
    """Reads the scores of a row from its run folders; what is not finished is left out.

    Returns:
        the scores by column, in the units of the papers: accuracies and F1 in percent.
    """
    run, scores = plan.pretraining, {}
    evaluation = read_results(f"{run.output_dir}/{EVAL_RESULTS}")
    if evaluation.get("global_step") == run.num_train_steps:
        scores[PERPLEXITY] = Score(evaluation["masked_lm_perplexity"])
    entities = Run(run.output_dir.rpartition("/")[0]).read_json(ENTITIES)
    shares = [name for name in GRIDS["entities"].results if name in entities]
    scores |= {name: Score(100 * entities[name]) for name in shares}
    for column, options in plan.finetuning.items():
        if score := _fine_tuned(column, options.output_dir, options.num_seeds):
            scores[column.name] = score
    return scores


def _fine_tuned(column: Column, folder: str, num_seeds: int) -> Score | None:
    results = Run(folder).read_json(SWEEP_RESULTS)
    if not results:
        return None
    (setting,) = results["settings"]
    if sum(run is not None for run in setting["runs"].values()) != num_seeds:
        return None
    metric = setting["summary"][column.metric or results["metric"]]
    deviation = metric.get("deviation")
    return Score(100 * metric["mean"], None if deviation is None else 100 * deviation)


def write_tables(options: AblationOptions, plans: Sequence[RowPlan]) -> dict[str, Any]:
    """Writes GRID.txt, GRID.tsv and GRID.json, and GRID.png for steps.

    Returns:
        the values of GRID.json, with the table as `text` and the names of the `files`.
    """
    grid, path = GRIDS[options.grid], f"{options.output_dir.rstrip('/')}/{options.grid}"
    names = [*grid.results, *(column.name for column in plans[0].finetuning)]
    rows = [_values(plan, names) for plan in plans]
    text = f"{grid.title}\n{aligned(_cells(names, rows))}"
    values = {"grid": options.grid, "title": grid.title, "columns": names, "rows": rows}
    atomic_write(f"{path}.json", json.dumps(values, indent=2) + "\n")
    atomic_write(f"{path}.tsv", _tsv(names, rows))
    atomic_write(f"{path}.txt", f"{text}\n")
    files = [f"{options.grid}.{suffix}" for suffix in ("txt", "tsv", "json")]
    if options.grid == "steps" and names:
        draw_steps(_curves(names, rows), f"{path}.png")
        files.append("steps.png")
    return values | {"text": text, "files": files}


def _values(plan: RowPlan, names: Sequence[str]) -> dict[str, Any]:
    """Returns what the JSON file says about a row."""
    scores = {name: score._asdict() for name, score in read_scores(plan).items() if name in names}
    return {
        "row": plan.row.name,
        "paper_row": plan.row.beside or plan.row.name if plan.row.published else None,
        "run": plan.row.run or None,
        "step": plan.step,
        "parameters": count_parameters(plan.config),
        "config": dataclasses.asdict(plan.config),
        "scores": scores,
        "published": dict(plan.row.published),
    }


def _cells(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the table as text; a column of the paper beside each of ours that it has."""
    published = {name for row in rows for name in row["published"]}
    header = ["", "parameters"] + ["step"] * _has_steps(rows)
    for name in names:
        header += [name, "paper"] if name in published else [name]
    cells = [header]
    for row in rows:
        line = [row["row"], f"{row['parameters']:,}"]
        line += [f"{row['step']:,}"] * _has_steps(rows)
        for name in names:
            line.append(_score(name, row["scores"].get(name)))
            line += [_number(name, row["published"].get(name))] * (name in published)
        cells.append(line)
    if any(row["paper_row"] not in (None, row["row"]) for row in rows):
        for line, row in zip(cells, [None, *rows], strict=True):
            line.append("paper's row" if row is None else row["paper_row"] or "-")
    return cells


def _has_steps(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["run"] for row in rows)


def _score(name: str, score: Mapping[str, float | None] | None) -> str:
    if not score:
        return "-"
    numbers = [value for value in score.values() if value is not None]
    return " ± ".join(_number(name, value) for value in numbers)


def _number(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value:,.{2 if name == PERPLEXITY else 1}f}"


def _tsv(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns one line per row: each score, its deviation over seeds and the paper's value."""
    lines = [["row", "paper_row", "step", "parameters"]]
    for name in names:
        lines[0] += [name, f"{name} deviation", f"{name} paper"]
    for row in rows:
        line = [row["row"], row["paper_row"], row["step"], row["parameters"]]
        for name in names:
            score = row["scores"].get(name, {})
            line += [score.get("mean"), score.get("deviation"), row["published"].get(name)]
        lines.append(["" if cell is None else str(cell) for cell in line])
    return "".join("\t".join(line) + "\n" for line in lines)


def _curves(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, list[tuple[float, float, float]]]]:
    """Returns for each column and each run the steps, means and deviations."""
    curves: dict[str, dict[str, list[tuple[float, float, float]]]] = {name: {} for name in names}
    for row in rows:
        for name, score in row["scores"].items():
            point = row["step"], score["mean"], score["deviation"] or 0.0
            curves[name].setdefault(row["run"], []).append(point)
    return curves
