"""Creates pre-training files from text: what is asked, what is there already, what is left to do.

google-research/bert holds all examples in memory and shuffles them once, as a whole. Here memory
does not grow with the input, and the order is made in three steps: passes over chunks of text are
put in random order and dealt to the output files; the records of a *segment*, some dozens of such
passes, are shuffled together; a file is its segments, one after the other. So the `dupe_factor`
copies of a text lie far apart and neighbours come from all parts of the corpus, but the order is
not a uniform permutation of all examples. (The reader shuffles again.)

The same input, settings and seed give the same bytes, whoever does the work. What was made of what
is kept in a manifest beside the files, written last. Until then all state is in a work folder: the
same call after a failure, a kill or a power cut makes only what is missing.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import tensorflow as tf
from tqdm import tqdm

from bert_tf import __version__
from bert_tf.examples.documents import TextCounts
from bert_tf.examples.pipeline import ExampleCounts
from bert_tf.examples.plan import Segment, plan_segments
from bert_tf.examples.work import Work, known, read_json, write_json
from tfrecords.manifest import (
    MANIFEST_END,
    file_sha256,
    manifest_path,
    read_manifest,
    write_manifest,
)
from tfrecords.writer import make_folder


@dataclass
class Statistics:
    """What was read and made. `long_sentences` are those longer than any example."""

    text: TextCounts = field(default_factory=TextCounts)
    long_sentences: int = 0
    examples: ExampleCounts = field(default_factory=ExampleCounts)

    def to_dict(self) -> dict:
        return {
            "text": self.text.to_dict(),
            "long_sentences": self.long_sentences,
            "examples": self.examples.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: dict) -> "Statistics":
        return cls(
            TextCounts.from_dict(values["text"]),
            values["long_sentences"],
            ExampleCounts.from_dict(values["examples"]),
        )


class Runner(Protocol):
    """Does the two maps of data creation: `local.LocalRunner`, `beam.BeamRunner`."""

    def tokenize(self, work: Work) -> None:
        """Leaves every chunk of the input in the work folder."""

    def make(self, work: Work, names: list[str], shards: list[list[Segment]]) -> None:
        """Leaves the shards, given by their segments, under their final names."""


def work_folder(output_file: str) -> str:
    """Where the state of an unfinished run is kept."""
    return manifest_path(output_file).removesuffix(MANIFEST_END) + ".unfinished"


def create(
    work: Work, settings: dict[str, object], runner: Runner, overwrite: bool = False
) -> Statistics:
    """Makes what is missing of the output files, then their manifest.

    Args:
        settings: what the output depends on besides the input: flag name -> JSON value.
        overwrite: replace files that were made of something else.

    Raises:
        ValueError: the files there were made with other settings or of other input; names the
            difference. Or the text gives no example; nothing is left then.
        OSError: an input cannot be read or a file not written. The same call then goes on.
    """
    _check_work_folder(work)
    make_folder(work.folder)
    with _locked(work.folder):
        going_on = tf.io.gfile.exists(work.path("job.json"))
        try:
            job = _job(work, settings)
            statistics = _finished(work, job, overwrite)
        except (ValueError, OSError):
            if not going_on:
                tf.io.gfile.rmtree(work.folder)
            raise
        if not statistics:
            write_json(work.path("job.json"), job)
            try:
                statistics = _make(work, job, runner)
            except ValueError:
                # What an earlier run made may be worth hours; what this one did ends here again.
                if not going_on:
                    if not tf.io.gfile.exists(manifest_path(work.output_files[0])):
                        _remove(work.output_files[shard] for shard in _shards_made(work))
                    tf.io.gfile.rmtree(work.folder)
                raise
        tf.io.gfile.rmtree(work.folder)
        return statistics


def _make(work: Work, job: dict, runner: Runner) -> Statistics:
    names, tokens, statistics = _chunks(work, runner)
    segments = plan_segments(tokens, work.dupe_factor, len(work.output_files), work.seed)
    shards: list[list[Segment]] = [[] for _ in work.output_files]
    for segment in segments:
        shards[segment.shard].append(segment)
    _remove_old(work, job)
    missing = [shard for shard in shards if not _shard_done(work, shard[0].shard)]
    _remove(work.shard_path(shard[0].shard) for shard in missing)  # of files that are gone
    runner.make(work, names, missing)
    entries = [read_json(work.shard_path(shard)) for shard in range(len(shards))]
    for entry in entries:
        statistics.examples += ExampleCounts.from_dict(entry["counts"])
    write_manifest(
        manifest_path(work.output_files[0]),
        job | {"statistics": statistics.to_dict(), "shards": entries},
    )
    return statistics


def _chunks(work: Work, runner: Runner) -> tuple[list[str], list[int], Statistics]:
    """The names and sizes of the chunks that hold text, and what was read."""
    runner.tokenize(work)
    names, tokens, statistics = [], [], Statistics()
    made_here = tf.io.gfile.exists(work.path("chunks"))
    for file in sorted(tf.io.gfile.listdir(work.path("chunks")) if made_here else ()):
        name, ending = os.path.splitext(file)
        if ending != ".npz":
            continue
        made = known(work.path("chunks", file))
        assert made, f"{file} was made just now"
        statistics.text += TextCounts.from_dict(made["text"])
        statistics.long_sentences += made["long_sentences"]
        if made["tokens"]:
            names.append(name)
            tokens.append(made["tokens"])
    _check_text(work, statistics.text)
    return names, tokens, statistics


def _check_text(work: Work, counts: TextCounts) -> None:
    first, *others = [file for group in work.groups for file in group] or [work.tfds]
    source = f"{first} and {len(others)} more" if others else first
    if not counts.documents:
        raise ValueError(f"no text in {source}: only blank lines, or nothing the tokenizer keeps")
    if counts.sentences == 1:
        raise ValueError(
            f"only one sentence in {source}: write one sentence a line and a blank line between "
            "documents, or give --split_sentences"
        )


def _finished(work: Work, job: dict, overwrite: bool) -> Statistics | None:
    """The statistics of what is there already; None where something is to be made.

    Raises:
        ValueError: what is there is something else, and not to be overwritten.
    """
    unfinished = read_json(work.path("job.json"))
    if unfinished and not _difference(unfinished, job):
        return None
    manifest = manifest_path(work.output_files[0])
    old = _old_manifest(manifest, overwrite)
    if old and not _difference(old, job):
        _clear(work)
        for shard, entry in enumerate(old["shards"]):
            write_json(work.shard_path(shard), entry)
        if all(_shard_done(work, shard) for shard in range(len(work.output_files))):
            return Statistics.from_dict(old["statistics"])
        return None
    if not overwrite:
        for where, other in ((work.folder, unfinished), (manifest, old)):
            if other:
                raise ValueError(
                    f"{where} says that these files were made {_difference(other, job)}: name "
                    "another --output_file, or replace them with --overwrite"
                )
        for file in work.output_files:
            if tf.io.gfile.exists(file):
                raise ValueError(
                    f"{file} is there already, and no {os.path.basename(manifest)} beside it says "
                    "what made it: name another --output_file, or replace it with --overwrite"
                )
    _clear(work)
    return None


def _old_manifest(path: str, overwrite: bool) -> dict | None:
    """The manifest of what is there; None if there is none, or one not worth keeping."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        manifest = read_manifest(path)
        if not manifest.keys() >= {"bert_tf", "settings", "inputs", "statistics"}:
            raise ValueError(f"{path} does not say what the files were made of")
    except ValueError as error:
        if overwrite:
            return None
        raise ValueError(f"{error}: replace it with --overwrite") from None
    return manifest


def _shard_done(work: Work, shard: int) -> bool:
    entry, file = read_json(work.shard_path(shard)), work.output_files[shard]
    if not entry or not tf.io.gfile.exists(file):
        return False
    return entry.get("bytes") == tf.io.gfile.stat(file).length


def _difference(old: dict, new: dict) -> str | None:
    """In what two jobs differ first."""
    if old.get("bert_tf") != new["bert_tf"]:
        return f"by bert_tf {old.get('bert_tf')}, this is {new['bert_tf']}"
    settings = old.get("settings", {})
    for name, value in new["settings"].items():
        if settings.get(name) != value:
            return f"with --{name}={settings.get(name)}, now it is {value}"
    return _input_difference(old.get("inputs", []), new["inputs"])


def _input_difference(old: list[dict], new: list[dict]) -> str | None:
    if len(old) != len(new):
        return f"of {len(old)} input files, now there are {len(new)}"
    for before, now in zip(old, new, strict=True):
        if before["sha256"] != now["sha256"]:
            if before["file"] != now["file"]:
                return f"of {before['file']}, where now comes {now['file']}"
            return f"of {now['file']} as it was before it changed"
    return None


def _job(work: Work, settings: dict[str, object]) -> dict:
    files = [file for group in work.groups for file in group]
    known_files: dict[str, dict] = {}
    for path in (manifest_path(work.output_files[0]), work.path("job.json")):
        old = read_json(path) or {}
        known_files |= {entry["file"]: entry for entry in old.get("inputs", ())}
    return {
        "bert_tf": __version__,
        "settings": settings,
        "inputs": _fingerprints(files, known_files),
    }


def _fingerprints(files: Sequence[str], known: dict[str, dict]) -> list[dict]:
    """Size, time and checksum of every file; read only where size or time is not as known."""
    stats = {file: tf.io.gfile.stat(file) for file in files}
    entries = []
    with tqdm(
        total=sum(stat.length for stat in stats.values()),
        desc="Reading",
        unit="B",
        unit_scale=True,
        delay=2,
    ) as progress:
        for file in files:
            stat = stats[file]
            entry = {"file": file, "bytes": stat.length, "modified": stat.mtime_nsec}
            before = known.get(file, {})
            if entry.items() <= before.items():
                entries.append(before)
                progress.update(stat.length)
            else:
                entries.append(entry | {"sha256": file_sha256(file, progress.update)})
    return entries


def _remove_old(work: Work, job: dict) -> None:
    """Removes the manifest of something else, and its shards that have other names."""
    manifest = manifest_path(work.output_files[0])
    old = _old_manifest(manifest, overwrite=True)
    if old and not _difference(old, job):
        return
    ours = {os.path.basename(file) for file in work.output_files}
    folder = os.path.dirname(manifest)
    # A base name: what a manifest says cannot reach another folder.
    names = {os.path.basename(entry["file"]) for entry in old["shards"]} if old else set()
    _remove([manifest, *(os.path.join(folder, name) for name in names - ours)])


def _remove(files: Iterable[str]) -> None:
    for file in files:
        if tf.io.gfile.exists(file):
            tf.io.gfile.remove(file)


def _shards_made(work: Work) -> list[int]:
    return [
        shard
        for shard in range(len(work.output_files))
        if tf.io.gfile.exists(work.shard_path(shard))
    ]


def _check_work_folder(work: Work) -> None:
    folder = work.folder
    if tf.io.gfile.exists(folder) and not (
        tf.io.gfile.isdir(folder)
        and {"lock", "job.json"} & set(tf.io.gfile.listdir(folder) or ["lock"])
    ):
        raise ValueError(
            f"{folder} is in the way: unfinished work is kept under that name; rename it, or name "
            "another --output_file"
        )


def _clear(work: Work) -> None:
    for name in tf.io.gfile.listdir(work.folder):
        path = work.path(name.rstrip("/"))
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        elif name != "lock":
            tf.io.gfile.remove(path)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keeps a second run on this machine from the same work folder."""
    if "://" in folder:
        yield
        return
    with open(os.path.join(folder, "lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(f"another run is writing to {folder}: wait for it or stop it") from None
        yield
