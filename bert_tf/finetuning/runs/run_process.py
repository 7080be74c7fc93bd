"""Makes a run in a process of its own, whose memory is free when it ends."""

import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tfrecords import command


class Options(Protocol):
    """The flags of a run; importing their module must not import TensorFlow."""

    output_dir: str


class Diverged(ValueError):
    """The loss or the predictions of a run were not finite."""


def run_apart(name: str, options: Options, *arguments: Any) -> dict[str, float]:
    """Returns what a function returns; TensorFlow would keep memory of every run in its process.

    SIGTERM and Ctrl-C reach this process only; it passes them on, and the run saves a checkpoint.

    Args:
        name: the module and the function, such as "bert_tf.finetuning.fine_tune:fine_tune".
        options, arguments: the arguments of the function.

    Raises:
        Diverged: the loss was not finite.
        ValueError, OSError, MemoryError: the run raised such an error, or its process died.
        SystemExit: the run was stopped, or has printed a traceback.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # A daemon, because a second signal to this process ends it, and the run with it.
    process = context.Process(target=_run, args=(sender, name, (options, *arguments)), daemon=True)
    process.start()
    sender.close()
    try:
        outcome = receiver.recv()
    except EOFError:
        process.join()
        outcome = _failure(process.exitcode, options.output_dir)
    except BaseException:
        process.terminate()
        process.join()
        raise
    process.join()
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _failure(code: int, folder: str) -> BaseException:
    if code >= 0:
        return SystemExit(code)
    return OSError(
        f"the process that trained {folder} was killed by signal {-code}, perhaps because the "
        "system ran out of memory: run the same command to resume"
    )


def _run(sender: Connection, name: str, arguments: tuple) -> None:
    """Sends the results, or an error that a user can fix."""
    os.setsid()  # so that Ctrl-C in a terminal is for the other process alone
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    command.import_tensorflow()
    import tensorflow as tf

    from bert_tf.finite import NonFinite

    try:
        outcome = resolve(name)(*arguments)
    except NonFinite as error:
        outcome = Diverged(str(error))
    except ValueError as error:
        outcome = ValueError(str(error))
    except OSError as error:
        outcome = OSError(str(error))
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        outcome = MemoryError(str(error))
    sender.send(outcome)
    command.end_process(0)


def resolve(name: str) -> Callable[..., dict[str, float]]:
    """Imports the function of a name such as "bert_tf.finetuning.fine_tune:fine_tune"."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _exit_with_parent() -> None:
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
