"""Checkpoints of other programs, one module per format.

recognizes(path)
    whether a path is a checkpoint of the format, or a folder that holds one
open_(path, config, ignored)
    opens it. `config` counts if there is no configuration beside the checkpoint; `ignored` are
    patterns of additional weights to leave out. A ValueError or OSError names the file.
write(checkpoint, folder)
    writes a checkpoint into an empty folder. A ValueError says what the other programs lack.
"""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def download_errors(name: str) -> Iterator[None]:
    """Turns any error in the block into an OSError of one line."""
    try:
        yield
    # Libraries raise errors of their own, of their HTTP clients and of the operating system.
    except Exception as error:
        line = " ".join(str(error).split())
        advice = "check the name or address, and the network"
        raise OSError(f"cannot download {name}: {line}; {advice}") from error
