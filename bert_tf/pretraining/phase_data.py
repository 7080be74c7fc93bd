"""What a pre-training run trains, and on what the driver trains and evaluates in a phase."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.pretraining.advice import Baseline
from bert_tf.pretraining.records import PhaseRecords
from bert_tf.session import Session
from bert_tf.training.driver import Phase
from bert_tf.training.iteration import iterate, with_progress
from bert_tf.training.strategy import is_chief
from bert_tf.training.trainer import Batch, Objective, Shortcut, Trainer
from bert_tf.weights.flops import training_flops
from tfrecords.input_files import shortened
from tfrecords.order import RecordSet, records_of_step
from tfrecords.progress import say
from tfrecords.reader import evaluation_batches, sample_batch, training_batches
from tfrecords.writer import atomic_write


class PretrainingTask:
    """The model and the objective of a run; `readers` are other models that read the records."""

    readers: Mapping[str, ModelSpec] = {}

    def build_model(self, spec: ModelSpec, rematerialize: str) -> keras.Model:
        """Returns the model to train, with random weights; `rematerialize` as in `BertEncoder`."""
        return BertPretrainer(spec.config, rematerialize)

    def objective(self, name: str, spec: ModelSpec, num_train_steps: int) -> Objective:
        """Returns the objective; `name` is one of `choices.OBJECTIVES`."""
        return PretrainingObjective(next_sentence=name != "mlm")

    def prepare(self, batches: tf.data.Dataset, spec: ModelSpec) -> tf.data.Dataset:
        """Adds what the objective needs to batches of records."""
        return batches

    def initial_weights(self, model: keras.Model) -> Sequence[keras.Variable]:
        """Returns the weights of the model that the initial checkpoint sets."""
        return model.weights

    def preset_weights(self, model: keras.Model) -> Sequence[keras.Variable]:
        """Returns the weights to which `build_model` gave their initial values."""
        return ()

    def training_flops(self, config: BertConfig, length: int, predictions: int) -> int:
        """Returns the floating-point operations for a sequence; see `weights.flops`."""
        return training_flops(config, length, predictions)


class PhaseData:
    """Batches and evaluations of one phase.

    `warned` holds the warnings that the run has already printed, in all phases.
    """

    def __init__(
        self,
        session: Session,
        task: PretrainingTask,
        spec: ModelSpec,
        trainer: Trainer,
        records: PhaseRecords,
        warned: list[str],
    ):
        self._session, self._options = session, session.options
        self._task, self._spec = task, spec
        self._trainer, self._records = trainer, records
        self._baseline: Baseline | None = None
        self._warned = warned

    def phase(self) -> Phase:
        """Returns the phase for the driver."""
        config, train = self._spec.config, self._records.train
        return Phase(
            until_step=self._records.until_step,
            batch_size=self._records.train_batch_size,
            batches=self._training_batches,
            evaluate=self._evaluate if self._options.do_eval else None,
            flops_per_sequence=self._task.training_flops(
                config, train.max_seq_length, train.max_predictions_per_seq
            ),
            shortcut=self._shortcut() if self._options.do_train else None,
            describe_batch=self._describe_batch,
        )

    def _shortcut(self) -> Shortcut | None:
        train = self._records.train
        return self._session.shortcut(
            lambda: (sample_batch(train)["input_mask"].sum(axis=1), train.max_seq_length),
            self._records.train_batch_size,
            self._options.gradient_accumulation_steps,
        )

    def _training_batches(self, step: int) -> tf.distribute.DistributedDataset:
        records = self._records
        return self._distributed(
            training_batches,
            records.train,
            records.train_batch_size,
            first_step=step - records.first_step,
        )

    @functools.cached_property
    def _evaluation_batches(self) -> tf.distribute.DistributedDataset:
        return self._distributed(
            evaluation_batches, self._records.evaluation, self._options.eval_batch_size
        )

    def _evaluate(self) -> dict[str, float]:
        batches = self._evaluation_batches if self._baseline else self._counted_batches()
        batches = with_progress(batches, "Evaluating", disable=not is_chief(self._trainer.strategy))
        metrics = self._trainer.evaluate(batches, self._options.max_eval_steps)
        if "masked_lm_loss" not in metrics:
            return metrics
        self._warn_of_constant_predictions(metrics["masked_lm_accuracy"])
        # TensorBoard's numbers are float32.
        perplexity = math.exp(min(metrics["masked_lm_loss"], 88.0))
        return metrics | {"masked_lm_perplexity": perplexity}

    def _counted_batches(self) -> Iterator[Batch]:
        """Yields the evaluation's batches while the baseline counts the tokens of this worker."""
        self._baseline = Baseline(self._records.evaluation.vocab_size)
        of_replicas = self._trainer.strategy.experimental_local_results
        for batch in iterate(self._evaluation_batches):
            names = ("masked_lm_ids", "masked_lm_weights")
            for ids, weights in zip(*(of_replicas(batch[name]) for name in names), strict=True):
                self._baseline.count(ids.numpy(), weights.numpy())
            yield batch

    def _warn_of_constant_predictions(self, accuracy: float) -> None:
        options, step = self._options, int(self._trainer.step.numpy())
        warming_up = options.do_train and step <= options.num_warmup_steps
        if warming_up or self._warned or not is_chief(self._trainer.strategy):
            return
        if warning := self._baseline.warning(step, accuracy, self._spec.vocab):
            self._warned.append(warning)
            say(warning)

    def _describe_batch(self, step: int) -> str:
        """Writes the names of a step's records to a file; returns a sentence with some of them."""
        phase = self._records
        records = records_of_step(phase.train, phase.train_batch_size, step - 1 - phase.first_step)
        path = f"{self._options.output_dir}/records-of-step-{step}.txt"
        atomic_write(path, "".join(f"{file}\t{number}\n" for file, number in records))
        names = [f"{file} {number}" for file, number in records]
        return f"Its records: {shortened(names)}, listed in {path}"

    def _distributed(
        self,
        read: Callable[..., tf.data.Dataset],
        records: RecordSet,
        batch_size: int,
        **arguments: int,
    ) -> tf.distribute.DistributedDataset:
        return self._trainer.strategy.distribute_datasets_from_function(
            lambda context: self._task.prepare(
                read(
                    records,
                    context.get_per_replica_batch_size(batch_size),
                    context=context,
                    **arguments,
                ),
                self._spec,
            )
        )
