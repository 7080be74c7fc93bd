"""Builds, extends or measures a WordPiece vocabulary (vocab.txt) for BERT from raw text.

Text of any language and size: plain, .gz, .bz2, .xz or .zst, or JSON lines (.jsonl). It is split
into words by the same code that tokenizes it later, so that every piece learnt can be found again.
The same text gives the same file, byte for byte, on any number of cores.

A new vocabulary:
  python -m bert_tf.build_vocab --input_file='text/*.txt' --output_file=vocab.txt
Ids follow the published vocabularies: [PAD] is 0, then come [unused] slots for words of your own,
then [UNK], [CLS], [SEP] and [MASK], characters, and pieces from frequent to rare.

A published vocabulary and the 1,000 words and pieces of a domain that shorten its text most:
  python -m bert_tf.build_vocab --input_file='medicine/*.gz' --output_file=medical.txt \\
    --extend_vocab=bert-base-uncased/vocab.txt --num_new_tokens=1000
Old ids stay. medical.txt.mapping.json says which old embeddings each new one starts from: give it
to run_pretraining or run_finetuning as --init_vocab_mapping, with the --init_checkpoint to grow.

How well a vocabulary covers texts (the other two print it, too); nothing is written:
  python -m bert_tf.build_vocab --input_file=en.txt,th.txt --report_vocab=vocab.txt
"""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.vocabulary.counting import WordCounts
    from tfrecords.vocabulary import Vocabulary

# With more files than this, coverage is told for each name or glob of --input_file instead.
_MOST_FILES_TOLD = 20


@dataclass(frozen=True)
class Options(command.Options):
    input_file: str = option(help="Text files, comma-separated; globs allowed.")
    output_file: str | None = option(None, help="Where to write the vocabulary, one token a line.")
    vocab_size: int = option(
        30522, at_least=1, help="Number of tokens, the special and unused ones included."
    )
    do_lower_case: bool = option(True, help="Lower-case the text and strip its accents.")
    min_frequency: int = option(2, at_least=1, help="How often a piece must occur to be taken in.")
    num_unused: int = option(
        99,
        at_least=0,
        help="Number of [unused] slots; 99 gives [UNK] the id 100, as the published ones do.",
    )
    extend_vocab: str | None = option(
        None, help="A vocabulary to extend; --vocab_size and --num_unused have no meaning then."
    )
    num_new_tokens: int = option(
        1000, at_least=1, help="How many tokens to add to --extend_vocab at most."
    )
    placement: str = option(
        "append",
        help="Where new tokens go: append makes the vocabulary longer, and the model with it; "
        "unused puts them in place of [unused] tokens.",
        choices=("append", "unused"),
    )
    report_vocab: str | None = option(
        None, help="A vocabulary to measure on the text; nothing is written."
    )
    json_field: str = option("text", help="The field of JSON lines that holds their text.")
    num_workers: int | None = option(
        None, at_least=1, help="Processes that count words; all cores, fewer for small texts."
    )


def run(options: Options) -> None:
    """Counts the words, learns or extends the vocabulary, writes it, prints what it covers.

    Raises:
      ValueError: a file is missing or empty, the text has no words, flags do not fit.
      OSError: a file cannot be read, or the vocabulary not written.
    """
    from bert_tf.vocabulary.counting import count_words
    from bert_tf.workers import available_cores
    from tfrecords.vocabulary import load_vocab

    texts = _texts(options.input_file)
    _check_output(options, texts)
    given = options.report_vocab or options.extend_vocab
    old = load_vocab(given) if given else None
    counts = count_words(
        texts, options.do_lower_case, options.json_field, options.num_workers or available_cores()
    )
    if not any(counts.texts.values()):
        raise ValueError(f"{options.input_file}: the text holds no words")
    if counts.damaged_lines:
        print(
            f"{counts.damaged_lines:,} lines held bytes that are not UTF-8; these bytes were left"
            " out"
        )
    if counts.pruned:
        print(f"{counts.pruned:,} occurrences of very rare words were left out to save memory.")
    if options.report_vocab:
        _say_coverage(options, options.report_vocab, old, counts)
    elif options.extend_vocab:
        _extend(options, old, counts)
    else:
        _build(options, counts)


def _texts(patterns: str) -> dict[str, list[str]]:
    """The files by the name under which their coverage is told."""
    from tfrecords.reader import expand_files

    files = expand_files(patterns)
    if len(files) <= _MOST_FILES_TOLD:
        return {file: [file] for file in files}
    parts = filter(None, (part.strip() for part in patterns.split(",")))
    return {part: expand_files(part) for part in parts}


def _check_output(options: Options, texts: dict[str, list[str]]) -> None:
    from tfrecords.writer import check_output_files

    if options.report_vocab and (options.output_file or options.extend_vocab):
        raise ValueError("--report_vocab writes nothing: leave --output_file and the like out")
    if options.report_vocab:
        return
    if not options.output_file:
        raise ValueError("give --output_file, or --report_vocab to measure a vocabulary only")
    inputs = [file for files in texts.values() for file in files]
    outputs = [options.output_file]
    if options.extend_vocab:
        inputs.append(options.extend_vocab)
        outputs.append(_mapping_file(options))
    check_output_files(outputs, inputs)


def _mapping_file(options: Options) -> str:
    return f"{options.output_file}.mapping.json"


def _build(options: Options, counts: "WordCounts") -> None:
    from bert_tf.vocabulary.learning import learn_vocabulary
    from tfrecords.vocabulary import Vocabulary

    tokens = learn_vocabulary(
        counts.all(), options.vocab_size, options.min_frequency, options.num_unused
    )
    _write(options.output_file, tokens)
    _say_coverage(options, options.output_file, Vocabulary(tuple(tokens)), counts)
    if len(tokens) < options.vocab_size:
        print(
            f"The text gave only {len(tokens):,} of {options.vocab_size:,} tokens with"
            f" --min_frequency={options.min_frequency}. With --preset and --vocab_file the model is"
            f" made for them; in a bert_config.json set vocab_size to {len(tokens)}."
        )
    _say_written(options, len(tokens), options.output_file)


def _extend(options: Options, old: "Vocabulary", counts: "WordCounts") -> None:
    from bert_tf.vocabulary.extending import choose_tokens, extend
    from tfrecords.writer import atomic_write

    new = choose_tokens(
        counts.all(), old, options.num_new_tokens, options.do_lower_case, options.min_frequency
    )
    if not new:
        raise ValueError(f"{options.extend_vocab} covers the text already: nothing to add")
    extended, mapping = extend(old, new, options.placement)
    atomic_write(_mapping_file(options), mapping.to_json(extended.tokens))
    _write(options.output_file, extended.tokens)
    _say_coverage(options, options.extend_vocab, old, counts)
    _say_coverage(options, options.output_file, extended, counts)
    print(f"{len(new):,} new tokens, such as {', '.join(item.token for item in new[:10])}.")
    _say_written(options, len(extended), f"{options.output_file} and {_mapping_file(options)}")
    print(
        "Then: python -m bert_tf.run_pretraining --init_checkpoint=CHECKPOINT"
        f" --init_vocab_mapping={shlex.quote(_mapping_file(options))}"
        f" --vocab_file={shlex.quote(options.output_file)} ..."
    )


def _write(path: str, tokens: list[str] | tuple[str, ...]) -> None:
    from tfrecords.writer import atomic_write

    atomic_write(path, "".join(f"{token}\n" for token in tokens))


def _say_coverage(options: Options, name: str, vocab: "Vocabulary", counts: "WordCounts") -> None:
    from bert_tf.vocabulary.coverage import measure, table

    rows = {
        text: measure(words, vocab, options.do_lower_case) for text, words in counts.texts.items()
    }
    if len(rows) > 1:
        rows["all"] = measure(counts.all(), vocab, options.do_lower_case)
    print(f"With {name} ({len(vocab):,} tokens):\n{table(rows)}")


def _say_written(options: Options, size: int, files: str) -> None:
    case = "" if options.do_lower_case else " --nodo_lower_case"
    text, vocab_file = map(shlex.quote, (options.input_file, options.output_file))
    print(
        f"Wrote {size:,} tokens to {files}. Next: python -m"
        f" bert_tf.create_pretraining_data --vocab_file={vocab_file}{case}"
        f" --input_file={text} --output_file=pretraining.tfrecord"
    )


def main() -> None:
    command.run(Options, run)


if __name__ == "__main__":
    main()
