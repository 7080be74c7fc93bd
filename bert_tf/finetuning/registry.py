"""The table of fine-tuning tasks."""

import dataclasses
from collections.abc import Callable, Sequence

from bert_tf.base.files import errors_at
from bert_tf.base.progress import say
from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.multi_task import MultiTask
from bert_tf.finetuning.saved_run import options_of
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.finetuning.tasks import csv_tables, glue, imdb, multiple_choice, squad, tagged_files
from bert_tf.finetuning.tasks.text_task import RegressionTask, number_head
from bert_tf.runs.run import FLAGS, Run
from bert_tf.weights.resolving import check_length, fitting_length

# Tasks without options.
TASKS: dict[str, Task] = {
    task.name: task for task in (*glue.TASKS, *imdb.TASKS, *multiple_choice.TASKS)
}
# Tasks made from their name, the flags and, if the model is trained already, from its head.
MAKERS: dict[str, Callable[[str, FineTuningOptions, Head | None], Task]] = {
    "ner": tagged_files.make_tagging,
    "squad": squad.make_squad,
    "squad2": squad.make_squad,
    csv_tables.CSV: csv_tables.make_csv_task,
}
# Source: google-research/bert run_classifier.py and run_squad.py.
_MAX_SEQ_LENGTHS = {"squad": 384, "squad2": 384}


def task_name(name: str) -> str:
    """Returns the name of a task that is given in any case and with or without hyphens."""
    if "," in name:
        return ",".join(map(task_name, name.split(",")))
    key = name.strip().lower().replace("-", "")
    if key not in TASKS.keys() | MAKERS.keys():
        raise ValueError(f"no task {name!r}: choose one of {', '.join([*TASKS, *MAKERS])}")
    return key


def with_length(
    options: FineTuningOptions, config: BertConfig, say: Callable[[str], None] = say
) -> FineTuningOptions:
    """Returns the options with a --max_seq_length; says if it is shorter because of the model."""
    if not options.max_seq_length:
        options = options.changed(max_seq_length=default_length(options.task, config))
        if options.max_seq_length < default_length(options.task):
            say(f"--max_seq_length is {options.max_seq_length}, the most that the model takes.")
    check_length(config, options.max_seq_length)
    return options


def default_length(name: str, config: BertConfig | None = None) -> int:
    """Returns the default --max_seq_length of a task: as the original's, or the model's most."""
    length = _MAX_SEQ_LENGTHS.get(name, 128)
    return fitting_length(config, length) if config else length


def make_task(options: FineTuningOptions, head: Head | None = None) -> Task:
    """Creates the task `options.task`; see `task_name` for its spellings.

    The head of a trained model names the classes of a task that otherwise collects them from the
    training file.
    """
    name = task_name(options.task)
    if "," in name:
        return _make_together(options, name.split(","))
    if name in MAKERS:
        task = MAKERS[name](name, options, head)
    elif name == "stsb" and options.label_type != "class":
        task = glue.make_similarity(options, head)
    else:
        task = TASKS[name]
        if head and isinstance(task, RegressionTask):
            # With the mean and the deviation of the numbers that the model learned.
            task = dataclasses.replace(task, head=number_head(head))
    task = task.with_files(DataFiles.of(options))
    return task.with_metric(options.metric) if options.metric else task


def _make_together(options: FineTuningOptions, names: Sequence[str]) -> MultiTask:
    unsuited = ("do_predict", "metric", "lora_rank", "class_weights", *DataFiles._fields[1:])
    options.refuse(unsuited, "does not suit several tasks at once")
    if len(set(names)) < len(names):
        raise ValueError(f"--task={','.join(names)} names a task twice: omit one")
    for name in names:
        if name in MAKERS or TASKS[name].head.kind != "classifier":
            raise ValueError(f"--task={name} trains alone: only GLUE and imdb train together")
    return MultiTask([make_task(options.changed(task=name)) for name in names])


def task_of_run(run: Run, **flags: float | None) -> Task:
    """Creates the task of a fine-tuning run from its flags and its head; `flags` replace some."""
    options = options_of_run(run).changed(**flags)
    with errors_at(run.file(FLAGS)):
        return make_task(options, run.head)


def options_of_run(run: Run) -> FineTuningOptions:
    """Returns the flags of a run of one task; raises a ValueError for any other folder."""
    flags = run.flags
    run.check_one_task()
    if not {"task", "output_dir"} <= flags.keys() or not run.head:
        raise ValueError(f"{run.path} holds no fine-tuning run: give the run folder of one")
    return options_of(run)
