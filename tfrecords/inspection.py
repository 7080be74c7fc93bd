"""Checks all records of pre-training files against the rules and their manifests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from tfrecords.features import Layout
from tfrecords.input_files import listed_files, normalized
from tfrecords.manifest import shard_entry, stored_vocabulary
from tfrecords.progress import progress_bar
from tfrecords.records import (
    FRAME_BYTES,
    READING_ERRORS,
    Batch,
    compression_of,
    first_bad_record,
    first_records,
    first_violation,
    open_records,
    problem_of_record,
)
from tfrecords.statistics import RecordStatistics
from tfrecords.vocabulary import Vocabulary, continues_word, load_vocab

BATCH_RECORDS = 1024
LEGEND = {
    "masked": "[shown→hidden] hides the token after the arrow; {token} is predicted as it is.",
    "dynamic": "· joins words that are masked as one unit; nothing is masked yet.",
}


@dataclass
class Inspection:
    """The results of an inspection.

    Attributes:
        problems: one line per problem, starting with the name of the file.
        examples: the first few records, features [length].
        statistics: sums over the valid records that precede the first bad one of each file; None
            if there are none.
    """

    problems: list[str] = field(default_factory=list)
    examples: list[Batch] = field(default_factory=list)
    statistics: RecordStatistics | None = None


def find_vocabulary(
    vocab_file: str | None, manifests: Mapping[str, dict]
) -> tuple[Vocabulary, str] | None:
    """Returns the vocabulary of the file, or of the first manifest with one, and its source."""
    if vocab_file:
        return load_vocab(vocab_file), vocab_file
    for path, manifest in manifests.items():
        if vocab := stored_vocabulary(path, manifest):
            return vocab, path
    return None


def check_vocabulary(vocab: Vocabulary, source: str, manifests: Mapping[str, dict]) -> list[str]:
    """Returns a line for each manifest with a different vocabulary or the checksum of one."""
    problems = []
    for path, manifest in manifests.items():
        stored = stored_vocabulary(path, manifest)
        stated = {manifest.get("settings", {}).get("vocab_file"), stored and stored.sha256}
        if stated - {None, vocab.sha256}:
            problems.append(
                f"{path}: the records were created with a vocabulary other than that of {source}"
            )
    return problems


def inspect_files(
    files: Sequence[str], manifests: Mapping[str, dict], vocab: Vocabulary | None, num_examples: int
) -> Inspection:
    """Checks all records of all files.

    Args:
        manifests: by path; if there are any, they must list the files.
        vocab: if given, also check ids against it.

    Example:
        problems = inspect_files(["data/train.tfrecord"], {}, vocab=None, num_examples=0).problems
    """
    result = Inspection()
    layout: Layout | None = None
    entries = listed_files(manifests)
    total = sum(tf.io.gfile.stat(file).length for file in files)
    with progress_bar(total=total, desc="Reading", unit="B", unit_scale=True, delay=2) as progress:
        for file in files:
            try:
                layout = layout or _first_layout(file)
                result.statistics = result.statistics or RecordStatistics(layout, vocab)
                count = 0
                for batch, size in _checked_batches(file, layout, vocab):
                    rows = len(batch["input_mask"])
                    for row in range(min(rows, num_examples - len(result.examples))):
                        result.examples.append({name: x[row] for name, x in batch.items()})
                    result.statistics.add(batch)
                    count += rows
                    progress.update(size)
                if manifests:
                    _check_entry(file, count, entries.get(normalized(file)))
            except (OSError, ValueError) as problem:
                result.problems.append(str(problem))
    result.problems += [
        f"{file}: listed in the manifest, but missing"
        for file in entries
        if not tf.io.gfile.exists(file)
    ]
    return result


def render_record(record: Batch, vocab: Vocabulary | None) -> str:
    """Returns one record [length] as a line of text with word pieces joined and masks marked.

    Without a vocabulary, tokens are shown as ids.
    """
    length = int(record["input_mask"].sum())
    shown = [_token(index, vocab) for index in record["input_word_ids"][:length].tolist()]
    # The hidden tokens determine which tokens continue a word.
    hidden = list(shown)
    if "masked_lm_ids" in record:
        count = int(record["masked_lm_weights"].sum())
        positions = record["masked_lm_positions"][:count].tolist()
        labels = record["masked_lm_ids"][:count].tolist()
        for position, label in zip(positions, labels, strict=True):
            hidden[position] = _token(label, vocab)
            same = shown[position] == hidden[position]
            name = "MASK" if shown[position] == "[MASK]" else shown[position]
            shown[position] = f"{{{name}}}" if same else f"[{name}→{hidden[position]}]"
    starts = record.get("word_starts")
    special = {vocab.cls_id, vocab.sep_id} if vocab else set()
    line = shown[0]
    for column in range(1, length):
        continues = continues_word(hidden[column])
        joined = False
        if starts is not None:
            joined = not starts[column] and int(record["input_word_ids"][column]) not in special
            continues = continues and joined
        text = shown[column]
        if continues:
            line += text[2:] if text == hidden[column] else text
        else:
            line += f"{'·' if joined and vocab else ' '}{text}"
    return line


def _token(index: int, vocab: Vocabulary | None) -> str:
    return vocab.tokens[index] if vocab else str(index)


def _first_layout(file: str) -> Layout:
    (first,) = first_records([file])
    layout = Layout.of(first)
    if problem := problem_of_record(first, layout):
        raise ValueError(f"{file}, record 1: {problem}")
    return layout


def _checked_batches(
    file: str, layout: Layout, vocab: Vocabulary | None
) -> Iterator[tuple[Batch, int]]:
    """Yields all records of a file in batches, and the bytes that each batch takes in the file."""

    def problem_of(serialized: bytes) -> str | None:
        found = Layout.of(serialized)
        if problem := problem_of_record(serialized, found):
            return problem
        return f"{found}, but the first record has {layout}" if found != layout else None

    compression = compression_of(file)
    consumed = done = 0
    try:
        for serialized in open_records(file, compression).batch(BATCH_RECORDS).prefetch(4):
            batch = {name: value.numpy() for name, value in layout.parse(serialized).items()}
            if violation := first_violation(batch, vocab):
                row, message = violation
                raise ValueError(f"{file}, record {done + row + 1}: {message}")
            done += len(batch["input_mask"])
            size = int(tf.reduce_sum(tf.strings.length(serialized))) + FRAME_BYTES * len(serialized)
            consumed += size
            yield batch, size
    except READING_ERRORS as error:
        # The batch is lost, so its records are read one by one.
        problem = first_bad_record(file, problem_of, done)
        message = f"{file}, after record {done}: cannot be read ({' '.join(str(error).split())})"
        raise ValueError(problem or message) from None
    # TensorFlow mistakes the first bytes of a truncated record for the end of the file.
    if not compression and consumed != tf.io.gfile.stat(file).length:
        raise ValueError(f"{file}, record {done + 1}: truncated in its first bytes")


def _check_entry(file: str, count: int, entry: dict | None) -> None:
    """Compares a file with its entry in the manifest."""
    if entry is None:
        raise ValueError(f"{file}: not in the manifest")
    actual = shard_entry(file, count)
    for key in ("bytes", "records", "sha256"):
        if actual[key] != entry[key]:
            raise ValueError(f"{file}: {key} is {actual[key]}, but {entry[key]} in the manifest")
