"""Checks point by point whether a SavedModel keeps the interface that others expect of it.

  python -m export.check FOLDER

or python -m export.check --saved_model_dir=FOLDER. The folder, of any origin, holds one of these:

- an encoder or a preprocessor with the interface of TensorFlow Hub's and the Model Garden's;
- a model from text to answers, such as a classifier, which must suit TensorFlow Serving.

Each line says "ok", "WRONG" with what was found, or "advice", for what is recommended. The model is
also called: on other batches and lengths, in training, and after it was saved and moved. If a point
is wrong, the command ends with an error.
"""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    saved_model_dir: str = option(
        help="Folder of the SavedModel. The name of the flag may be left out.", positional=True
    )


def run(options: Options) -> None:
    """Checks a SavedModel and prints a line for each point.

    Raises:
        ValueError: the folder holds no such SavedModel, or a point is wrong.
        OSError: the SavedModel cannot be read.
    """
    from export.checks.examining import RESULTS, examine, open_subject

    subject, kind, points = open_subject(options.saved_model_dir)
    print(f"{options.saved_model_dir} is {kind}.")
    counts = dict.fromkeys(RESULTS, 0)
    for result, line in examine(subject, points):
        counts[result] += 1
        print(f"{result:<8}{line}", flush=True)
    print(f"{counts['ok']} of {sum(counts.values())} points hold.")
    if wrong := counts["WRONG"]:
        raise ValueError(f"{options.saved_model_dir} is wrong in {wrong} points: see above")


def main() -> None:
    """Runs the command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()
