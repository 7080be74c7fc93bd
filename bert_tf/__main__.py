"""bert-tf: every command of the project under one name, also as `python -m bert_tf`."""

import difflib
import os
import sys

from bert_tf.base import SUMMARY, command
from bert_tf.base.command_help import table, wrapped
from bert_tf.base.process import import_command

_STEPS = {
    "All steps, on text that every machine has": {
        "quickstart": "bert_tf.quickstart",
    },
    "Text to examples": {
        "build-vocab": "bert_tf.build_vocab",
        "create-pretraining-data": "bert_tf.create_pretraining_data",
        "inspect": "tfrecords.inspect",
    },
    "Pre-training": {"pretrain": "bert_tf.run_pretraining", "device-check": "bert_tf.device_check"},
    "Fine-tuning": {
        "finetune": "bert_tf.run_finetuning",
        "compress": "bert_tf.compress",
        "ablation": "bert_tf.ablation",
        "results": "bert_tf.results",
        "glue-submission": "bert_tf.glue_submission",
    },
    "New text": {
        "predict": "bert_tf.predict",
        "fill-mask": "bert_tf.fill_mask",
        "extract-features": "bert_tf.extract_features",
        "explore": "bert_tf.explore",
    },
    "SavedModels and other formats": {
        "export-encoder": "export.encoder",
        "export-preprocessor": "export.preprocessor",
        "export-classifier": "export.classifier",
        "export-embedder": "export.embedder",
        "export-lite": "export.lite",
        "export-onnx": "export.onnx",
        "export-bundle": "export.bundle",
        "export-check": "export.check",
        "convert-checkpoint": "bert_tf.convert_checkpoint",
    },
    "In a shell": {
        "completion": "bert_tf.completion",
    },
}
COMMANDS = {name: module for commands in _STEPS.values() for name, module in commands.items()}
_EXIT_CODES = """\
Exit codes: 0 success; 1 an error, which the last line explains; 2 a wrong command or flag, before
anything was done; 130 stopped by Ctrl-C; 143 stopped by SIGTERM."""


def main() -> None:
    """Runs the command that the first argument names, with the other arguments."""
    command.main(_main)


def _main() -> None:
    program = "bert-tf"
    if os.path.basename(sys.argv[0]) == "__main__.py":
        program = "python -m bert_tf"
    sys.argv[0] = program
    name, *arguments = sys.argv[1:] or ["help"]
    if name == "help" and arguments:
        name, *arguments = arguments[0], "--help"
    if name in COMMANDS:
        sys.argv = [f"{program} {name}", *arguments]
        import_command(COMMANDS[name])
        command.run(COMMANDS[name])
    elif name in ("help", "--help", "--helpfull", "-h"):
        print(_help(program))
    elif name == "--version":
        print(command.VERSION)
    else:
        similar = difflib.get_close_matches(name, [*COMMANDS, "--help", "--version"], 1)
        hint = f"did you mean {similar[0]}?" if similar else "--help lists all commands"
        command.fail(f"{name} is not a command: {hint}", 2)


def _help(program: str) -> str:
    """Returns what every command does, in the words of its module."""
    parts = [
        f"{command.VERSION}. {SUMMARY}.\n\n"
        f"  {program} COMMAND --flag=value ...\n  {program} help COMMAND"
    ]
    for step, commands in _STEPS.items():
        docs = ((name, import_command(commands[name]).__doc__) for name in commands)
        rows = [(name, text.partition("\n")[0]) for name, text in docs]
        parts.append("\n".join([step, *table(rows, 27)]))
    return wrapped("\n\n".join([*parts, _EXIT_CODES]))


if __name__ == "__main__":
    main()
