"""Builds, extends and measures vocabularies: text in, vocab.txt and a report out."""

import dataclasses
import hashlib
import itertools
import os
import shlex
from collections import Counter
from typing import Any

import tensorflow as tf

from bert_tf.base.command_help import command_line, python_call, unused_name
from bert_tf.base.content import describe_problems
from bert_tf.base.files import MANIFEST_END, file_sha256, match_files, read_file, read_json
from bert_tf.base.made import MADE, Made, describe_files, kept_files
from bert_tf.base.output_files import atomic_write, check_free, check_output_files, write_json
from bert_tf.base.progress import for_caller, say
from bert_tf.corpus.corpus_options import CorpusOptions
from bert_tf.corpus.reading import input_files
from bert_tf.text.tokenizer_files import TOKENIZER, VOCAB, TokenizerFiles
from bert_tf.vocabulary.counting import WordCounts, count_words, coverage_table, measure
from bert_tf.vocabulary.learning import choose_new_tokens, extend, learn_vocabulary
from bert_tf.vocabulary.vocabulary_options import VocabularyOptions
from bert_tf.weights.resolving import read_vocab_file
from tfrecords.vocabulary import (
    MAX_CHARACTERS_PER_WORD,
    SPECIAL_TOKENS,
    Vocabulary,
    check_word_pieces,
    describe_long_words,
    is_cased,
    warn_about_casing,
    write_vocab,
)

# With more files than this, coverage is reported for each name or glob in --input_file instead.
_MAX_REPORTED_FILES = 20
_MAPPING_END = ".mapping.json"


def build_vocab(options: VocabularyOptions) -> None:
    """Builds, extends or measures a vocabulary, as the flags ask."""
    if options.report_vocab:
        vocab, options = _read_vocab(options, "report_vocab")
        counts = _count_words(options, _texts(options), vocab)
        print(_coverage(options, options.report_vocab, vocab, counts))
    else:
        make_vocabulary(options)


def make_vocabulary(options: VocabularyOptions) -> None:
    """Learns a new vocabulary from text, or extends one, and prints its coverage of the text.

    The mapping beside an extension (.mapping.json) records which old embeddings each new one starts
    from.
    """
    file, old_file = options.output_file, options.extend_vocab
    files = [file, file + _MAPPING_END] if old_file else [file]
    texts = _texts(options)
    read = [*itertools.chain(*texts.values()), old_file]
    check_output_files([*files, file + MANIFEST_END], read)
    if folder := _tokenizer_folder(file):
        folder.check_ours()
    if old_file:
        old, options = _read_vocab(options, "extend_vocab")
        if old.tokenizer_values() and not folder:
            raise ValueError(
                f"{old_file} comes with a {TOKENIZER}, which goes beside a file named {VOCAB}: "
                f"give a path such as --output_file=extended/{VOCAB}"
            )
    else:
        old, lower_case = None, options.do_lower_case is not False
        options = dataclasses.replace(options, do_lower_case=lower_case)
    made, manifest = _made(options, texts), _read_manifest(options)
    recorded = dict.fromkeys(files) | {file: manifest.get("sha256")}
    before, path = Made.from_dict(manifest), file + MANIFEST_END
    if len(kept_files(path, before, made, recorded, options.overwrite)) == len(files):
        print(f"{' and '.join(files)} {'are' if old else 'is'} complete: nothing to do.")
    else:
        counts = _count_words(options, texts, old)
        vocab, mapping = _extend(options, old, counts) if old else _learn(options, counts)
        _write(options, vocab, made, dict.fromkeys(files[1:], mapping))
        for name, measured in ((old_file, old), (file, vocab)):
            if measured:
                say(_coverage(options, name, measured, counts))
        casing = f" and their casing to {folder.config_file}" if folder else ""
        others = "".join(f", and {x}" for x in files[1:])
        print(f"Wrote {len(vocab):,} tokens to {file}{casing}{others}.")
    _say_next(options)


def _learn(options: VocabularyOptions, counts: WordCounts) -> tuple[Vocabulary, None]:
    size = options.vocab_size
    vocab = Vocabulary((*learn_vocabulary(counts.all(), size),))
    if len(vocab) < size:
        say(
            f"The text yielded only {len(vocab):,} of {size:,} tokens. With a preset, the model "
            f"gets this size; in your own bert_config.json, set vocab_size to {len(vocab)}."
        )
    return vocab, None


def _extend(
    options: VocabularyOptions, old: Vocabulary, counts: WordCounts
) -> tuple[Vocabulary, str]:
    """Adds the tokens that shorten the text most; returns the mapping, too."""
    most, lower_case = options.num_new_tokens, options.do_lower_case
    new = choose_new_tokens(counts.all(), old, most, lower_case)
    if not new:
        raise ValueError(f"{options.extend_vocab} already covers the text: there is nothing to add")
    say(f"Added {len(new):,} tokens, such as {', '.join([*new][:10])}.")
    extended, mapping = extend(old, new, options.placement)
    return extended, mapping.to_json()


def _texts(options: VocabularyOptions) -> dict[str, list[str]]:
    """Returns the input files, grouped by the name under which their coverage is reported."""
    files = input_files(options)
    if options.tfds:
        return {f"TFDS {options.tfds}": []}
    if len(files) <= _MAX_REPORTED_FILES:
        return {file: [file] for file in files}
    return dict(match_files(options.input_file))


def _made(options: VocabularyOptions, texts: dict[str, list[str]]) -> Made:
    inputs = describe_files([*itertools.chain(*texts.values())])
    if old := options.extend_vocab:
        inputs = [*inputs, {"file": old, "sha256": file_sha256(old)}]
    return Made(options.with_corpus_defaults().values("place"), inputs)


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
        options.with_corpus_defaults(),
        options.num_workers,
        vocab=Vocabulary(SPECIAL_TOKENS, tokens, strips),
    )
    if not any(counts.texts.values()):
        raise ValueError(f"{', '.join(texts)}: the text has no words")
    files = list(itertools.chain(*texts.values()))
    characters: Counter[int] = Counter()  # by the length of their word
    for word, number in itertools.chain.from_iterable(x.items() for x in counts.texts.values()):
        characters[len(word)] += len(word) * number
    long = sum(n for length, n in characters.items() if length > MAX_CHARACTERS_PER_WORD)
    warnings = describe_problems(files, counts.invalid_lines)
    for warning in warnings + describe_long_words(long, characters.total()):
        print(warning)
    if counts.pruned:
        say(f"Left out {counts.pruned:,} occurrences of very rare words to save memory.")
    return counts


def _read_vocab(options: VocabularyOptions, flag: str) -> tuple[Vocabulary, VocabularyOptions]:
    """Reads the vocabulary of a flag; returns it, and the options with its casing."""
    path = getattr(options, flag)
    vocab, lower_case = read_vocab_file(path, options.do_lower_case, flag)
    check_word_pieces(vocab, path)
    if lower_case is None:
        lower_case = not is_cased(vocab)
    if not lower_case:
        say(f"With {path}, text keeps its capitals and accents.")
    warn_about_casing(vocab, lower_case, path)
    return vocab, dataclasses.replace(options, do_lower_case=lower_case)


def _write(
    options: VocabularyOptions, vocab: Vocabulary, made: Made, others: dict[str, str]
) -> None:
    """Writes what describes a vocabulary and, last, the vocabulary itself."""
    _read_manifest(options)
    # Another process may have written these meanwhile. A killed command leaves equal files.
    for path, text in (others | {options.output_file: vocab.text}).items():
        if not options.overwrite and tf.io.gfile.exists(path) and read_file(path) != text.encode():
            check_free(path)
    if folder := _tokenizer_folder(options.output_file):
        folder.check_ours()
    manifest = made.to_dict() | {"sha256": hashlib.sha256(vocab.text.encode()).hexdigest()}
    write_json(options.output_file + MANIFEST_END, manifest)
    for path, text in others.items():
        atomic_write(path, text)
    if folder:
        folder.write(vocab, options.do_lower_case)
    write_vocab(options.output_file, vocab)


def _tokenizer_folder(output_file: str) -> TokenizerFiles | None:
    """Returns the folder whose tokenizer_config.json describes the file, if its name allows one."""
    folder, name = os.path.split(output_file)
    return TokenizerFiles(folder) if name == VOCAB else None


def _coverage(options: VocabularyOptions, name: str, vocab: Vocabulary, counts: WordCounts) -> str:
    lower_case = options.do_lower_case
    rows = {text: measure(words, vocab, lower_case) for text, words in counts.texts.items()}
    if len(rows) > 1:
        rows["all"] = measure(counts.all(), vocab, lower_case)
    return f"Coverage with {name} ({len(vocab):,} tokens):\n{coverage_table(rows)}"


def _say_next(options: VocabularyOptions) -> None:
    stated = options.do_lower_case or _tokenizer_folder(options.output_file)
    names = [field.name for field in dataclasses.fields(CorpusOptions)]
    text = {name: options.unusual[name] for name in names if name in options.unusual}
    flags = text | dict(
        vocab_file=options.output_file,
        do_lower_case=None if stated else False,
        output_file=unused_name("pretraining.tfrecord"),
    )
    command = command_line("bert_tf.create_pretraining_data", **flags)
    call = python_call("create_examples", **flags)
    say(f"Next, create examples:\n  {for_caller(command, call)}")
    if options.extend_vocab:
        mapping = options.output_file + _MAPPING_END
        shell = f"--init_checkpoint and --init_vocab_mapping={shlex.quote(mapping)}"
        python = f"init_checkpoint and init_vocab_mapping={mapping!r}"
        say(
            "To continue pre-training on these examples with a grown checkpoint, give "
            f"{for_caller(f'run_pretraining {shell}', f'pretrain {python}')}."
        )
