"""Remembers which records a run was trained on, so that it does not resume on others unnoticed.

`records.json` in the run folder maps each --input_file and --eval_input_file, as the user gave it,
to its files: their sizes, and their checksums from the manifest or else those of their first bytes.
Another --input_file changes the records on purpose, so nothing is compared then.
"""

import hashlib
import json
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.pretraining.records import NamedRecords
from bert_tf.runs.provenance import check_same
from bert_tf.runs.run import RECORDS, Run
from tfrecords.input_files import listed_files, normalized
from tfrecords.writer import atomic_write

# Examples that are created again differ from the first on. Large files are never read as a whole.
_FIRST_BYTES = 2**16

# --input_file -> file -> "bytes" and "sha256" or "sha256_of_first_bytes".
Contents = dict[str, dict[str, dict[str, int | str]]]


def describe_records(records: Sequence[NamedRecords]) -> Contents:
    """Describes the files that the phases of a run read."""
    contents: Contents = {}
    for phase in records:
        listed = listed_files(phase.manifests)
        for pattern, files in phase.inputs.items():
            contents[pattern] = {
                file: {"bytes": size} | _checksum(file, listed.get(normalized(file)))
                for file, size in files.items()
            }
    return contents


def check_unchanged(run: Run, contents: Contents) -> None:
    """Checks that the files of a run that resumes are those that it was trained on."""
    before = run.read_json(RECORDS) if run.has_checkpoint else {}
    for pattern in contents.keys() & before.keys():
        advice = (
            f"restore what {pattern} named, or start a new run with --init_checkpoint={run.path}, "
            f"or remove {run.file(RECORDS)} to resume on the records as they are"
        )
        check_same(run.path, before[pattern], contents[pattern], advice)


def copies_of_records(run: Run, records: Sequence[NamedRecords]) -> list[str]:
    """Returns the files that have the size and checksum of one that the run was trained on."""
    known = [entry for files in run.read_json(RECORDS).values() for entry in files.values()]
    contents = describe_records(records)
    return [name for files in contents.values() for name, x in files.items() if x in known]


def remember_records(run: Run, contents: Contents) -> None:
    """Writes what the run is trained on; keeps entries for every other --input_file."""
    everything = run.read_json(RECORDS) | contents
    atomic_write(run.file(RECORDS), json.dumps(everything, indent=1, sort_keys=True) + "\n")


def _checksum(file: str, entry: dict | None) -> dict[str, str]:
    if entry:
        return {"sha256": entry["sha256"]}
    with tf.io.gfile.GFile(file, "rb") as stream:
        return {"sha256_of_first_bytes": hashlib.sha256(stream.read(_FIRST_BYTES)).hexdigest()}
