"""A job of data creation: which text becomes which examples in which files."""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.base.files import lines_sha256
from bert_tf.base.input_files import shortened
from bert_tf.base.output_files import check_output_files
from bert_tf.corpus.reading import input_files, text_blocks
from bert_tf.corpus.sources import Block, group_files
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.plan import block_bytes
from bert_tf.examples.units import load_segmenter, read_phrases
from bert_tf.resolution import read_vocab_file
from tfrecords.manifest import manifest_path, unfinished_path
from tfrecords.vocabulary import Vocabulary

# The size of a TFDS dataset is unknown in advance. Most are large.
_TFDS_BYTES = 2**40


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that the output depends on.

    Attributes:
        options: the flags, with all defaults resolved.
        lexicon: phrases, each of which is one unit of masking. The longest match wins.
        groups: the input files, in groups whose files are read one after the other; a single empty
            group for a TFDS dataset.
        block_bytes: the bytes of text per chunk.
        output_files: the shards.
        manifest: the path of the manifest beside them.
    """

    options: DataOptions
    vocab: Vocabulary
    lexicon: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    block_bytes: int
    output_files: tuple[str, ...]
    manifest: str

    @property
    def input_files(self) -> list[str]:
        return [file for group in self.groups for file in group]

    @property
    def source(self) -> str:
        """The input, for messages."""
        return shortened(self.input_files or [f"TFDS {self.options.tfds}"], most=1)

    def blocks(self, group: int) -> Iterator[Block]:
        """Reads an input group in blocks of whole documents."""
        return text_blocks(self.options, self.groups[group], self.block_bytes)

    def name_in_manifest(self, shard: int) -> str:
        """Returns the path of a shard relative to the manifest."""
        return os.path.relpath(self.output_files[shard], os.path.dirname(self.manifest) or ".")

    def settings(self) -> dict[str, object]:
        """Returns what the output depends on, by the names of the flags."""
        return self.options.values("location", "data", "free") | {
            "output_file": [self.name_in_manifest(i) for i in range(len(self.output_files))],
            "vocab_file": self.vocab.sha256,
            "lexicon_file": lines_sha256(self.lexicon),
        }


def make_job(options: DataOptions) -> Job:
    """Resolves the flags into a job."""
    resolved, files = with_defaults(options), input_files(options)
    _check_effects(options, resolved.masking)
    output_files = _output_files(options)
    read_files = [*files, options.vocab_file, options.lexicon_file]
    manifests = list(map(manifest_path, output_files[:1]))
    work = unfinished_path(output_files[0]) if output_files else None
    check_output_files([*output_files, *manifests], read_files, work_folder=work)
    input_bytes = sum(tf.io.gfile.stat(file).length for file in files) or _TFDS_BYTES
    bytes_per_block = block_bytes(input_bytes, resolved.dupe_factor, len(output_files))
    groups = group_files(files, bytes_per_block) if files else [[]]
    vocab, lower_case = read_vocab_file(options.vocab_file, options.do_lower_case)
    if options.segmenter is not None:
        # Otherwise, its errors would only arise where the text is read.
        load_segmenter(options.segmenter)
    return Job(
        options=dataclasses.replace(resolved, do_lower_case=lower_case is not False),
        vocab=vocab,
        lexicon=read_phrases(options.lexicon_file) if options.lexicon_file else (),
        groups=tuple(map(tuple, groups)),
        block_bytes=bytes_per_block,
        output_files=tuple(output_files),
        manifest=manifest_path(output_files[0]),
    )


def with_defaults(options: DataOptions) -> DataOptions:
    """Resolves the defaults that depend on other flags."""
    masking = _resolve_masking(options)
    return dataclasses.replace(
        options.with_corpus_defaults(),
        masking=masking,
        max_ngram_size=options.max_ngram_size or 3,
        dupe_factor=options.dupe_factor or (1 if masking == "dynamic" else 10),
    )


def _resolve_masking(options: DataOptions) -> str:
    """Returns the masking that results from three flags."""
    masking = options.masking
    for implied, flag, given in (
        ("ngram", "max_ngram_size", options.max_ngram_size is not None),
        ("whole_word", "do_whole_word_mask", options.do_whole_word_mask),
    ):
        # The Model Garden's script requires --do_whole_word_mask together with --max_ngram_size.
        if given and masking is None:
            masking = implied
        elif given and masking != implied and not (implied == "whole_word" and masking == "ngram"):
            raise ValueError(f"--masking={masking} and --{flag} contradict each other: omit one")
    return masking or "wordpiece"


def _check_effects(options: DataOptions, masking: str) -> None:
    """Raises a ValueError for a flag that would have no effect."""
    for name, has_effect, condition in (
        ("cross_documents", options.objective == "mlm", "without --objective=mlm"),
        ("segmenter", masking != "wordpiece", "with --masking=wordpiece"),
        ("lexicon_file", masking in ("entity", "dynamic"), f"with --masking={masking}"),
    ):
        if not has_effect:
            options.refuse([name], f"has no effect {condition}")


def _output_files(options: DataOptions) -> list[str]:
    names = [name.strip() for name in options.output_file.split(",") if name.strip()]
    if options.num_shards is None:
        return names
    if len(names) != 1:
        raise ValueError(
            f"--num_shards needs a single --output_file name, not {len(names)}: give one name"
        )
    count = options.num_shards
    return [f"{names[0]}-{shard:05}-of-{count:05}" for shard in range(count)]
