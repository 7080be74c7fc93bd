"""The records that a run trains and evaluates on, checked before anything is computed.

The run folder remembers them, so that a run does not resume on others unnoticed: the files of each
--input_file and --eval_input_file, as the user gave it, with their sizes, and with their checksums
from the manifest or else those of their first bytes. Another --input_file changes the records on
purpose, so nothing is compared then.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from bert_tf.base.files import (
    absolute_path,
    errors_at,
    expand_files,
    normalized,
    parse_json,
    read_file,
    reading,
)
from bert_tf.base.made import Inputs
from bert_tf.config import ModelSpec
from bert_tf.pretraining.pretraining_options import PretrainingOptions, SharedOptions
from bert_tf.runs.run import MADE_FROM, Run
from bert_tf.weights.resolving import agreed, check_length
from tfrecords import manifest
from tfrecords.dynamic_masking import DynamicMasking
from tfrecords.reader import RecordSet, check_files
from tfrecords.vocabulary import Vocabulary

# The original's defaults, for records that no manifest describes.
_DEFAULT_LENGTHS = {"max_seq_length": 128, "max_predictions_per_seq": 20}
_DEFAULT_MASKED_LM_PROB = 0.15
# Examples that are created again differ from the first on. Large files are never read as a whole.
_FIRST_BYTES = 2**16

# What an object of a --phases_file may hold; all but the share are names of flags.
_PHASE_KEYS = ("share", "input_file", "eval_input_file", "max_seq_length")
_PHASE_KEYS += ("max_predictions_per_seq", "train_batch_size")


@dataclasses.dataclass(frozen=True)
class NamedRecords:
    """The files of a phase, which takes the steps after `first_step` up to `until_step`."""

    phase: SharedOptions  # the flags with its values
    first_step: int
    until_step: int
    files: tuple[str, ...]
    eval_files: tuple[str, ...]  # the same unless the user gave separate ones
    inputs: Mapping[str, Mapping[str, int]]  # --input_file -> each file that is read -> its bytes
    manifests: Mapping[str, dict[str, Any]]  # by their paths

    def settings(self, name: str) -> dict[str, Any]:
        """Returns the value of a setting in each manifest, by the manifest's path."""
        return {
            path: manifest.get("settings", {}).get(name)
            for path, manifest in self.manifests.items()
        }


@dataclasses.dataclass(frozen=True)
class PhaseRecords:
    """The records of a phase, ready to read; the steps are those of `NamedRecords`."""

    first_step: int
    until_step: int
    train: RecordSet
    evaluation: RecordSet
    train_batch_size: int


def read_phases(options: SharedOptions) -> list[tuple[int, SharedOptions]]:
    """Returns the last step of every phase, and the flags with which it runs.

    The phases are those of `--phases_file`, a JSON list of objects, which take what they omit from
    the flags; without a file, there is one.

    Example:
        [{"share": 0.9, "input_file": "len128-*.tfrecord"},
         {"share": 0.1, "input_file": "len512-*.tfrecord", "train_batch_size": 64}]
    """
    path = options.phases_file
    if not path:
        return [(options.num_train_steps, options)]
    with errors_at(f"{path} is not a JSON list of objects, one per phase"):
        content = parse_json(read_file(path), list[dict[str, Any]])
    phases, shares, last = [], [], 0
    for number, values in enumerate(content, start=1):
        with _phase_named(options, number):
            if unknown := sorted(values.keys() - _PHASE_KEYS):
                raise ValueError(
                    f"unknown key {unknown[0]!r}: the keys are {', '.join(_PHASE_KEYS)}"
                )
            share = values.pop("share", None)
            if not isinstance(share, int | float) or not 0 < share <= 1:
                raise ValueError(f"share is {share}: give this phase's share of all steps, as 0.9")
            shares.append(share)
            before, last = last, round(sum(shares) * options.num_train_steps)
            if last == before:
                steps = options.num_train_steps
                raise ValueError(f"share {share:g} of --num_train_steps={steps} is below one step")
            if "input_file" in values:
                # The held-out records of the flags do not belong to this phase.
                values = {"eval_input_file": None} | values
            phases.append((last, dataclasses.replace(options, **values)))
    if abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"{path}: the shares of the phases add up to {sum(shares):g}, not to 1")
    return phases


def _phase_named(options: SharedOptions, number: int) -> AbstractContextManager:
    """Adds the file and number of a phase to errors about it."""
    path = options.phases_file
    return errors_at(f"{path}, phase {number}") if path else contextlib.nullcontext()


def name_records(options: PretrainingOptions) -> list[NamedRecords]:
    """Finds the files and manifests of every phase."""
    named, start = [], 0
    for number, (end, phase) in enumerate(read_phases(options), start=1):
        with _phase_named(options, number):
            files = expand_files(phase.input_file)
            eval_files = files
            if phase.eval_input_file:
                eval_files = expand_files(phase.eval_input_file, flag="eval_input_file")
            inputs = {}
            if options.do_train or not phase.eval_input_file:
                inputs[phase.input_file] = _sizes(files)
            if options.do_eval and phase.eval_input_file:
                inputs[phase.eval_input_file] = _sizes(eval_files)
            manifests = manifest.find_manifests(itertools.chain(*inputs.values()))
            for patterns, sizes in inputs.items():
                manifest.check_finished(sizes, manifests)
                manifest.check_complete(patterns, sizes, manifests)
            named.append(
                NamedRecords(phase, start, end, tuple(files), tuple(eval_files), inputs, manifests)
            )
            start = end
    return named


def _sizes(files: Sequence[str]) -> dict[str, int]:
    return {file: tf.io.gfile.stat(file).length for file in files}


def stated_by_manifests(
    records: Sequence[NamedRecords],
) -> tuple[dict[str, Vocabulary | None], dict[str, bool | None]]:
    """Returns the vocabularies and the casings that manifests state, by the manifest's path."""
    vocabs, casings = {}, {}
    for phase in records:
        casings |= phase.settings("do_lower_case")
        for path, content in phase.manifests.items():
            vocabs[path] = manifest.stored_vocabulary(path, content)
    return vocabs, casings


def resolve_objective(options: PretrainingOptions, records: Sequence[NamedRecords]) -> str:
    """Returns the objective to learn: that of the flag, else that of the manifests, else "nsp"."""
    if options.objective == "mlm":
        # Masked tokens can be learned from examples of any objective.
        return "mlm"
    stated = {"--objective": options.objective}
    for phase in records:
        stated |= phase.settings("objective")
    advice = "use examples that were created for one objective, or give --objective=mlm"
    return agreed("objective", stated, advice)[1] or "nsp"


def check_records(
    options: PretrainingOptions,
    spec: ModelSpec,
    records: Sequence[NamedRecords],
    held_out_from: Sequence[str],
) -> list[PhaseRecords]:
    """Checks the records of every phase against flags, manifests, model and held-out files."""
    phases = []
    for number, named in enumerate(records, start=1):
        with _phase_named(options, number):
            phases.append(_check_phase(options, spec, named, held_out_from))
    return phases


def _check_phase(
    options: PretrainingOptions, spec: ModelSpec, named: NamedRecords, held_out_from: Sequence[str]
) -> PhaseRecords:
    # Phases that share records see them in a different order and with different masks.
    seed = (options.random_seed + named.first_step) % 2**32
    records = RecordSet(
        files=named.files,
        max_seq_length=_length(named, "max_seq_length"),
        max_predictions_per_seq=_length(named, "max_predictions_per_seq"),
        vocab_size=spec.config.vocab_size,
        num_types=min(2, spec.config.type_vocab_size or 2),
        vocab=spec.vocab,
        seed=seed,
    )
    check_length(spec.config, records.max_seq_length)
    used = [
        *(named.files if options.do_train else ()),
        *(named.eval_files if options.do_eval else ()),
    ]
    dynamic = check_files(dataclasses.replace(records, files=tuple(used)))
    masking = _masking(options, spec, named, used[0], dynamic, seed)
    length, predictions = records.max_seq_length, records.max_predictions_per_seq
    if masking and masking.units == "left_to_right":
        predictions = length - 1
    elif masking and named.phase.max_predictions_per_seq is None:
        # The manifest suggests a number for its own share.
        share = max(options.masked_lm_prob or 0, options.eval_masked_lm_prob or 0)
        predictions = max(predictions, math.ceil(length * share))
    records = dataclasses.replace(records, masking=masking, max_predictions_per_seq=predictions)
    # A run that has held out records of a file never evaluates on the other records of that file.
    split = set(map(absolute_path, named.files if options.do_train else held_out_from))
    splits = not split.isdisjoint(map(absolute_path, named.eval_files))
    held_out = dataclasses.replace(
        records, files=named.eval_files, part="held_out" if splits else "all"
    )
    if masking and (share := options.eval_masked_lm_prob):
        masking = dataclasses.replace(masking, masked_lm_prob=share)
        held_out = dataclasses.replace(held_out, masking=masking)
    return PhaseRecords(
        first_step=named.first_step,
        until_step=named.until_step,
        train=dataclasses.replace(records, part="train" if splits else "all"),
        evaluation=held_out,
        train_batch_size=named.phase.train_batch_size,
    )


def _length(named: NamedRecords, name: str) -> int:
    """Returns a length of the records, on which the flag and the manifests must agree."""
    stated = named.settings(name)
    if name == "max_predictions_per_seq":
        # Dynamic records hold no predictions yet, so their manifest only suggests a number.
        dynamic = [path for path, kind in named.settings("masking").items() if kind == "dynamic"]
        # `check_files` explains the error if there are masked records as well.
        if getattr(named.phase, name) is not None or len(dynamic) < len(stated):
            stated = {path: value for path, value in stated.items() if path not in dynamic}
    _, length = agreed(name, {f"--{name}": getattr(named.phase, name)} | stated)
    return _DEFAULT_LENGTHS[name] if length is None else length


def _masking(
    options: PretrainingOptions,
    spec: ModelSpec,
    named: NamedRecords,
    file: str,
    dynamic: bool,
    seed: int,
) -> DynamicMasking | None:
    """Returns how to mask dynamic records, such as those of `file`; None for masked records."""
    if not dynamic:
        why = f"needs examples created with --masking=dynamic, but {file} is already masked"
        flags = ("masking", "masked_lm_prob", "eval_masked_lm_prob", "replacements")
        options.refuse(flags, why)
        return None
    if not spec.vocab:
        raise ValueError(f"{file} is masked while reading: give its --vocab_file")
    if options.masking == "left_to_right" and not spec.config.is_decoder:
        raise ValueError(
            "--masking=left_to_right needs an encoder that attends to the left only: set "
            '"is_decoder": true in --bert_config_file'
        )
    return DynamicMasking(
        mask_id=spec.vocab.mask_id,
        cls_id=spec.vocab.cls_id,
        sep_id=spec.vocab.sep_id,
        vocab_size=len(spec.vocab),
        masked_lm_prob=masked_lm_prob(options, named),
        units=options.masking or "wordpiece",
        seed=seed,
        tenths=options.replacement_tenths,
    )


def masked_lm_prob(options: PretrainingOptions, named: NamedRecords) -> float:
    """Returns the share of the tokens that are predicted, according to flags and manifests."""
    prob = options.masked_lm_prob
    if prob is None:
        _, prob = agreed("masked_lm_prob", named.settings("masked_lm_prob"))
    return _DEFAULT_MASKED_LM_PROB if prob is None else prob


def describe_records(records: Sequence[NamedRecords]) -> Inputs:
    """Describes the files that the phases of a run read."""
    listed, inputs = {}, {}
    for phase in records:
        listed |= manifest.listed_files(phase.manifests)
        inputs |= phase.inputs
    return [
        {"name": file, "of": f"records in {pattern}", "bytes": size}
        | _checksum(file, listed.get(normalized(file)))
        for pattern, files in inputs.items()
        for file, size in files.items()
    ]


def check_unchanged(run: Run, inputs: Inputs) -> None:
    """Checks that the files of a run that resumes are those that it was trained on."""
    advice = (
        f"restore the records, or start a new run with --init_checkpoint={run.path}, or remove "
        f"{run.file(MADE_FROM)} to resume on the records as they are"
    )
    run.check_made_from(inputs, advice)


def copies_of_records(run: Run, records: Sequence[NamedRecords]) -> list[str]:
    """Returns the files that have the size and checksum of one that the run was trained on."""
    unnamed = {"name": None, "of": None}
    known = [x | unnamed for x in run.made_from.inputs]
    return [x["name"] for x in describe_records(records) if x | unnamed in known]


def _checksum(file: str, entry: dict | None) -> dict[str, str]:
    if entry:
        return {"sha256": entry["sha256"]}
    with reading(file) as stream:
        return {"sha256_of_first_bytes": hashlib.sha256(stream.read(_FIRST_BYTES)).hexdigest()}
