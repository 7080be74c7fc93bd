"""Converts checkpoints between formats."""

import dataclasses
import os
from collections.abc import Callable, Collection

import numpy as np

from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.files import absolute_path, shortened
from bert_tf.base.finite import note_non_finite
from bert_tf.base.output_files import check_new_folder, whole_folder
from bert_tf.base.progress import say
from bert_tf.config import EMBEDDING, BertConfig
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.runs.run import Run
from bert_tf.training.checkpoints import save_tensors
from bert_tf.weights import reshaping
from bert_tf.weights import resolving as resolution
from bert_tf.weights.checkpoint import (
    Checkpoint,
    check_fits,
    describe_non_finite,
    load_mapping,
    matches,
)
from bert_tf.weights.formats import google, huggingface, kerashub
from bert_tf.weights.formats import sentence_transformers as vectors
from bert_tf.weights.formats.huggingface_config import config_json
from bert_tf.weights.names import PARTS, part_of
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import warn_about_casing


@dataclasses.dataclass(frozen=True)
class _Target:
    """A format that can be written, and the parts that all its checkpoints have."""

    write: Callable[[Checkpoint, str], None]
    parts: tuple[str, ...] = ("encoder", "projection", "pooler")
    # Whether they state a head's labels, whether a text may have several, and added tokens.
    says_all: bool = True


def write_run(checkpoint: Checkpoint, folder: str) -> None:
    """Writes a run folder without the state of an optimizer."""
    Run(folder).write(checkpoint.spec, head=checkpoint.head)
    save_tensors(os.path.join(folder, "ckpt-0"), checkpoint.tensors)


_TARGETS = {
    "google": _Target(google.write, says_all=False),
    "huggingface": _Target(huggingface.write, parts=("encoder", "projection")),
    "kerashub": _Target(kerashub.write, says_all=False),
    "run": _Target(write_run),
}


def convert(options: ConversionOptions) -> None:
    """Converts a checkpoint and prints a report."""
    check_new_folder(options.output_dir)
    target = _TARGETS[options.to]
    missing, extra = _patterns(options.allow_missing), _patterns(options.allow_extra)
    source = _opened(options, [*missing, *extra])
    try:
        embedding = vectors.settings_of(source)
    except ValueError as error:
        print(f"WARNING: sentence-transformers' settings are left out: {error}")
        embedding = None
    source = _reshaped(options, source)
    # Masked-LM models have no pooler.
    allowed = missing if "pooler" in source.parts else [*missing, "encoder/pooler/*"]
    checkpoint, random = reshaping.complete(source, target.parts, allowed)
    left_out = sorted(path for path in checkpoint.tensors if matches(path, extra))
    if needed := [path for path in left_out if part_of(path) in target.parts]:
        raise ValueError(
            f"--allow_extra={options.allow_extra} would leave out {needed[0]}, which "
            f"--to={options.to} needs"
        )
    if embedding and any(matches(path, extra) for path in embedding.dense):
        embedding = None
    dense = embedding.dense if embedding else {}
    gone = {*left_out, *dense}
    tensors = {path: checkpoint.tensors[path] for path in checkpoint.tensors if path not in gone}
    head = checkpoint.head if "head" in map(part_of, tensors) else None
    if options.to == "run" and embedding:
        tensors, head = {**tensors, **dense}, embedding.head
    checkpoint = dataclasses.replace(checkpoint, tensors=tensors, head=head)
    if checkpoint.head and checkpoint.head.multi_label and not target.says_all:
        raise ValueError(
            f"{checkpoint.path} predicts several classes at once, which --to={options.to} cannot "
            "state: use huggingface or run, or leave out the head: --allow_extra='task_model/*'"
        )
    if options.to != "run":
        checkpoint = reshaping.with_plain_numbers(checkpoint)
    if options.to == "kerashub":
        checkpoint = kerashub.fitted(checkpoint)
    _warn_about_text(checkpoint, options.to)
    with whole_folder(options.output_dir) as folder:
        target.write(checkpoint, folder)
        if embedding:
            _keep_embedding(options.to, embedding, checkpoint, folder)
    bad: dict[str, str] = {}
    for path, tensor in checkpoint.tensors.items():
        note_non_finite(bad, path, tensor.read())
    if bad:
        print(f"WARNING: {describe_non_finite(checkpoint.path, bad)}.")
    print(_report(options, checkpoint, [*left_out, *checkpoint.unused], random))
    say(f"Next: {_next_step(options, checkpoint, bool(embedding))}")


def _keep_embedding(
    to: str, settings: vectors.EmbeddingSettings, checkpoint: Checkpoint, folder: str
) -> None:
    """Writes how vectors are computed, or warns that the format cannot say it."""
    config = checkpoint.spec.config
    length = resolution.fitting_length(config, settings.max_seq_length)
    if to == "huggingface":
        vectors.write_settings(settings._replace(max_seq_length=length), config.hidden_size, folder)
    elif to == "run":
        Run(folder).write(checkpoint.spec, {"max_seq_length": length})
    else:
        print(f"WARNING: --to={to} cannot state how vectors are computed: use --to=run.")


def _warn_about_text(checkpoint: Checkpoint, to: str) -> None:
    vocab = checkpoint.spec.vocab
    warn_about_casing(vocab, checkpoint.spec.lower_case)
    if vocab and vocab.added and not _TARGETS[to].says_all:
        tokens = shortened([token.content for token in vocab.added], 5)
        print(
            f"WARNING: programs that read --to={to} split the added tokens {tokens} like other "
            "text: use --to=huggingface or --to=run to keep them whole."
        )


def _patterns(text: str | None) -> list[str]:
    return [pattern.strip() for pattern in (text or "").split(",") if pattern.strip()]


def _opened(options: ConversionOptions, allowed: Collection[str]) -> Checkpoint:
    """Opens --from; adds what the flags state about the model."""
    file = options.bert_config_file
    config = BertConfig.from_json_file(file) if file else None
    checkpoint = open_checkpoint(
        options.from_, config, ignored=allowed, vocab_file=options.vocab_file
    )
    if checkpoint.run:
        checkpoint.run.check_one_task()
    spec, own = checkpoint.spec, checkpoint.config_file
    # Of the same file, a format may interpret some values differently.
    if config and own and absolute_path(file) != absolute_path(own):
        given, saved_in = f"--bert_config_file={file}", f"{own}, the configuration of --from,"
        advice = "leave out --bert_config_file"
        resolution.check_same_config(config, given, spec.config, saved_in, advice)
    vocab_file, vocab = checkpoint.vocab_file, spec.vocab
    vocabs, casings = resolution.flag_values(options.vocab_file, options.do_lower_case)
    if options.vocab_file and not options.init_vocab_mapping:
        sources = vocabs | {vocab_file or checkpoint.path: vocab}
        _, vocab = resolution.agreed("vocabulary", sources, "leave out --vocab_file")
        vocab_file = options.vocab_file
    casings |= {checkpoint.path: checkpoint.stated_casing}
    lower_case = resolution.agreed_casing(
        casings, vocab, None if checkpoint.unread_vocab else checkpoint.path
    )
    check_fits(vocab_file, vocab, spec.config, checkpoint.path)
    config = spec.config
    if options.hidden_act:
        config = dataclasses.replace(config, hidden_act=options.hidden_act)
    spec = dataclasses.replace(spec, config=config, vocab=vocab, lower_case=lower_case)
    return dataclasses.replace(checkpoint, spec=spec, vocab_file=vocab_file)


def _reshaped(options: ConversionOptions, checkpoint: Checkpoint) -> Checkpoint:
    """Changes layers, positions and vocabulary as the flags say."""
    if options.layers:
        layers = reshaping.parse_layers(options.layers, checkpoint.spec.config.num_hidden_layers)
        checkpoint = reshaping.keep_layers(checkpoint, layers)
    if options.max_position_embeddings:
        checkpoint = reshaping.resize_positions(checkpoint, options.max_position_embeddings)
    if options.init_vocab_mapping:
        mapping = load_mapping(options.init_vocab_mapping)
        vocab, _ = resolution.read_vocab_file(options.vocab_file, options.do_lower_case)
        checkpoint = reshaping.grow_vocabulary(checkpoint, mapping, vocab, options.vocab_file)
        say(mapping.describe())
    return checkpoint


def _report(
    options: ConversionOptions, checkpoint: Checkpoint, left_out: list[str], random: list[str]
) -> str:
    spec, config = checkpoint.spec, checkpoint.spec.config
    parameters = sum(int(np.prod(tensor.shape)) for tensor in checkpoint.tensors.values())
    parts = [part for part in PARTS if part in checkpoint.parts]
    casing = {True: "uncased", False: "cased", None: "of unknown casing"}[spec.lower_case]
    vocab = f"{casing} vocabulary of {len(spec.vocab):,} tokens" if spec.vocab else "no vocabulary"
    lines = [
        f"Wrote {options.output_dir}: {', '.join(parts)} from {checkpoint.path}"
        f"{f' ({checkpoint.format})' if checkpoint.format else ''}, {parameters:,} parameters; "
        f"{config.num_hidden_layers} layers of {config.hidden_size}, {config.hidden_act}, "
        f"LayerNorm epsilon {config.layer_norm_eps:g}; {vocab}."
    ]
    if checkpoint.head and checkpoint.head.labels and not _TARGETS[options.to].says_all:
        labels = ", ".join(checkpoint.head.labels)
        lines.append(f"This format does not store the names of the labels; keep them: {labels}.")
    if left_out:
        lines.append(f"Left out of the checkpoint: {shortened(left_out, 10)}.")
    if random:
        lines.append(f"Initialized randomly: {', '.join(random)}.")
    return "\n".join(lines)


def _next_step(options: ConversionOptions, checkpoint: Checkpoint, computes_vectors: bool) -> str:
    folder = options.output_dir
    if options.to == "huggingface" and computes_vectors:
        return f"in Python, sentence_transformers.SentenceTransformer({folder!r})"
    if options.to == "huggingface":
        (name,) = config_json(checkpoint)["architectures"]
        return f"in Python, transformers.{name}.from_pretrained({folder!r})"
    if options.to == "kerashub":
        name = kerashub.model_class(checkpoint)
        return f"in Python, keras_hub.models.{name}.from_preset({folder!r})"
    head = checkpoint.head
    if head and options.to == "google":
        return f"in google-research/bert, --init_checkpoint={folder}/bert_model.ckpt"
    if head:
        kind = "embedder" if head.kind == EMBEDDING else "classifier"
        line = command_line(f"export.{kind}", checkpoint=folder, output_dir=unused_name(kind))
        if head.kind != "classifier":
            return line
        return f"{line}\nAdd --pairs if it classifies pairs of texts, which {folder} does not say."
    return command_line(
        "bert_tf.run_finetuning",
        task="sst2",
        data_dir="glue/SST-2",
        init_checkpoint=folder,
        do_train=True,
        do_eval=True,
        output_dir=unused_name("run-sst2"),
    )
