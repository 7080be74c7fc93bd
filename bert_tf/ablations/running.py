"""Runs the rows of an ablation, each in processes of its own, and writes the table."""

import dataclasses
import json
from typing import Any

import tensorflow as tf

from bert_tf.ablations.ablation_options import AblationOptions
from bert_tf.ablations.entities import ENTITIES
from bert_tf.ablations.plan import RowPlan, changed_flags, make_plan
from bert_tf.ablations.table import write_tables
from bert_tf.finetuning.runs.run_process import Diverged, run_apart
from bert_tf.finetuning.runs.sweep import sweep
from bert_tf.runs.run import FLAGS, Run
from tfrecords.command_help import command_line
from tfrecords.progress import say
from tfrecords.writer import atomic_write

# Flags that may differ when an ablation goes on: they add rows and runs.
_FREE = frozenset({"rows", "tasks", "data_dir", "num_seeds"})


def run_ablation(options: AblationOptions) -> dict[str, Any]:
    """Pre-trains and fine-tunes every row of a grid, and compares them with the paper's.

    Finished runs are kept, and an interrupted one resumes. A run that diverges leaves its cell
    empty. The tables are written after each row: GRID.txt, GRID.tsv, GRID.json, and for steps
    GRID.png.

    Returns:
        the values of GRID.json.

    Raises:
        ValueError, OSError: as `make_plan`; also if the folder holds rows of other flags.
        Interrupted: a signal stopped training, after a checkpoint was saved.
    """
    # This process trains nothing, and must leave the memory of GPUs to those that do.
    tf.config.set_visible_devices([], "GPU")
    Run(options.folder).check_flags(dataclasses.asdict(options), free=_FREE)
    plans = make_plan(options)
    flags = json.dumps(dataclasses.asdict(options), indent=2)
    atomic_write(Run(options.folder).file(FLAGS), f"{flags}\n")
    values: dict[str, Any] = {}
    for number, plan in enumerate(plans, start=1):
        say(f"\nRow {number} of {len(plans)}: {plan.row.name}")
        try:
            _run_row(options, plan)
        except Diverged as error:
            print(f"WARNING: {plan.row.name} diverged: {error}")
        values = write_tables(options, plans)
    print(f"\n{values['text']}\nWrote {options.output_dir}: {', '.join(values['files'])}.")
    return values


def _run_row(options: AblationOptions, plan: RowPlan) -> None:
    run = plan.pretraining
    if plan.evaluation:
        say(f"{run.output_dir} is finished.")
    else:
        say(f"$ {command_line('bert_tf.run_pretraining', **changed_flags(run))}")
        run_apart("bert_tf.pretraining.pretrain:pretrain", run)
    if options.lexicon_file and not Run(plan.folder).read_json(ENTITIES):
        say(f"Measuring the accuracy on the phrases of {options.lexicon_file} ...")
        name = "bert_tf.ablations.entities:evaluate_entities"
        run_apart(name, run, options.lexicon_file, plan.folder)
    for run in plan.finetuning.values():
        say(f"\n$ {command_line('bert_tf.run_finetuning', **changed_flags(run))}")
        try:
            sweep(run)
        except Diverged as error:
            print(f"WARNING: {run.output_dir} diverged: {error}")
