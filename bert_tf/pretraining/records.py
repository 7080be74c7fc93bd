"""What run_pretraining trains on: the records that its flags name, looked at beforehand."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_tf.run_pretraining_flags import Options

if TYPE_CHECKING:
    from bert_tf.config import BertConfig
    from bert_tf.pretraining.phases import Phase, PhaseOptions
    from tfrecords.dynamic_masking import DynamicMasking


def checked_phases(options: Options, config: "BertConfig") -> list["Phase"]:
    """The phases, once their records have been looked at."""
    from bert_tf.pretraining.phases import PhaseOptions, last_steps, read_phases

    names = [field.name for field in dataclasses.fields(PhaseOptions) if field.name != "share"]
    whole = PhaseOptions(share=1.0, **{name: getattr(options, name) for name in names})
    asked = read_phases(options.phases_file, whole) if options.phases_file else [whole]
    try:
        ends = last_steps(asked, options.num_train_steps)
    except ValueError as error:
        raise ValueError(f"{options.phases_file}, {error}") from None
    starts = [0, *ends[:-1]]
    phases = []
    for number, (phase, start, end) in enumerate(zip(asked, starts, ends, strict=True), start=1):
        try:
            phases.append(_phase(options, config, phase, start, end))
        except ValueError as error:
            if not options.phases_file:
                raise
            raise ValueError(f"{options.phases_file}, phase {number}: {error}") from None
    return phases


def objective(options: Options, phases: Sequence["Phase"]) -> str:
    """What to learn: what the flag says, else what manifests say the examples are for, else nsp.

    Raises:
        ValueError: next sentences are to be learnt from examples without, or examples are for
            different objectives.
    """
    made_for = {
        settings["objective"]: file
        for file, settings in _settings_by_file(phases)
        if "objective" in settings
    }
    if options.objective is None and len(made_for) > 1:
        said = ", ".join(f"{file} with --objective={name}" for name, file in made_for.items())
        raise ValueError(f"give --objective: the examples were not all made for the same: {said}")
    if "mlm" in made_for and options.objective not in (None, "mlm"):
        raise ValueError(
            f"--objective={options.objective}, but the examples of {made_for['mlm']} have no "
            "second sentence: they were made with --objective=mlm"
        )
    return options.objective or next(iter(made_for), "nsp")


def made_with_other_vocabulary(options: Options, phases: Sequence["Phase"]) -> str | None:
    """A file of examples whose manifest tells of another vocabulary than --vocab_file."""
    from tfrecords.manifest import lines_sha256
    from tfrecords.vocabulary import load_vocab

    if not options.vocab_file:
        return None
    given = lines_sha256(load_vocab(options.vocab_file).tokens)
    for file, settings in _settings_by_file(phases):
        if settings.get("vocab_file", given) != given:
            return file
    return None


def _phase(
    options: Options, config: "BertConfig", asked: "PhaseOptions", start: int, end: int
) -> "Phase":
    from bert_tf.pretraining.phases import Phase
    from bert_tf.run_folder import files_split_by
    from tfrecords.reader import check_pretraining_files, expand_files
    from tfrecords.writer import absolute_path

    length = asked.max_seq_length
    if length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={length} is longer than the max_position_embeddings "
            f"{config.max_position_embeddings} of {options.bert_config_file or options.preset}"
        )
    files = expand_files(asked.input_file)
    eval_files = expand_files(asked.eval_input_file) if asked.eval_input_file else files
    predictions = asked.max_predictions_per_seq
    used = (files if options.do_train else []) + (eval_files if options.do_eval else [])
    needs_masking = check_pretraining_files(used, length, predictions, config.vocab_size)
    if options.masking == "left_to_right":
        predictions = length - 1
    split = files if options.do_train else files_split_by(options.output_dir)
    # So that phases which share records see them in other orders, and masked otherwise.
    seed = (options.random_seed + start) % 2**32
    return Phase(
        first_step=start,
        until_step=end,
        files=tuple(files),
        eval_files=tuple(eval_files),
        splits=not {*map(absolute_path, split)}.isdisjoint(map(absolute_path, eval_files)),
        max_seq_length=length,
        max_predictions_per_seq=predictions,
        train_batch_size=asked.train_batch_size,
        seed=seed,
        masking=_masking(options, config, used[0], needs_masking, seed),
    )


def _masking(
    options: Options, config: "BertConfig", file: str, needed: bool, seed: int
) -> "DynamicMasking | None":
    """How to mask the examples, of which `file` is one, where that is still to be done."""
    from tfrecords.dynamic_masking import DynamicMasking
    from tfrecords.vocabulary import load_vocab

    if not needed:
        for name in ("masking", "masked_lm_prob"):
            if getattr(options, name) is not None:
                raise ValueError(
                    f"--{name} is for examples made with --masking=dynamic: {file} is masked "
                    "already, leave the flag out"
                )
        return None
    if not options.vocab_file:
        raise ValueError(f"{file} is to be masked as it is read: that needs --vocab_file")
    if options.masking == "left_to_right" and not config.is_decoder:
        raise ValueError(
            "--masking=left_to_right needs an encoder that sees only what is to the left: "
            '"is_decoder": true in --bert_config_file'
        )
    vocab = load_vocab(options.vocab_file)
    return DynamicMasking(
        mask_id=vocab.mask_id,
        cls_id=vocab.cls_id,
        sep_id=vocab.sep_id,
        vocab_size=len(vocab),
        masked_lm_prob=0.15 if options.masked_lm_prob is None else options.masked_lm_prob,
        units=options.masking or "wordpiece",
        seed=seed,
    )


def _settings_by_file(phases: Sequence["Phase"]) -> list[tuple[str, dict]]:
    """A file of each data set that has a manifest, and the settings it was made with."""
    import tensorflow as tf

    from tfrecords.manifest import manifest_path, read_manifest

    files = {
        manifest_path(file): file for phase in phases for file in (*phase.files, *phase.eval_files)
    }
    return [
        (file, read_manifest(path).get("settings", {}))
        for path, file in files.items()
        if tf.io.gfile.exists(path)
    ]
