"""Checks every record of pre-training files, counts them and shows some.

  python -m tfrecords.inspect --input_file='train.tfrecord-*' --vocab_file=vocab.txt \\
    --num_examples=3 --plot=lengths.png

What is checked: the framing and checksums of the records, the lengths and values of all features,
and the files' sizes, counts and checksums against the manifest beside them. --vocab_file adds where
[CLS] and [SEP] belong, shows words instead of ids, and tells [MASK] from random pieces. The exit
code is 1 where anything is wrong, with a line for each bad file.
"""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True)
class Options(command.Options):
    """The flags."""

    input_file: str = option(help="TFRecord files, comma-separated; globs allowed.")
    vocab_file: str | None = option(None, help="The vocabulary that the records were made with.")
    num_examples: int = option(3, at_least=0, help="How many records to show.")
    plot: str | None = option(
        None, help="Picture (.png, .svg, .pdf) of lengths, fill and mask positions to write."
    )
    manifest: str | None = option(
        None, help="The manifest to check against; by default NAME.manifest.json beside the files."
    )


def run(options: Options) -> None:
    """Inspects as the flags say.

    Raises:
        ValueError: a file is bad; the lines before, on standard output, say which and why.
        OSError: a file cannot be read.
    """
    from tfrecords.inspection import find_manifests, inspect_files
    from tfrecords.readable import LEGEND, readable
    from tfrecords.reader import expand_files
    from tfrecords.vocabulary import load_vocab

    files = expand_files(options.input_file)
    vocab = load_vocab(options.vocab_file) if options.vocab_file else None
    manifests = find_manifests(files, options.manifest)
    found = inspect_files(files, manifests, vocab, options.num_examples)
    if found.examples:
        print(LEGEND["word_starts" in found.examples[0]])
        for number, example in enumerate(found.examples, start=1):
            label = int(example["next_sentence_labels"][0])
            print(f"\n{number}. (label {label}) {readable(example, vocab)}")
        print()
    if found.statistics:
        print("\n".join(found.statistics.lines()))
        if options.plot:
            found.statistics.plot(options.plot)
            print(f"Wrote {options.plot}.")
    for problem in found.problems:
        print(f"BAD {problem}")
    if found.problems:
        raise ValueError(f"{found.bad_files} of {len(files)} files are bad: see the lines above")
    checked = f"as {', '.join(manifests)} says" if manifests else "there is no manifest"
    named = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    print(f"Nothing is wrong with {named}; {checked}.")


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()
