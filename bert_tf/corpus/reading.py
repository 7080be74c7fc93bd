"""Reads the text that flags name: its files, its documents and their sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from bert_tf.base.files import expand_files
from bert_tf.corpus import lines as corpus_lines
from bert_tf.corpus.cleaning import line_rule, sentence_rule
from bert_tf.corpus.corpus_options import CorpusOptions
from bert_tf.corpus.sources import Block, has_fields, read_blocks, tfds_blocks


class Sums:
    """A dataclass of counts that can be added up."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(_added, vars(self).values(), vars(other).values()))


def _added(mine, theirs):
    """Adds counts, or dicts of counts."""
    if not isinstance(mine, dict):
        return mine + theirs
    return {key: mine.get(key, 0) + theirs.get(key, 0) for key in mine | theirs}


@dataclass
class ReadCounts(Sums):
    """Sums over the text that was read."""

    bytes: int = 0
    lines: int = 0  # that are not blank; or paragraphs, if those are split
    wrapped_lines: int = 0  # that look hard-wrapped and were not joined
    invalid_lines: dict[str, int] = field(default_factory=dict)  # of each file, that are not UTF-8
    left_out: dict[str, int] = field(
        default_factory=dict
    )  # lines and sentences, by cleaning's rule
    characters: int = 0
    left_out_characters: int = 0
    long_word_characters: int = 0  # in words that are too long for a vocabulary


def input_files(options: CorpusOptions) -> list[str]:
    """Returns the files of the text, none for a TFDS dataset, after checking the flags."""
    if (options.input_file is None) == (options.tfds is None):
        raise ValueError("give either --input_file or --tfds")
    files = expand_files(options.input_file, allow_empty=True) if options.input_file else []
    have_fields = [has_fields(file) for file in files]
    for name, has_effect, condition in (
        ("document_separator", not all(have_fields), "without a plain text file as input"),
        ("text_field", any(have_fields), "without a JSON file (.jsonl, .json) or Parquet as input"),
    ):
        if not has_effect:
            options.refuse([name], f"has no effect {condition}")
    corpus_lines.check_separator(options.document_separator or "")
    corpus_lines.check_language(options.language)
    return files


def text_blocks(
    options: CorpusOptions, files: Sequence[str], block_bytes: int, whole_documents: bool = True
) -> Iterator[Block]:
    """Reads some of the files, or the TFDS dataset, in blocks; see `read_blocks`.

    The options here and below have all defaults resolved.
    """
    if options.tfds:
        return tfds_blocks(options.tfds, block_bytes)
    separator = options.document_separator if whole_documents else None
    return read_blocks(files, block_bytes, separator, options.text_field, options.unwrap)


def read_sentences(block: Block, options: CorpusOptions, counts: ReadCounts) -> Iterator[list[str]]:
    """Yields the sentences of every document in a block, or its lines if those are not split."""
    layout = dict(
        separator=options.document_separator,
        text_field=options.text_field,
        is_wrapped=options.unwrap,
    )
    for file, text in block.texts(counts.invalid_lines):
        for lines in corpus_lines.read_documents(text, block.kind, file, **layout):
            counts.lines += len(lines)
            counts.characters += sum(map(len, lines))
            counts.long_word_characters += corpus_lines.count_long_words(lines)
            counts.wrapped_lines += 0 if options.unwrap else corpus_lines.count_wrapped(lines)
            changes = options.clean or options.split_sentences
            yield list(_sentences(lines, options, counts)) if changes else lines


def _sentences(lines: Sequence[str], options: CorpusOptions, counts: ReadCounts) -> Iterator[str]:
    """Yields the sentences of a document, split and cleaned as the options say."""

    def drop(text: str, rule: str | None) -> bool:
        if rule:
            counts.left_out[rule] = counts.left_out.get(rule, 0) + 1
            counts.left_out_characters += len(text)
        return bool(rule)

    for number, line in enumerate(lines):
        if options.clean and drop(line, line_rule(line, number == 0, options.split_sentences)):
            continue
        if not options.split_sentences:
            yield line
            continue
        for sentence in corpus_lines.split_sentences(line, options.language):
            if not (options.clean and drop(sentence, sentence_rule(sentence))):
                yield sentence
