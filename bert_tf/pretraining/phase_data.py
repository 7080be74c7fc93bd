"""What a run trains, on what the driver trains and evaluates in a phase, and advice to the user."""

import dataclasses
import functools
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.files import shortened
from bert_tf.base.output_files import atomic_write
from bert_tf.base.progress import duration, for_caller, with_progress
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.pretraining.run_records import PhaseRecords
from bert_tf.runs.run import Run
from bert_tf.sessions.learner import Learner, Training
from bert_tf.sessions.session import Session
from bert_tf.training.driver import Phase
from bert_tf.training.trainer import Batch, Objective, open_batches
from bert_tf.weights.names import training_flops
from tfrecords import reader
from tfrecords.statistics import label_warning, prediction_warning
from tfrecords.vocabulary import CLS, SEP, Vocabulary


class PretrainingLearner(Learner):
    """Trains a `BertPretrainer`, with or without pairs; other learners of records replace parts."""

    def __init__(self, next_sentence: bool):
        self._next_sentence = next_sentence

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        return BertPretrainer(spec.config, session.rematerialize)

    def objective(self, spec: ModelSpec, num_train_steps: int) -> Objective:
        return PretrainingObjective(self._next_sentence)

    def prepare(self, batches: tf.data.Dataset, spec: ModelSpec) -> tf.data.Dataset:
        """Adds what the objective needs to batches of records."""
        return batches

    def training_flops(self, config: BertConfig, length: int, predictions: int) -> int:
        """Returns the floating-point operations for a sequence; see `names.training_flops`."""
        return training_flops(config, length, predictions)


@dataclasses.dataclass(eq=False)
class PhaseData:
    """Batches and evaluations of one phase, and the warnings of the run so far."""

    training: Training
    records: PhaseRecords
    warned: list[str]
    counts: np.ndarray | None = None  # how often the first evaluation masked each token

    @property
    def options(self) -> PretrainingOptions:
        """The flags."""
        return self.training.session.options

    def phase(self) -> Phase:
        """Returns the phase for the driver."""
        config, train, shortcut = self.training.spec.config, self.records.train, None
        if self.options.do_train:
            shortcut = self.training.session.shortcut(
                self.training.model,
                reader.sample_batch(train)["input_mask"].sum(1),
                train.max_seq_length,
                self.records.train_batch_size,
                self.options.gradient_accumulation_steps,
            )
        return Phase(
            until_step=self.records.until_step,
            batch_size=self.records.train_batch_size,
            batches=self._training_batches,
            evaluate=self._evaluate if self.options.do_eval else None,
            flops_per_sequence=self.training.learner.training_flops(
                config, train.max_seq_length, train.max_predictions_per_seq
            ),
            shortcut=shortcut,
            describe_batch=self._describe_batch,
        )

    def _training_batches(self, step: int) -> tf.distribute.DistributedDataset:
        records, first = self.records, step - self.records.first_step
        size = records.train_batch_size
        return self._distributed(reader.training_batches, records.train, size, first_step=first)

    @functools.cached_property
    def _evaluation_batches(self) -> tf.distribute.DistributedDataset:
        return self._distributed(
            reader.evaluation_batches, self.records.evaluation, self.options.eval_batch_size
        )

    def _evaluate(self) -> dict[str, float]:
        batches = self._counted_batches() if self.counts is None else self._evaluation_batches
        batches = with_progress(batches, "Evaluating", disable=not self.training.session.is_chief)
        metrics = self.training.trainer.evaluate(batches, self.options.max_eval_steps)
        if "masked_lm_loss" not in metrics:
            return metrics
        options, step = self.options, int(self.training.trainer.step.numpy())
        if not self.warned and (not options.do_train or step > options.num_warmup_steps):
            accuracy, vocab = metrics["masked_lm_accuracy"], self.training.spec.vocab
            if warning := constant_prediction(self.counts, step, accuracy, vocab):
                self.warned.append(warning)
                self.training.session.say(warning)
        # TensorBoard's numbers are float32.
        perplexity = math.exp(min(metrics["masked_lm_loss"], 88.0))
        return metrics | {"masked_lm_perplexity": perplexity}

    def _counted_batches(self) -> Iterator[Batch]:
        """Yields the evaluation's batches while it counts the masked tokens of this worker."""
        self.counts = np.zeros(self.records.evaluation.vocab_size)
        of_replicas = self.training.trainer.strategy.experimental_local_results
        with open_batches(self._evaluation_batches) as held:
            for batch in held[0]:
                names = ("masked_lm_ids", "masked_lm_weights")
                for ids, weights in zip(*(of_replicas(batch[x]) for x in names), strict=True):
                    np.add.at(self.counts, ids.numpy(), weights.numpy())
                yield batch

    def _describe_batch(self, step: int) -> str:
        """Writes the names of a step's records to a file; returns a sentence with some of them."""
        phase, done = self.records, step - 1 - self.records.first_step
        records = reader.records_of_step(phase.train, phase.train_batch_size, done)
        path = f"{self.options.output_dir}/records-of-step-{step}.txt"
        atomic_write(path, "".join(f"{file}\t{number}\n" for file, number in records))
        names = [f"{file} {number}" for file, number in records]
        return f"Its records: {shortened(names)}, listed in {path}"

    def _distributed(
        self,
        read: Callable[..., tf.data.Dataset],
        records: reader.RecordSet,
        batch_size: int,
        **arguments: int,
    ) -> tf.distribute.DistributedDataset:
        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            size = context.get_per_replica_batch_size(batch_size)
            batches = read(records, size, context=context, **arguments)
            return self.training.learner.prepare(batches, self.training.spec)

        return self.training.trainer.strategy.distribute_datasets_from_function(dataset)


# The share of the devices' peak that training reaches, as measured on the CPU (docs/results.md):
# about 0.35 for base and 0.12 to 0.2 for tiny and mini, whose narrow products fill them less.
_BASE_UTILIZATION, _BASE_WIDTH = 0.35, 768
# A model that has learned nothing nearly always predicts the most frequent token.
_NO_BETTER = 1.1
_TEXTS = 4


def announce_duration(
    config: BertConfig,
    phases: Sequence[PhaseRecords],
    step: int,
    peak_flops: float,
    flops_per_sequence: Callable[[BertConfig, int, int], int] = training_flops,
) -> str:
    """Estimates how long the steps after `step` take, at the peak FLOP/s of all devices."""
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


def some_texts(records: reader.RecordSet) -> list[str]:
    """Returns texts of the records, or pairs as "a ||| b", for `explore` to suggest."""
    if not records.vocab:
        return []
    rows = reader.sample_batch(records)["input_word_ids"]
    # Training explains what is wrong with other ids.
    rows = rows[np.isin(rows, np.arange(len(records.vocab))).all(axis=1)]
    texts = map(records.vocab.decode, rows[:: len(rows) // _TEXTS + 1].tolist())
    return [
        text.removeprefix(f"{CLS} ").removesuffix(f" {SEP}").replace(f" {SEP} ", " ||| ")
        for text in texts
    ]


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
        batch = reader.sample_batch(records)
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
    wrote = f"Wrote {run.path}: {', '.join(files)}."
    return evaluated + for_caller(wrote, f"Saved to {os.path.join(run.path, '')}.")


def next_step(spec: ModelSpec, run: Run) -> str:
    """Describes what to run next."""
    export = command_line("export.encoder", checkpoint=run.path, output_dir=unused_name("encoder"))
    # What the run does not know, the export needs.
    unknown = [] if spec.vocab else ["--vocab_file"]
    if spec.lower_case is None:
        unknown.append("--do_lower_case or --nodo_lower_case")
    with_flags = f" (add {' and '.join(unknown)})" if unknown else ""
    curves = f"For TensorBoard: tensorboard --logdir={shlex.quote(run.path)}"
    shell = f"{curves}\nNext{with_flags}: {export}"
    return for_caller(shell, f'Try: run.plot(), run.export("encoder"){with_flags}')
