"""Makes a run in a process of its own, whose memory is free when it ends."""

import contextlib
import multiprocessing
import os
import pkgutil
import threading
from multiprocessing.connection import Connection, wait
from typing import Any

from bert_tf.base import command
from bert_tf.base.finite import NonFinite
from bert_tf.base.process import embedded, is_embedded


def run_apart(name: str, options: command.Options, *arguments: Any) -> dict[str, float]:
    """Returns what a function returns; TensorFlow would keep memory of every run in its process.

    SIGTERM and Ctrl-C reach this process only; it passes them on, and the run saves a checkpoint.

    `name` is that of the module and the function, as for `pkgutil.resolve_name`. Raises what a user
    can fix as the function did, and a SystemExit if the run was stopped or printed a traceback.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    call = sender, is_embedded(), name, (options, *arguments)
    # A daemon, because a second signal to this process ends it, and the run with it.
    process = context.Process(target=_run, args=call, daemon=True)
    process.start()
    sender.close()
    try:
        outcome = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode >= 0:
            raise SystemExit(process.exitcode) from None
        raise OSError(
            f"the process that trained {options.output_dir} was killed by signal "
            f"{-process.exitcode}, perhaps because the system ran out of memory: run the same "
            "command to resume"
        ) from None
    except BaseException:
        process.terminate()
        process.join()
        raise
    process.join()
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _run(sender: Connection, in_python: bool, name: str, arguments: tuple) -> None:
    """Sends the results, or an error that a user can fix; prints hints for the caller's user."""
    os.setsid()  # so that Ctrl-C in a terminal is for the other process alone
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    command.import_tensorflow()
    import tensorflow as tf

    try:
        with embedded() if in_python else contextlib.nullcontext():
            outcome = pkgutil.resolve_name(name)(*arguments)
    except NonFinite as error:
        outcome = NonFinite(str(error))
    except ValueError as error:
        outcome = ValueError(str(error))
    except OSError as error:
        outcome = OSError(str(error))
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        outcome = MemoryError(str(error))
    sender.send(outcome)
    command.end_process(0)


def _exit_with_parent() -> None:
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
