"""Checks pre-training records, prints statistics and shows some records.

  python -m tfrecords.inspect --input_file='train.tfrecord-*' --num_examples=3 --plot=lengths.png

It checks the framing and checksums of the records, the lengths and values of all features, and the
size, number of records and checksum of each file against the manifest beside it. If the vocabulary
is known, it also checks where [CLS] and [SEP] are, shows words instead of ids, and distinguishes
[MASK] from random tokens. The vocabulary is that of the manifest unless --vocab_file is given. If
anything is wrong, the exit code is 1 and a line that starts with BAD names each problem.
"""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option
from tfrecords.progress import counted, say


@dataclass(frozen=True)
class Options(command.Options):
    """The flags of the command."""

    input_file: str = option(help="TFRecord files, comma-separated; globs allowed.")
    vocab_file: str | None = option(
        None, "Vocabulary that the records were created with. Default: that of the manifest."
    )
    num_examples: int = option(3, "Number of records to show.", at_least=0)
    plot: str | None = option(
        None,
        "Image file (.png, .svg, .pdf) to write with a plot of lengths, fill and masked positions.",
    )


def run(options: Options) -> None:
    """Inspects the files and prints the results on standard output."""
    from tfrecords import inspection
    from tfrecords.input_files import expand_files
    from tfrecords.manifest import find_manifests
    from tfrecords.vocabulary import warn_about_casing

    files = expand_files(options.input_file)
    manifests = find_manifests(files)
    vocab, problems = None, []
    if found := inspection.find_vocabulary(options.vocab_file, manifests):
        vocab, source = found
        say(f"vocabulary: {len(vocab):,} tokens from {source}")
        problems = inspection.check_vocabulary(vocab, source, manifests)
        for path, manifest in manifests.items():
            lower_case = manifest.get("settings", {}).get("do_lower_case")
            warn_about_casing(vocab, lower_case, f"the vocabulary of {path}")
    else:
        say("vocabulary: unknown (give --vocab_file to see words instead of ids)")
    result = inspection.inspect_files(files, manifests, vocab, options.num_examples)
    if result.examples:
        dynamic = "word_starts" in result.examples[0]
        say(inspection.LEGEND["dynamic" if dynamic else "masked"])
        for number, example in enumerate(result.examples, start=1):
            label = int(example["next_sentence_labels"][0])
            say(f"\n{number}. (label {label}) {inspection.render_record(example, vocab)}")
        say("")
    if result.statistics:
        say("\n".join(result.statistics.lines()))
        if options.plot:
            result.statistics.plot(options.plot)
            say(f"Wrote {options.plot}.")
    problems += result.problems
    for problem in problems:
        print(f"BAD {problem}")
    if problems:
        count = counted(len(problems), "problem")
        raise ValueError(f"{count} found: see the lines that start with BAD")
    checked = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    compared = f"matches {', '.join(manifests)}" if manifests else "no manifest to compare with"
    print(f"No problems found in {checked} ({compared}).")


if __name__ == "__main__":
    command.run(__name__)
