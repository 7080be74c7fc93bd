"""Builds, extends and measures vocabularies: text in, vocab.txt and a report out."""

import dataclasses
import hashlib
import itertools
import os
import shlex
from typing import Any

import tensorflow as tf

from bert_tf import __version__
from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.content import describe_problems
from bert_tf.base.files import file_sha256, read_file, read_json
from bert_tf.base.input_files import MANIFEST_END, expand_files, match_files
from bert_tf.base.output_files import (
    REPLACE,
    atomic_write,
    check_free,
    check_output_files,
    write_json,
)
from bert_tf.base.progress import say
from bert_tf.base.provenance import MADE, check_same, describe_file, description_of, differences
from bert_tf.corpus.sources import is_json
from bert_tf.resolution import read_vocab_file
from bert_tf.runs.run import TOKENIZER, VOCAB, Run
from bert_tf.vocabulary.counting import WordCounts, count_words, coverage_table, measure
from bert_tf.vocabulary.extending import choose_tokens, extend
from bert_tf.vocabulary.learning import learn_vocabulary
from bert_tf.vocabulary.vocabulary_options import VocabularyOptions
from tfrecords.vocabulary import (
    SPECIAL_TOKENS,
    Vocabulary,
    is_cased,
    warn_about_casing,
    write_vocab,
)

# With more files than this, coverage is reported for each name or glob in --input_file instead.
_MAX_REPORTED_FILES = 20
_MAPPING_END = ".mapping.json"
# These change where and how fast the vocabulary is written, but not its tokens.
_IRRELEVANT = ("input_file", "output_file", "report_vocab", "num_workers", "overwrite")


def run(options: VocabularyOptions) -> None:
    """Builds, extends or measures a vocabulary, as the flags ask."""
    if options.report_vocab:
        report_coverage(options)
    elif options.extend_vocab:
        extend_vocabulary(options)
    else:
        build_vocabulary(options)


def build_vocabulary(options: VocabularyOptions) -> None:
    """Learns a new vocabulary from text, writes it and prints its coverage of the text."""
    output_file, size = options.output_file, options.vocab_size
    options = dataclasses.replace(options, do_lower_case=options.do_lower_case is not False)
    texts = _texts(options)
    _check_outputs([output_file], texts)
    manifest = _describe(options, texts)
    if _is_complete(options, manifest):
        print(f"{output_file} is complete: nothing to do.")
        _say_next(options)
        return
    counts = _count_words(options, texts)
    tokens = learn_vocabulary(counts.all(), size, options.min_frequency, options.num_unused)
    vocab = Vocabulary(tuple(tokens))
    _write(options, vocab, manifest, {})
    say(_coverage(options, output_file, vocab, counts))
    if len(vocab) < size:
        say(
            f"The text yielded only {len(vocab):,} of {size:,} tokens with "
            f"--min_frequency={options.min_frequency}. With --preset, the model gets this size; in "
            f"your own bert_config.json, set vocab_size to {len(vocab)}."
        )
    print(f"Wrote {len(vocab):,} tokens to {output_file}{_with_casing(options)}.")
    _say_next(options)


def extend_vocabulary(options: VocabularyOptions) -> None:
    """Extends a vocabulary by the tokens that shorten the text most, and writes it with a mapping.

    The mapping beside the vocabulary (.mapping.json) records which old embeddings each new one
    starts from. Prints the coverage of both vocabularies.
    """
    output_file, extend_vocab = options.output_file, options.extend_vocab
    mapping_file = output_file + _MAPPING_END
    texts = _texts(options)
    _check_outputs([output_file, mapping_file], texts, extend_vocab)
    old, options = _read_vocab(options, "extend_vocab")
    if old.tokenizer_values() and not _tokenizer_folder(output_file):
        raise ValueError(
            f"{extend_vocab} has added tokens or accents that {TOKENIZER} beside it states: write "
            f"the extension to a file named {VOCAB}, such as --output_file=extended/{VOCAB}"
        )
    manifest = _describe(options, texts)
    if _is_complete(options, manifest) and tf.io.gfile.exists(mapping_file):
        print(f"{output_file} and {mapping_file} are complete: nothing to do.")
        _say_next(options)
        return
    counts = _count_words(options, texts, old)
    new = choose_tokens(
        counts.all(),
        old,
        options.num_new_tokens,
        options.do_lower_case,
        options.min_frequency,
    )
    if not new:
        raise ValueError(f"{extend_vocab} already covers the text: there is nothing to add")
    extended, mapping = extend(old, new, options.placement)
    _write(options, extended, manifest, {mapping_file: mapping.to_json()})
    say(_coverage(options, extend_vocab, old, counts))
    say(_coverage(options, output_file, extended, counts))
    say(f"Added {len(new):,} tokens, such as {', '.join([*new][:10])}.")
    print(
        f"Wrote {len(extended):,} tokens to {output_file}{_with_casing(options)}, and "
        f"{mapping_file}."
    )
    _say_next(options)
    say(
        "To continue pre-training on these examples with a grown checkpoint, give run_pretraining "
        f"--init_checkpoint and --init_vocab_mapping={shlex.quote(mapping_file)}."
    )


def report_coverage(options: VocabularyOptions) -> None:
    """Prints how well a vocabulary covers the text. Writes nothing."""
    vocab, options = _read_vocab(options, "report_vocab")
    counts = _count_words(options, _texts(options), vocab)
    print(_coverage(options, options.report_vocab, vocab, counts))


def _texts(options: VocabularyOptions) -> dict[str, list[str]]:
    """Returns the input files, grouped by the name under which their coverage is reported."""
    files = expand_files(options.input_file, allow_empty=True)
    if options.json_field != "text" and not any(map(is_json, files)):
        raise ValueError(
            "--json_field has no effect without a JSON file (.jsonl, .json) as input: omit it"
        )
    if len(files) <= _MAX_REPORTED_FILES:
        return {file: [file] for file in files}
    return dict(match_files(options.input_file))


def _check_outputs(outputs: list[str], texts: dict[str, list[str]], *inputs: str) -> None:
    manifest = outputs[0] + MANIFEST_END
    check_output_files([*outputs, manifest], [*itertools.chain(*texts.values()), *inputs])
    if folder := _tokenizer_folder(outputs[0]):
        folder.check_tokenizer()


def _describe(options: VocabularyOptions, texts: dict[str, list[str]]) -> dict[str, Any]:
    """Returns the manifest, but for the checksum of the vocabulary."""
    settings = dataclasses.asdict(options)
    # Reading the text may take minutes.
    inputs = [describe_file(file) for file in itertools.chain(*texts.values())]
    if old := options.extend_vocab:
        inputs.append({"file": old, "sha256": file_sha256(old)})
    settings = {name: settings[name] for name in settings if name not in _IRRELEVANT}
    return {"bert_tf": __version__, "settings": settings, "inputs": inputs}


def _is_complete(options: VocabularyOptions, manifest: dict[str, Any]) -> bool:
    """Returns whether the vocabulary exists and was built as the manifest says.

    Raises an error for other files in its place, unless they may be replaced.
    """
    file = options.output_file
    recorded = _read_manifest(options)
    before, now = description_of(recorded), description_of(manifest)
    if not tf.io.gfile.exists(file):
        if not options.overwrite:
            check_free(file)  # a link that leads nowhere
        if not options.overwrite and options.extend_vocab and any(differences(before, now)):
            check_free(file + _MAPPING_END)
        return False
    if before:
        before[file] = {"sha256": recorded.get("sha256")}
    now[file] = {"sha256": file_sha256(file)}
    if options.overwrite:
        return not any(differences(before, now))
    check_same(file, before, now, REPLACE)
    return True


def _read_manifest(options: VocabularyOptions) -> dict[str, Any]:
    """Returns the manifest; {} if it is missing, or another program's that may be replaced."""
    path = options.output_file + MANIFEST_END
    try:
        recorded = read_json(path, MADE)
    except ValueError:
        recorded = {}
    if not options.overwrite and ("bert_tf" not in recorded or "shards" in recorded):
        check_free(path)
    return recorded


def _count_words(
    options: VocabularyOptions, texts: dict[str, list[str]], vocab: Vocabulary | None = None
) -> WordCounts:
    """Counts the words of the texts as the tokenizer of a vocabulary sees them."""
    added = enumerate(vocab.added if vocab else (), len(SPECIAL_TOKENS))
    tokens = tuple(dataclasses.replace(token, id=index) for index, token in added)
    strips = vocab.strip_accents if vocab else None
    counts = count_words(
        texts,
        options.do_lower_case,
        options.json_field,
        options.num_workers,
        vocab=Vocabulary(SPECIAL_TOKENS, tokens, strips),
    )
    if not any(counts.texts.values()):
        raise ValueError(f"{options.input_file}: the text has no words")
    files = list(itertools.chain(*texts.values()))
    for warning in describe_problems(files, counts.invalid_lines):
        print(warning)
    if counts.pruned:
        say(f"Left out {counts.pruned:,} occurrences of very rare words to save memory.")
    return counts


def _read_vocab(options: VocabularyOptions, flag: str) -> tuple[Vocabulary, VocabularyOptions]:
    """Reads the vocabulary of a flag; returns it, and the options with its casing."""
    path = getattr(options, flag)
    vocab, lower_case = read_vocab_file(path, options.do_lower_case, flag)
    if lower_case is None:
        lower_case = not is_cased(vocab)
    if not lower_case:
        say(f"With {path}, text keeps its capitals and accents.")
    warn_about_casing(vocab, lower_case, path)
    return vocab, dataclasses.replace(options, do_lower_case=lower_case)


def _write(
    options: VocabularyOptions, vocab: Vocabulary, manifest: dict[str, Any], others: dict[str, str]
) -> None:
    """Writes what describes a vocabulary and, last, the vocabulary itself."""
    _read_manifest(options)
    # Another process may have written these meanwhile. A killed command leaves equal files.
    for path, text in (others | {options.output_file: vocab.text}).items():
        if not options.overwrite and tf.io.gfile.exists(path) and read_file(path) != text.encode():
            check_free(path)
    if folder := _tokenizer_folder(options.output_file):
        folder.check_tokenizer()
    manifest |= {"sha256": hashlib.sha256(vocab.text.encode()).hexdigest()}
    write_json(options.output_file + MANIFEST_END, manifest)
    for path, text in others.items():
        atomic_write(path, text)
    if folder:
        folder.write_tokenizer(vocab, options.do_lower_case)
    write_vocab(options.output_file, vocab)


def _tokenizer_folder(output_file: str) -> Run | None:
    """Returns the folder whose tokenizer_config.json describes the file, if its name allows one."""
    folder, name = os.path.split(output_file)
    return Run(folder) if name == VOCAB else None


def _with_casing(options: VocabularyOptions) -> str:
    folder = _tokenizer_folder(options.output_file)
    return f" and their casing to {folder.file(TOKENIZER)}" if folder else ""


def _coverage(options: VocabularyOptions, name: str, vocab: Vocabulary, counts: WordCounts) -> str:
    lower_case = options.do_lower_case
    rows = {text: measure(words, vocab, lower_case) for text, words in counts.texts.items()}
    if len(rows) > 1:
        rows["all"] = measure(counts.all(), vocab, lower_case)
    return f"Coverage with {name} ({len(vocab):,} tokens):\n{coverage_table(rows)}"


def _say_next(options: VocabularyOptions) -> None:
    stated = options.do_lower_case or _tokenizer_folder(options.output_file)
    command = command_line(
        "bert_tf.create_pretraining_data",
        input_file=options.input_file,
        json_field=None if options.json_field == "text" else options.json_field,
        vocab_file=options.output_file,
        do_lower_case=None if stated else False,
        output_file=unused_name("pretraining.tfrecord"),
    )
    say(f"Next, create examples:\n  {command}")
