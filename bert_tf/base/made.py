"""What output was made from: recorded beside it, and compared with what a command would use now.

Manifests, the job.json of unfinished work and the made_from.json of runs all say it in this form.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from bert_tf.base import __version__
from bert_tf.base.files import file_sha256, named_errors, shortened
from bert_tf.base.output_files import REPLACE, check_free
from bert_tf.base.progress import progress_bar
from bert_tf.base.storage import file_size, storage

# Files and other data, each with "bytes" and a checksum such as "sha256", or when it was
# "modified". Those with a "name" are told apart by it, and those "of" the same set go together.
Inputs = Sequence[Mapping[str, Any]]
# The part of a file that `Made.from_dict` reads.
_INPUT = {"name?": str, "of?": str, "file?": str, "bytes?": int}
MADE = {"settings?": dict[str, Any], "inputs?": list[_INPUT]}


@dataclass(frozen=True)
class Made:
    """What output was made from; nothing if nothing says so. The version is not compared."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Inputs = ()
    version: str = __version__

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Made":
        """Returns what a file such as a manifest says; see `MADE`."""
        return cls(values.get("settings", {}), values.get("inputs", []), values.get("bert_tf", ""))

    def to_dict(self) -> dict[str, Any]:
        """Returns the form in which files hold it."""
        return {"bert_tf": self.version, "settings": dict(self.settings), "inputs": [*self.inputs]}

    @property
    def sets(self) -> dict[str, list[Mapping[str, Any]]]:
        """The inputs that have names, by the set that they are of, by default their own."""
        sets = {}
        for entry in self.inputs:
            sets.setdefault(entry.get("of", entry.get("name")), []).append(entry)
        return sets

    def only(self, names: Collection[str]) -> "Made":
        """Returns the inputs of some sets."""
        return Made(inputs=[x for name, xs in self.sets.items() if name in names for x in xs])

    def matches(self, now: "Made") -> bool:
        """Returns whether a command would make the same now."""
        return not any(self._differences(now))

    def check(self, path: str, now: "Made", advice: str) -> None:
        """Checks that a command would make the same now; if not, `advice` says what to do."""
        if found := shortened([*self._differences(now)]):
            raise ValueError(f"{path} was made from other flags or data ({found}): {advice}")

    def _differences(self, now: "Made") -> Iterator[str]:
        if not (self.settings or self.inputs) and (now.settings or now.inputs):
            yield "nothing says which"
            return
        for name in {**now.settings, **self.settings}:
            old, new = self.settings.get(name), now.settings.get(name)
            if old != new:
                yield f"{name}={old}, not {new}"
        # By their numbers: the same files under other names give the same output.
        before, after = (
            {x.get("name", f"input {n}"): x for n, x in enumerate(made.inputs, start=1)}
            for made in (self, now)
        )
        for name in {**after, **before}:
            if change := _change(before.get(name), after.get(name)):
                file = {**before, **after}[name].get("file")
                yield f"{name}{f' ({file})' if file else ''} {change}"


def _change(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str | None:
    if before is None or now is None:
        return "is gone" if before else "is new"
    sizes = before.get("bytes"), now.get("bytes")
    if None not in sizes and sizes[0] != sizes[1]:
        return f"had {sizes[0]:,} bytes and has {sizes[1]:,}"
    # The kinds of checksum differ if a manifest was added or removed since.
    others = {"name", "of", "file", "bytes", "modified"}
    compared = before.keys() & now.keys() - others or {"modified"}
    return "has changed" if any(before.get(x) != now.get(x) for x in compared) else None


def describe_files(files: Sequence[str]) -> Inputs:
    """Describes files by their checksums, or by what their store says.

    To read those that TensorFlow cannot open would be to download them.
    """
    inputs = []
    for file in files:
        with named_errors(f"cannot read {file}"):
            stat = storage(file).stat(file)
        inputs.append({"file": file, "bytes": stat.length, "modified": stat.mtime_nsec})
    local = [x for x in inputs if storage(x["file"]) is tf.io.gfile]
    for entry, digest in zip(local, _checksums([x["file"] for x in local]), strict=True):
        entry["sha256"] = digest
    return inputs


def _checksums(files: Sequence[str]) -> list[str]:
    bar = dict(desc="Computing checksums", unit="B", unit_scale=True, delay=2)
    with progress_bar(total=sum(map(file_size, files)), **bar) as shown:
        return [file_sha256(file, shown.update) for file in files]


def kept_files(
    path: str, before: Made, made: Made, recorded: Mapping[str, str | None], overwrite: bool
) -> set[str]:
    """Returns the files of an output that are there, made as a command would, and unchanged.

    `before` is what the manifest at the path says, `recorded` are all files with their checksums if
    it states them. Without `overwrite`, it is an error if anything else is in their places.
    """
    found = [file for file in recorded if tf.io.gfile.exists(file)]
    if found and not overwrite:
        before.check(found[0], made, REPLACE)
    ours = found if before.matches(made) else []
    stated = [file for file in ours if recorded[file]]
    digests = zip(stated, _checksums(stated), strict=True)
    changed = [file for file, digest in digests if digest != recorded[file]]
    if changed and not overwrite:
        raise ValueError(
            f"{shortened(changed)}: the checksum differs from that in {path}: remove it to create "
            "it again, or replace it with --overwrite"
        )
    kept = {*ours} - {*changed}
    if not overwrite:
        check_free(*(recorded.keys() - kept))  # a link that leads nowhere
    return kept
