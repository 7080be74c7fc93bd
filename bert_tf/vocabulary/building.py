"""Builds, extends and measures vocabularies: text in, vocab.txt and a report out."""

import itertools
import shlex
from dataclasses import dataclass

from bert_tf.corpus.sources import is_json
from bert_tf.vocabulary.counting import WordCounts, count_words
from bert_tf.vocabulary.coverage import coverage_table, measure
from bert_tf.vocabulary.extending import choose_tokens, extend
from bert_tf.vocabulary.learning import learn_vocabulary
from bert_tf.workers import available_cores
from tfrecords.reader import expand_files
from tfrecords.vocabulary import Vocabulary, load_vocab
from tfrecords.writer import atomic_write, check_output_files

# With more files than this, coverage is reported for each name or glob of the input instead.
_MAX_REPORTED_FILES = 20


@dataclass(frozen=True, kw_only=True)
class TextInput:
    """The text that a vocabulary is for.

    Attributes:
        input_file: Comma-separated files and globs.
        lower_case: Whether to lower-case the text and strip accents.
        json_field: The field of JSON lines that holds the text; by default "text".
        num_workers: Processes that count words; by default one per core.
    """

    input_file: str
    lower_case: bool = True
    json_field: str | None = None
    num_workers: int | None = None

    def files(self) -> dict[str, list[str]]:
        """Returns the files by the name under which their coverage is reported.

        Raises:
            ValueError: A name or glob matches no file, or a file is empty.
        """
        files = expand_files(self.input_file)
        if len(files) <= _MAX_REPORTED_FILES:
            return {file: [file] for file in files}
        names = filter(None, (name.strip() for name in self.input_file.split(",")))
        return {name: expand_files(name) for name in names}

    def count_words(self) -> WordCounts:
        """Counts the words of the files.

        Raises:
            ValueError: The text has no words, a JSON line lacks the field, or `json_field` is given
                for files without JSON lines.
            OSError: A file cannot be read.
        """
        files = self.files()
        if self.json_field and not any(map(is_json, itertools.chain(*files.values()))):
            raise ValueError(
                "--json_field has no effect without a JSON file (.jsonl, .json) as input: leave it "
                "out"
            )
        counts = count_words(
            files,
            self.lower_case,
            self.json_field or "text",
            self.num_workers or available_cores(),
        )
        if not any(counts.texts.values()):
            raise ValueError(f"{self.input_file}: the text has no words")
        if counts.invalid_lines:
            print(f"Dropped invalid bytes in {counts.invalid_lines:,} lines that are not UTF-8.")
        if counts.pruned:
            print(f"Left out {counts.pruned:,} occurrences of very rare words to save memory.")
        return counts


def build_vocabulary(
    text: TextInput, output_file: str, *, vocab_size: int, min_frequency: int, num_unused: int
) -> None:
    """Learns a new vocabulary from text, writes it, and prints its coverage of the text.

    Args:
        text: The text to learn from.
        output_file: The vocab.txt to write.
        vocab_size: The number of tokens, special and unused ones included.
        min_frequency: How often a token must occur.
        num_unused: The number of [unused] tokens.

    Raises:
        ValueError: The text has no words, or `vocab_size` is too small for its characters.
        OSError: A file cannot be read or written.
    """
    _check_files(text, [output_file], [])
    counts = text.count_words()
    tokens = learn_vocabulary(counts.all(), vocab_size, min_frequency, num_unused)
    vocab = Vocabulary(tuple(tokens))
    _write(output_file, vocab)
    _print_coverage(output_file, vocab, counts, text.lower_case)
    if len(vocab) < vocab_size:
        print(
            f"The text gave only {len(vocab):,} of {vocab_size:,} tokens with "
            f"--min_frequency={min_frequency}. With --preset the model gets this size; in a "
            f"bert_config.json of your own, set vocab_size to {len(vocab)}."
        )
    print(f"Wrote {len(vocab):,} tokens to {output_file}.")
    _print_next(text, output_file)


def extend_vocabulary(
    text: TextInput,
    output_file: str,
    *,
    extend_vocab: str,
    num_new_tokens: int,
    placement: str,
    min_frequency: int,
) -> None:
    """Adds the tokens that shorten the text most to a vocabulary, and writes it with a mapping.

    The mapping beside the vocabulary (.mapping.json) says which old embeddings each new one starts
    from. Prints the coverage of both vocabularies.

    Args:
        text: The text of the domain.
        output_file: The vocab.txt to write.
        extend_vocab: The vocabulary to extend.
        num_new_tokens: The largest number of tokens to add.
        placement: One of `choices.PLACEMENTS`.
        min_frequency: How many tokens of the text a new token must save.

    Raises:
        ValueError: The text has no words or needs no new token, or there are too few [unused]
            tokens.
        OSError: A file cannot be read or written.
    """
    mapping_file = f"{output_file}.mapping.json"
    _check_files(text, [output_file, mapping_file], [extend_vocab])
    old = load_vocab(extend_vocab)
    counts = text.count_words()
    new = choose_tokens(counts.all(), old, num_new_tokens, text.lower_case, min_frequency)
    if not new:
        raise ValueError(f"{extend_vocab} covers the text already: there is nothing to add")
    extended, mapping = extend(old, new, placement)
    atomic_write(mapping_file, mapping.to_json(extended.tokens))
    _write(output_file, extended)
    _print_coverage(extend_vocab, old, counts, text.lower_case)
    _print_coverage(output_file, extended, counts, text.lower_case)
    print(f"Added {len(new):,} tokens, such as {', '.join(item.token for item in new[:10])}.")
    print(f"Wrote {len(extended):,} tokens to {output_file}, and {mapping_file}.")
    _print_next(text, output_file)
    print(
        "Then continue pre-training with the grown checkpoint:\n"
        "  python -m bert_tf.run_pretraining --init_checkpoint=CHECKPOINT "
        f"--init_vocab_mapping={shlex.quote(mapping_file)} --input_file=pretraining.tfrecord ..."
    )


def report_coverage(text: TextInput, vocab_file: str) -> None:
    """Prints how well a vocabulary covers the text. Writes nothing.

    Raises:
        ValueError: The text has no words, or the vocabulary is invalid.
        OSError: A file cannot be read.
    """
    vocab = load_vocab(vocab_file)
    _print_coverage(vocab_file, vocab, text.count_words(), text.lower_case)


def _check_files(text: TextInput, outputs: list[str], read_files: list[str]) -> None:
    inputs = [file for files in text.files().values() for file in files]
    check_output_files(outputs, [*inputs, *read_files])


def _write(path: str, vocab: Vocabulary) -> None:
    atomic_write(path, "".join(f"{token}\n" for token in vocab.tokens))


def _print_coverage(name: str, vocab: Vocabulary, counts: WordCounts, lower_case: bool) -> None:
    rows = {text: measure(words, vocab, lower_case) for text, words in counts.texts.items()}
    if len(rows) > 1:
        rows["all"] = measure(counts.all(), vocab, lower_case)
    print(f"Coverage with {name} ({len(vocab):,} tokens):\n{coverage_table(rows)}")


def _print_next(text: TextInput, output_file: str) -> None:
    case = "" if text.lower_case else " --nodo_lower_case"
    print(
        "Next, create examples:\n"
        f"  python -m bert_tf.create_pretraining_data --vocab_file={shlex.quote(output_file)}{case}"
        f" --input_file={shlex.quote(text.input_file)} --output_file=pretraining.tfrecord"
    )
