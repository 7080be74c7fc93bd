"""Checks whether a SavedModel has the interface that its users expect.

  python -m export.check FOLDER

Any program may have written the folder. It is checked as one of these:
- an encoder or a preprocessor, with the interface of TensorFlow Hub's and the Model Garden's;
- a model from text to predictions, such as a classifier, for TensorFlow Serving.

Each line says "ok", "WRONG" with what was found, or "advice" for what is recommended but not
required. The command calls the model with different batch sizes and lengths, in training, after the
model was saved again and moved, and, in a process of its own, with inputs of other shapes. If a
check fails, the command ends with an error.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.progress import say


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    saved_model_dir: str = option(
        help="Folder of the SavedModel. The name of the flag may be left out.", kind="positional"
    )


def run(options: Options) -> None:
    """Checks a SavedModel and prints a line for each point."""
    from export.checks import calls
    from export.checks.examining import RESULTS, examine, open_subject

    subject, kind, points = open_subject(options.saved_model_dir)
    say(f"{options.saved_model_dir} is {kind}.")
    counts = dict.fromkeys(RESULTS, 0)
    for result, line in examine(subject, [*points, calls.POINT]):
        counts[result] += 1
        show = say if result == "ok" else print
        show(f"{result:<8}{line}")
    print(f"{counts['ok']} of {sum(counts.values())} checks passed.")
    if wrong := counts["WRONG"]:
        raise ValueError(f"{options.saved_model_dir} has lines marked WRONG ({wrong}): see above")


if __name__ == "__main__":
    command.run(__name__)
