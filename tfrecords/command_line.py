"""Writes commands as users type them, for messages that say what to run next."""

import itertools
import os
import shlex


def command_line(module: str, *texts: str, **flags: object) -> str:
    """Returns a command that can be pasted into a shell, whatever its values contain.

    Args:
        module: the command, such as "bert_tf.build_vocab".
        texts: arguments without the name of a flag.
        flags: their values; True and False turn a flag on and off, None leaves it out.
    """
    arguments = [_argument(name, value) for name, value in flags.items() if value is not None]
    return " ".join(["python -m", module, *arguments, *map(shlex.quote, texts)])


def _argument(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={shlex.quote(str(value))}"


def unused_name(name: str) -> str:
    """Returns `name`, or else the first of name-2, name-3, ... that does not exist yet.

    A suffix stays at the end: data.tfrecord, data-2.tfrecord.
    """
    stem, suffix = os.path.splitext(name)
    numbered = (f"{stem}-{number}{suffix}" for number in itertools.count(2))
    return next(path for path in itertools.chain([name], numbered) if not os.path.exists(path))
