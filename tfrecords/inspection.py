"""Checks all records of pre-training files against the rules and their manifests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from tfrecords.features import Layout
from tfrecords.input_files import expand_files, listed_files, normalized, shortened
from tfrecords.inspect import Options
from tfrecords.manifest import find_manifests, shard_entry, stored_vocabulary
from tfrecords.progress import counted, progress_bar, say
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
from tfrecords.vocabulary import Vocabulary, continues_word, load_vocab, warn_about_casing
from tfrecords.writer import check_output_files

BATCH_RECORDS = 1024
_LEGEND = {
    False: "[shown→hidden] hides the token after the arrow; {token} is predicted as it is.",
    True: "· joins words that are masked as one unit; nothing is masked yet.",
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


def inspect(options: Options) -> None:
    """Inspects the files and prints the results on standard output."""
    files = expand_files(options.input_file)
    manifests = find_manifests(files)
    if options.plot:
        read = [*files, *manifests, options.vocab_file]
        check_output_files([options.plot], read, options.overwrite, "plot")
    vocab, problems = _find_vocabulary(options.vocab_file, manifests)
    result = inspect_files(files, manifests, vocab, options.num_examples)
    if result.examples:
        say(_LEGEND["word_starts" in result.examples[0]])
        for number, example in enumerate(result.examples, start=1):
            label = int(example["next_sentence_labels"][0])
            say(f"\n{number}. (label {label}) {render_record(example, vocab)}")
        say("")
    if result.statistics:
        say("\n".join(result.statistics.lines()))
        if options.plot:
            result.statistics.plot(options.plot, options.overwrite)
            say(f"Wrote {options.plot}.")
    problems += result.problems
    for problem in problems:
        print(f"BAD {problem}")
    if problems:
        count = counted(len(problems), "problem")
        raise ValueError(f"{count} found: see the lines that start with BAD")
    compared = f"matches {', '.join(manifests)}" if manifests else "no manifest to compare with"
    print(f"No problems found in {shortened(files, most=1)} ({compared}).")


def _find_vocabulary(
    vocab_file: str | None, manifests: Mapping[str, dict]
) -> tuple[Vocabulary | None, list[str]]:
    """Returns the vocabulary, and a line for each manifest that states another one."""
    stored = {path: stored_vocabulary(path, manifest) for path, manifest in manifests.items()}
    if vocab_file:
        vocab, source = load_vocab(vocab_file), vocab_file
    else:
        found = ((vocab, path) for path, vocab in stored.items() if vocab)
        vocab, source = next(found, (None, ""))
    if not vocab:
        say("vocabulary: unknown (give --vocab_file to see words instead of ids)")
        return None, []
    say(f"vocabulary: {len(vocab):,} tokens from {source}")
    problems = []
    for path, manifest in manifests.items():
        settings = manifest.get("settings", {})
        stated = {settings.get("vocab_file"), stored[path] and stored[path].sha256}
        if stated - {None, vocab.sha256}:
            problems.append(
                f"{path}: the records were created with a vocabulary other than that of {source}"
            )
        warn_about_casing(vocab, settings.get("do_lower_case"), f"the vocabulary of {path}")
    return vocab, problems


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
