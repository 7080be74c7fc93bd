"""The table of fine-tuning tasks."""

from bert_tf.finetuning.task import Task
from bert_tf.finetuning.tasks import glue, imdb

TASKS = {task.name: task for task in (*glue.TASKS, *imdb.TASKS)}


def get_task(name: str) -> Task:
    """Returns the task with this name, in any case and with or without hyphens, as in "SST-2".

    Raises:
        ValueError: there is no such task.
    """
    key = name.lower().replace("-", "")
    if key not in TASKS:
        raise ValueError(f"no task {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[key]
