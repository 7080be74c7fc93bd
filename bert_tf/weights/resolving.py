"""Decides which configuration, vocabulary and casing a command uses.

The sources are flags, the manifests beside records, run folders and initial checkpoints. All
sources that state a value must agree on it.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.base.progress import say
from bert_tf.config import BertConfig, ModelSpec, preset_config
from bert_tf.runs.run import CONFIG, TOKENIZER, VOCAB, Run
from bert_tf.text.tokenizer_files import WHOLE
from bert_tf.weights.checkpoint import Checkpoint, VocabularyMapping, check_fits
from tfrecords.vocabulary import SPIECE, Vocabulary, guess_casing, load_vocab, warn_about_casing

# Configuration values that affect training only. They may differ from those of the initial
# checkpoint: a model may, for example, be pre-trained without dropout and fine-tuned with it.
_TRAINING_VALUES = frozenset(
    """hidden_dropout_prob attention_probs_dropout_prob classifier_dropout_prob
    initializer_range""".split()
)
_OTHER_VOCAB = (
    "use the vocabulary that weights and records were created with, give --init_vocab_mapping if "
    "build_vocab extended one to the other, or use another one anyway with --vocab_file and "
    "--replace_vocab"
)
_OTHER_ENCODER = (
    "leave out --preset and --bert_config_file, or give --init_vocab_mapping if build_vocab "
    "extended its vocabulary"
)


class EncoderFlags(NamedTuple):
    """The flags that choose an encoder; the options of a command have the same attributes."""

    bert_config_file: str | None = None
    preset: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None
    replace_vocab: bool = False


def resolve_model(
    resumed: Run | None,
    flags: EncoderFlags,
    vocabs: Mapping[str, Vocabulary | None] = MappingProxyType({}),
    casings: Mapping[str, bool | None] = MappingProxyType({}),
    init: Checkpoint | None = None,
    mapping: VocabularyMapping | None = None,
) -> ModelSpec:
    """Decides which model a command trains, given its flags, its data and its folders.

    The configuration comes from the flags, or else from the run that is resumed, or else from the
    run that provides the initial weights. Vocabulary and casing come from any source that states
    them; all such sources must agree, unless `flags.replace_vocab` insists on the first vocabulary.

    Args:
        resumed: the run that trains on or is evaluated, if there is one.
        vocabs, casings: the values that data states, by the name of their source.
        init, mapping: the initial checkpoint, and what grows its vocabulary.
    """
    replace_vocab = flags.replace_vocab
    given = flag_values(flags.vocab_file, flags.do_lower_case, replace_vocab)
    vocabs, casings = given[0] | {**vocabs}, given[1] | {**casings}
    if resumed:
        casings[resumed.file(TOKENIZER)] = resumed.lower_case
        if not replace_vocab:
            vocabs[resumed.vocab_file] = resumed.vocab
    if init:
        casings[init.path] = init.stated_casing
        # A checkpoint that is about to grow has the old vocabulary.
        if not (replace_vocab or mapping):
            vocabs[init.vocab_file or init.path] = init.spec.vocab
        if not replace_vocab:
            check_readable(init)
    if replace_vocab:
        vocab_source, vocab = next(iter(vocabs.items()))
    else:
        vocab_source, vocab = agreed("vocabulary", vocabs, _OTHER_VOCAB)
    lower_case = agreed_casing(casings, vocab, init.path if init else None)
    if mapping and not replace_vocab:
        mapping.check_vocabs(init.spec.vocab if init else None, vocab)
    config, source = _config(resumed, init, flags, vocab)
    if mapping:
        config = mapping.grow_config(config)
    check_fits(vocab_source, vocab, config, source)
    if init:
        saved = mapping.grow_config(init.spec.config) if mapping else init.spec.config
        name = f"{init.config_file or init.path}, the configuration of --init_checkpoint,"
        check_same_config(config, source, saved, name, _OTHER_ENCODER, _TRAINING_VALUES)
    if resumed:
        # A preset names a size; how the weights started is what the run says.
        name, ignored = resumed.file(CONFIG), _TRAINING_VALUES if flags.preset else ()
        advice = f"choose another --output_dir, or resume that run with --bert_config_file={name}"
        check_same_config(config, source, resumed.config, name, advice, ignored)
        config = resumed.config
    return ModelSpec(config, vocab, lower_case)


def fitting_length(config: BertConfig, length: int = 128) -> int:
    """Returns a default length of inputs, or the most that the encoder takes."""
    return min(length, config.max_position_embeddings)


def check_length(config: BertConfig, max_seq_length: int) -> None:
    """Raises a ValueError if sequences are longer than the encoder allows."""
    if max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length {max_seq_length} is more than the max_position_embeddings "
            f"{config.max_position_embeddings}: use shorter sequences"
        )


def _config(
    resumed: Run | None, init: Checkpoint | None, flags: EncoderFlags, vocab: Vocabulary | None
) -> tuple[BertConfig, str]:
    """Returns the configuration and the name of its source."""
    if file := flags.bert_config_file:
        return BertConfig.from_json_file(file), file
    if flags.preset:
        if not vocab:
            raise ValueError("--preset needs the size of the vocabulary: give --vocab_file")
        return preset_config(flags.preset, len(vocab)), f"--preset={flags.preset}"
    if resumed:
        return resumed.config, resumed.file(CONFIG)
    if init:
        return init.spec.config, init.config_file or init.path
    raise ValueError("no encoder: give --init_checkpoint, --preset or --bert_config_file")


def check_same_config(
    config: BertConfig,
    source: str,
    saved: BertConfig,
    saved_in: str,
    advice: str,
    ignored: Collection[str] = (),
) -> None:
    """Raises a ValueError if a saved configuration differs from the wanted one of a source."""
    wanted, found = dataclasses.asdict(config), dataclasses.asdict(saved)
    # A BiLSTM and a BERT have other fields.
    names = [name for name in wanted if name not in ignored and wanted[name] != found.get(name)]
    if names:
        shown = ", ".join(f"{name} ({found.get(name)}, not {wanted[name]})" for name in names)
        raise ValueError(f"{saved_in} differs from {source} in {shown}: {advice}")


def check_readable(checkpoint: Checkpoint) -> None:
    """Raises a ValueError if a checkpoint has a vocabulary that cannot be read."""
    if checkpoint.unread_vocab:
        raise ValueError(
            f"{checkpoint.unread_vocab}: only the weights of {checkpoint.path} can be used, with "
            "bert_tf.load, convert_checkpoint and export.lite"
        )


def agreed(
    what: str, values: Mapping[str, Any], advice: str = "they must agree"
) -> tuple[str | None, Any]:
    """Returns the first source that states a value, and the value; (None, None) if none does.

    `values` maps sources to values, or to None where the source does not state it.
    """
    stated = [(source, value) for source, value in values.items() if value is not None]
    for source, value in stated[1:]:
        first, expected = stated[0]
        if value != expected:
            raise ValueError(
                f"{what}: {first} says {_shown(expected)}, but {source} says {_shown(value)}: "
                f"{advice}"
            )
    return stated[0] if stated else (None, None)


def agreed_casing(
    casings: Mapping[str, bool | None], vocab: Vocabulary | None, path: str | None
) -> bool | None:
    """Returns the casing that sources state; if none does, guesses it and prints the guess.

    `path` is that of the checkpoint or the vocabulary; None not to guess.
    """
    _, lower_case = agreed("do_lower_case", casings)
    if lower_case is None and path:
        lower_case = guess_casing(vocab, path)
        if lower_case is not None:
            kind, other = ("un", "no") if lower_case else ("", "")
            say(f"{path} seems to be {kind}cased; if it is not, give --{other}do_lower_case.")
    return lower_case


def _shown(value: Any) -> str:
    if isinstance(value, Vocabulary):
        return f"{len(value)} tokens with checksum {value.sha256[:8]}"
    return str(value)


def flag_values(
    vocab_file: str | None,
    do_lower_case: bool | None,
    replace_vocab: bool = False,
    flag: str = "vocab_file",
) -> tuple[dict[str, Vocabulary | None], dict[str, bool | None]]:
    """Returns the vocabularies and casings that flags state, by the name of their source.

    A vocab.txt with a tokenizer_config.json beside it, as in a run folder, states its casing. A
    tokenizer.json, a SentencePiece model and a folder of such files are read as transformers reads
    them. `flag` is the name of the flag that gave `vocab_file`.
    """
    casings = {"--do_lower_case": do_lower_case}
    if not vocab_file:
        return {}, casings
    source, (path, name) = f"--{flag}={vocab_file}", os.path.split(vocab_file)
    if tf.io.gfile.isdir(vocab_file):
        path, name = vocab_file, ""
    elif name not in (VOCAB, WHOLE) and not name.endswith(".model"):
        return {source: load_vocab(vocab_file)}, casings
    folder = Run(path)
    casings[folder.file(TOKENIZER)] = folder.lower_case
    replaces = replace_vocab and name == VOCAB
    vocab = load_vocab(vocab_file) if replaces else folder.vocab
    if not (vocab or name):
        raise ValueError(f"{source}: the folder has neither {VOCAB}, {SPIECE} nor {WHOLE}")
    return {source: vocab or load_vocab(vocab_file)}, casings


def read_vocab_file(
    vocab_file: str, do_lower_case: bool | None, flag: str = "vocab_file"
) -> tuple[Vocabulary, bool | None]:
    """Reads a vocabulary and what the flag or a file beside it says about its casing."""
    vocabs, casings = flag_values(vocab_file, do_lower_case, flag=flag)
    _, lower_case = agreed("do_lower_case", casings)
    return next(iter(vocabs.values())), lower_case


def resolve_vocab(
    checkpoint: Checkpoint | None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    replace_vocab: bool = False,
) -> tuple[Vocabulary, bool]:
    """Decides which vocabulary and casing an export uses; without a checkpoint, from flags alone.

    Prints a warning if they do not match, and a note if the casing is a guess.
    """
    if checkpoint:
        flags = EncoderFlags(
            vocab_file=vocab_file, do_lower_case=do_lower_case, replace_vocab=replace_vocab
        )
        spec = resolve_model(None, flags, init=checkpoint)
        vocab, lower_case, path = spec.vocab, spec.lower_case, vocab_file or checkpoint.vocab_file
        if not vocab:
            raise ValueError(f"{checkpoint.path} comes without a vocabulary: give --vocab_file")
    else:
        vocabs, casings = flag_values(vocab_file, do_lower_case, replace_vocab)
        vocab, path = next(iter(vocabs.values())), vocab_file
        lower_case = agreed_casing(casings, vocab, path)
    warn_about_casing(vocab, lower_case, path)
    return vocab, lower_case
