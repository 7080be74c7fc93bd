"""Tells the user how long a run will take, whether it learns, and what to run next."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.input_files import shortened
from bert_tf.base.progress import duration
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.pretraining.records import PhaseRecords
from bert_tf.runs.run import Run
from bert_tf.weights.flops import training_flops
from tfrecords.reader import sample_batch
from tfrecords.statistics import label_warning, prediction_warning
from tfrecords.vocabulary import Vocabulary

# The share of the devices' peak that training reaches, as measured on the CPU (docs/results.md):
# about 0.35 for base and 0.12 to 0.2 for tiny and mini, whose narrow products fill them less.
_BASE_UTILIZATION, _BASE_WIDTH = 0.35, 768
# A model that has learned nothing nearly always predicts the most frequent token.
_NO_BETTER = 1.1

Flops = Callable[[BertConfig, int, int], int]


def announce_duration(
    config: BertConfig,
    phases: Sequence[PhaseRecords],
    step: int,
    peak_flops: float,
    flops_per_sequence: Flops = training_flops,
) -> str:
    """Estimates how long the steps after `step` will take, without evaluations.

    `peak_flops` are those of all devices together, in FLOP/s.
    """
    flops = 0
    for phase in phases:
        records = phase.train
        steps = max(0, phase.until_step - max(step, phase.first_step))
        each = flops_per_sequence(config, records.max_seq_length, records.max_predictions_per_seq)
        flops += steps * phase.train_batch_size * each
    utilization = _BASE_UTILIZATION * min(1.0, math.sqrt(config.hidden_size / _BASE_WIDTH))
    time = duration(flops / (utilization * peak_flops))
    return (
        f"{phases[-1].until_step - step:,} steps will take roughly {time}, if they reach "
        f"{utilization:.0%} of the devices' {peak_flops / 1e12:,.3g} TFLOP/s. After the first "
        "steps, the progress bar shows a better estimate."
    )


def record_warnings(
    options: PretrainingOptions, phases: Sequence[PhaseRecords], with_pairs: bool
) -> list[str]:
    """Returns a warning for each set of files that has nothing to teach or to measure.

    `with_pairs` says whether the model learns from pairs of segments.
    """
    used = [phase.train for phase in phases if options.do_train]
    used += [phase.evaluation for phase in phases if options.do_eval]
    warnings: list[str | None] = []
    for records in {records.files: records for records in used}.values():
        batch = sample_batch(records)
        labels = batch["next_sentence_labels"]
        source = f"the first {len(labels):,} records of {shortened(records.files, 1)}"
        if "masked_lm_weights" in batch:
            warnings.append(prediction_warning(batch["masked_lm_weights"].sum(), source))
        if with_pairs:
            warnings.append(label_warning(int(labels.sum()), len(labels), source))
    return list(filter(None, warnings))


def constant_prediction(
    counts: np.ndarray, step: int, accuracy: float, vocab: Vocabulary | None
) -> str | None:
    """Returns a warning if a masked-LM accuracy is hardly higher than that of one token for all.

    `counts` says how often each token was masked. The share of the most frequent one is the highest
    accuracy that any constant prediction can have.
    """
    token, highest = int(counts.argmax()), float(counts.max() / max(counts.sum(), 1.0))
    if accuracy > _NO_BETTER * highest:
        return None
    name = f'"{vocab.tokens[token]}"' if vocab else f"the token {token}"
    return (
        f"WARNING: step {step:,}: masked_lm_accuracy {accuracy:.4f} is no better than always "
        f"predicting {name} ({highest:.4f}). The model ignores its input so far. If "
        "this does not change within a few thousand steps, try another --learning_rate (1e-3 "
        "for tiny and mini, 1e-4 for base), a longer --num_warmup_steps, or a larger "
        "initializer_range and no dropout in --bert_config_file."
    )


def summary(options: PretrainingOptions, run: Run, results: Mapping[str, float]) -> str:
    """Describes the results of the last evaluation, if there was one, and what the run wrote."""
    names = [name for name in results if name.endswith("accuracy")] or ["loss"]
    metrics = [f"{name} {results[name]:.4f}" for name in names if name in results]
    evaluated = f"{', '.join(metrics)} at step {results['global_step']:,}.\n" if metrics else ""
    files = ["eval_results.txt"] if options.do_eval else []
    if options.do_train:
        files += ["checkpoints", "curves.png", "metrics.jsonl"]
    return (
        f"{evaluated}Wrote {run.path}: {', '.join(files)}. For TensorBoard: "
        f"tensorboard --logdir={shlex.quote(run.path)}"
    )


def next_step(spec: ModelSpec, run: Run) -> str:
    """Describes what to run next."""
    export = command_line("export.encoder", checkpoint=run.path, output_dir=unused_name("encoder"))
    # What the run does not know, the export needs.
    unknown = [] if spec.vocab else ["--vocab_file"]
    if spec.lower_case is None:
        unknown.append("--do_lower_case or --nodo_lower_case")
    with_flags = f" (add {' and '.join(unknown)})" if unknown else ""
    return f"Next{with_flags}: {export}"
