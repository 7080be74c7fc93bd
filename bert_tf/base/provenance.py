"""What output was made from: described beside it, and compared with what a command would use now.

A description maps the names of flags to their values, and those of files and other data to
mappings: "bytes" and a checksum such as "sha256", or else when the file was "modified".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.base import __version__
from bert_tf.base.files import file_sha256, named_errors, shortened
from bert_tf.base.output_files import REPLACE, check_free
from bert_tf.base.progress import progress_bar
from bert_tf.base.storage import file_size, storage

Description = Mapping[str, Any]
# What descriptions say of a file, beside its checksum.
FILE_KIND = {"file?": str, "bytes?": int}
# The part of a manifest that `description_of` reads.
MADE = {"settings?": dict[str, Any], "inputs?": list[FILE_KIND]}


def describe(settings: Mapping[str, Any], inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Describes output as a manifest does: by the version, the flags and the inputs."""
    return {"bert_tf": __version__, "settings": dict(settings), "inputs": inputs}


def describe_files(files: Sequence[str]) -> list[dict[str, Any]]:
    """Describes files as `inputs` of a manifest do, by their checksums, too.

    Those that TensorFlow cannot open are described by what their store says: to read them would
    be to download them.
    """
    local = [file for file in files if storage(file) is tf.io.gfile]
    digests = dict(zip(local, _checksums(local), strict=True))
    stated = {file: {"sha256": digest} for file, digest in digests.items()}
    return [describe_file(file) | stated.get(file, {}) for file in files]


def _checksums(files: Sequence[str]) -> list[str]:
    bar = dict(desc="Computing checksums", unit="B", unit_scale=True, delay=2)
    with progress_bar(total=sum(map(file_size, files)), **bar) as shown:
        return [file_sha256(file, shown.update) for file in files]


def describe_file(file: str) -> dict[str, Any]:
    """Describes a file as `inputs` of a manifest do, without reading it."""
    with named_errors(f"cannot read {file}"):
        stat = storage(file).stat(file)
    return {"file": file, "bytes": stat.length, "modified": stat.mtime_nsec}


def description_of(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the description that a manifest contains, without the version; {} without one."""
    if not manifest:
        return {}
    # By their numbers: the same files under other names give the same output.
    files = {f"input {n}": entry for n, entry in enumerate(manifest.get("inputs", []), start=1)}
    return manifest.get("settings", {}) | files


def is_same(manifest: Mapping[str, Any] | None, description: Mapping[str, Any]) -> bool:
    """Returns whether what a manifest describes was made from what `description` states."""
    return not any(differences(description_of(manifest), description_of(description)))


def differences(before: Description, now: Description) -> Iterator[str]:
    """Names what differs between two descriptions, each in a few words."""
    if now and not before:
        yield "nothing says which"
        return
    for name in {**now, **before}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if not (isinstance(old, Mapping | None) and isinstance(new, Mapping | None)):
            yield f"{name}={old}, not {new}"
        elif change := _change(old, new):
            file = (new or old).get("file")
            yield f"{name}{f' ({file})' if file else ''} {change}"


def _change(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str | None:
    if before is None or now is None:
        return "is gone" if before else "is new"
    sizes = before.get("bytes"), now.get("bytes")
    if None not in sizes and sizes[0] != sizes[1]:
        return f"had {sizes[0]:,} bytes and has {sizes[1]:,}"
    # The kinds of checksum differ if a manifest was added or removed since.
    compared = before.keys() & now.keys() - {"file", "bytes", "modified"} or {"modified"}
    return "has changed" if any(before.get(x) != now.get(x) for x in compared) else None


def check_same(path: str, before: Description, now: Description, advice: str) -> None:
    """Checks that the output at a path was made from what a command would use now.

    `before` is what it was made from, {} if nothing says so; `advice` says what to do otherwise.
    """
    if found := shortened(list(differences(before, now))):
        raise ValueError(f"{path} was made from other flags or data ({found}): {advice}")


def kept_files(
    path: str,
    manifest: Mapping[str, Any] | None,
    description: Mapping[str, Any],
    recorded: Mapping[str, str | None],
    overwrite: bool,
) -> set[str]:
    """Returns the files of an output that are there, made as described, and unchanged since then.

    `recorded` are all files of the output, with their checksums if the manifest at the path states
    them. Without `overwrite`, it is an error if anything else is in their places.
    """
    found = [file for file in recorded if tf.io.gfile.exists(file)]
    if not is_same(manifest, description):
        for file in [] if overwrite else found:
            check_same(file, description_of(manifest), description_of(description), REPLACE)
        found = []
    stated = [file for file in found if recorded[file]]
    digests = zip(stated, _checksums(stated), strict=True)
    changed = [file for file, digest in digests if digest != recorded[file]]
    if changed and not overwrite:
        raise ValueError(
            f"{shortened(changed)}: the checksum differs from that in {path}: remove it to create "
            "it again, or replace it with --overwrite"
        )
    kept = {*found} - {*changed}
    if not overwrite:
        check_free(*(recorded.keys() - kept))  # a link that leads nowhere
    return kept
