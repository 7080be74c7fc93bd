"""Checks all records of pre-training files against the rules and their manifests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from bert_tf.base.files import expand_files, normalized, shortened
from bert_tf.base.output_files import check_output_files
from bert_tf.base.progress import counted, progress_bar, say
from tfrecords import records
from tfrecords.features import Layout
from tfrecords.inspect import Options
from tfrecords.manifest import find_manifests, listed_files, shard_entry, stored_vocabulary
from tfrecords.records import FeatureBatch, Rules
from tfrecords.statistics import SEGMENT_LABELS, RecordStatistics
from tfrecords.vocabulary import Vocabulary, continues_word, load_vocab, warn_about_casing

# Problems that are listed one by one.
_MOST_LINES = 100
_LEGEND = {
    False: "[shown→hidden] hides the token after the arrow; {token} is predicted as it is.",
    True: "· joins words that are masked as one unit; nothing is masked yet.",
}


@dataclass
class Inspection:
    """The results of an inspection.

    Attributes:
        problems: one line per problem or bad record, starting with the name of the file.
        examples: the first few records, features [length].
        statistics: sums over the valid records; None if no file has records.
    """

    problems: list[str] = field(default_factory=list)
    examples: list[FeatureBatch] = field(default_factory=list)
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
    objectives = [x.get("settings", {}).get("objective", "nsp") for x in manifests.values()]
    names = SEGMENT_LABELS.get((objectives or ["nsp"])[0], ("0", "1"))
    if result.examples:
        say(_LEGEND["word_starts" in result.examples[0]])
        for number, example in enumerate(result.examples, start=1):
            label = int(example["next_sentence_labels"][0])
            name = f"{names[label]}, " if example["input_type_ids"].any() else ""
            say(f"\n{number}. ({name}label {label}) {render_record(example, vocab)}")
        say("")
    if result.statistics:
        say("\n".join(result.statistics.lines(names)))
        if options.plot:
            result.statistics.plot(options.plot, options.overwrite)
            say(f"Wrote {options.plot}.")
    problems += result.problems
    for problem in problems[:_MOST_LINES]:
        print(f"BAD {problem}")
    if more := problems[_MOST_LINES:]:
        print(f"... and {len(more):,} more")
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
    result, entries = Inspection(), listed_files(manifests)
    rules: Rules | None = None
    total = sum(tf.io.gfile.stat(file).length for file in files)
    with progress_bar(total=total, desc="Reading", unit="B", unit_scale=True, delay=2) as progress:
        for file in files:
            try:
                if not rules:
                    size = len(vocab) if vocab else tf.int32.max
                    rules = Rules(_first_layout(file), size, vocab=vocab)
                    result.statistics = RecordStatistics(rules.layout, vocab)
                count = 0
                for batch, problems, size in records.checked_batches(file, rules):
                    result.problems += (f"{file}, record {n}: {x}" for n, x in problems.items())
                    rows = len(batch["input_mask"])
                    for row in range(min(rows, num_examples - len(result.examples))):
                        result.examples.append({name: x[row] for name, x in batch.items()})
                    result.statistics.add(batch)
                    count += rows + len(problems)
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


def render_record(record: FeatureBatch, vocab: Vocabulary | None) -> str:
    """Returns a record [length] as text, with marked masks; as ids without a vocabulary."""
    length = int(record["input_mask"].sum())
    shown = [_token(index, vocab) for index in record["input_word_ids"][:length].tolist()]
    # The hidden tokens determine which tokens continue a word.
    hidden = list(shown)
    if "masked_lm_ids" in record:
        count = np.count_nonzero(record["masked_lm_weights"])
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
    """Returns the layout of the first record that has tokens."""
    (first,) = records.first_records([file])
    readable = records.open_records(file, records.compression_of(file)).ignore_errors()
    layouts = map(Layout.of, readable.as_numpy_iterator())
    if layout := next((x for x in layouts if x.max_seq_length), None):
        return layout
    raise ValueError(f"{file}, record 1: {Rules(Layout.of(first)).problem_of(first)}")


def _check_entry(file: str, count: int, entry: dict | None) -> None:
    """Compares a file with its entry in the manifest."""
    if entry is None:
        raise ValueError(f"{file}: not in the manifest")
    actual = shard_entry(file, count)
    for key in ("bytes", "records", "sha256"):
        if actual[key] != entry[key]:
            raise ValueError(f"{file}: {key} is {actual[key]}, but {entry[key]} in the manifest")
