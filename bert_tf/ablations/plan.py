"""Turns the flags of ablation into the runs of every row, and checks all of them beforehand."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.ablations.ablation_options import (
    GRIDS,
    AblationOptions,
    GridRow,
    TaskColumn,
    columns,
    select_rows,
)
from bert_tf.base.common_options import DeviceOptions
from bert_tf.base.files import lines_sha256, read_json
from bert_tf.base.output_files import check_free
from bert_tf.base.process import machine_memory
from bert_tf.config import BertConfig, ModelSpec, preset_config, sized_config
from bert_tf.examples.documents import read_phrases
from bert_tf.finetuning.examples import draw_examples
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import TASKS, make_task, task_name, with_length
from bert_tf.finetuning.task import TRAIN, DataFiles
from bert_tf.models.task_model import make_encoder
from bert_tf.pretraining.pretraining_options import PretrainingOptions, SharedOptions
from bert_tf.pretraining.run_records import (
    NamedRecords,
    check_records,
    check_unchanged,
    describe_records,
    name_records,
    resolve_objective,
    stated_by_manifests,
)
from bert_tf.runs.run import CONFIG, Run
from bert_tf.training.reports import EVAL_RESULTS, read_results
from bert_tf.weights.names import PARTS
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import EncoderFlags, resolve_model
from bert_tf.weights.translation import entries, own_rows
from tfrecords.reader import RecordSet

# What a process with TensorFlow needs besides, as measured on the CPU: 1.0 GB of 2.7 GB at a width
# of 768, and of 2.1 GB at 512, with 4 layers and 32 sequences of length 128.
_TENSORFLOW = 1_000_000_000
_FEATURES_RATE, _LAYERS_OF_FEATURES = 1e-3, 4


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """The runs of a row; several may share pre-training, of which `step` is fine-tuned.

    An encoder that was given needs no pre-training and no records.
    """

    row: GridRow
    folder: str
    config: BertConfig
    pretraining: PretrainingOptions | None
    step: int
    finetuning: Mapping[TaskColumn, FineTuningOptions]
    records: RecordSet | None

    @property
    def evaluation(self) -> dict[str, float]:
        """The results of the pre-training run; {} unless it is finished."""
        if not self.pretraining:
            return {}
        results = read_results(f"{self.pretraining.output_dir}/{EVAL_RESULTS}")
        finished = results.get("global_step") == self.pretraining.num_train_steps
        return results if finished else {}


def make_plan(options: AblationOptions) -> list[RowPlan]:
    """Plans all rows; writes nothing but the configurations of their encoders."""
    if given := options.init_checkpoint:
        named, spec = [], resolve_model(None, EncoderFlags(), init=open_checkpoint(given))
        if not spec.vocab:
            raise ValueError(f"{given} has no vocabulary: put its vocab.txt beside it")
    else:
        named = name_records(options)
        _check_kind(options, named)
        spec = _resolve_spec(options, named)
    tasks = _read_tasks(options)
    contents = describe_records(named)
    plans = []
    for row in select_rows(options.grid, options.rows):
        config = dataclasses.replace(spec.config, is_decoder=row.is_decoder)
        if row.size:
            config = sized_config(row.size, config.vocab_size)
        if row.encoder == "bilstm":
            config = preset_config("bilstm", config.vocab_size)
        step, folder = row.percent * options.num_train_steps // 100, f"{options.folder}/{row.name}"
        pretraining = records = None
        # Files that are written below, once all rows are checked.
        encoder = {"bert_config_file": f"{folder}/{CONFIG}", "vocab_file": folder}
        if not given:
            pretraining = _pretraining(options, row)
            of_row = dataclasses.replace(spec, config=config)
            records = check_records(pretraining, of_row, named, ())[0].train
            check_unchanged(Run(pretraining.output_dir), contents)
        if not row.encoder:
            encoder = {"init_checkpoint": given or f"{pretraining.output_dir}/ckpt-{step}"}
        runs = {
            column: FineTuningOptions(
                **_shared_flags(options, DeviceOptions)
                | encoder
                | _row_flags(row, column, config, options),
                task=name,
                data_dir=data_dir,
                output_dir=f"{folder}/{column.folder}",
                do_train=True,
                do_eval=True,
                max_seq_length=options.finetuning_max_seq_length,
                random_seed=options.random_seed,
                num_seeds=options.num_seeds,
            )
            for name, data_dir in tasks.items()
            for column in columns(options.grid, name)
        }
        plans.append(RowPlan(row, folder, config, pretraining, step, runs, records))
    _check_memory(options, plans)
    for plan in plans if named else ():
        file = plan.pretraining.bert_config_file
        if tf.io.gfile.exists(file) and read_json(file) != plan.config.to_dict():
            check_free(file, advice="move it away, or choose another --output_dir")
        plan.config.to_json_file(file)
    for plan in plans:
        if plan.row.encoder:
            Run(plan.folder).write(dataclasses.replace(spec, config=plan.config))
    return plans


def _check_kind(options: AblationOptions, named: Sequence[NamedRecords]) -> None:
    """Raises a ValueError if the rows need other records."""
    (phase,), file = named, options.lexicon_file
    for path, kind in phase.settings("masking").items():
        if options.grid != "sizes" and kind != "dynamic":
            raise ValueError(
                f"--grid={options.grid} masks examples while reading, but those of {path} are "
                "masked already: create them with create_pretraining_data --masking=dynamic"
            )
    phrases = lines_sha256(read_phrases(file)) if file else None
    for path, created_with in phase.settings("lexicon_file").items():
        if file and created_with != phrases:
            raise ValueError(
                f"the examples of {path} were created without --lexicon_file={file}: create them "
                "with it"
            )
    if options.grid == "tasks" and resolve_objective(options, named) == "mlm":
        raise ValueError("--grid=tasks needs sentence pairs: create examples with --objective=nsp")


def _resolve_spec(options: AblationOptions, named: Sequence[NamedRecords]) -> ModelSpec:
    """Returns the encoder of the flags with the vocabulary and casing of the records."""
    flags = EncoderFlags(*(getattr(options, name) for name in EncoderFlags._fields))
    if not (flags.preset or flags.bert_config_file):
        flags = flags._replace(preset="tiny")
    spec = resolve_model(None, flags, *stated_by_manifests(named))
    if spec.vocab is None or spec.lower_case is None:
        raise ValueError(
            "fine-tuning needs vocabulary and casing, which no manifest beside the records states: "
            "give --vocab_file and --do_lower_case or --nodo_lower_case"
        )
    return spec


def _shared_flags(options: AblationOptions, kind: type) -> dict[str, Any]:
    """Returns the values of the flags that a kind of options has."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(kind)}


def _pretraining(options: AblationOptions, row: GridRow) -> PretrainingOptions:
    folder = f"{options.folder}/{row.run or row.name}"
    flags = _shared_flags(options, SharedOptions) | row.flags
    flags |= {"output_dir": f"{folder}/pretraining", "bert_config_file": f"{folder}/{CONFIG}"}
    if row.run:
        # A run that was stopped has checkpoints of other steps as well.
        steps = options.num_train_steps // 5
        flags |= {"save_checkpoints_steps": steps, "keep_checkpoints": options.num_train_steps}
    return PretrainingOptions(**flags | {"preset": None}, do_train=True, do_eval=True)


def _read_tasks(options: AblationOptions) -> dict[str, str | None]:
    """Returns the folder of each task's data, after a look at the data."""
    given = ",".join(GRIDS[options.grid].tasks) if options.tasks is None else options.tasks
    pairs = [part.strip().partition("=") for part in given.split(",")]
    tasks = {
        task_name(name): folder or options.data_dir
        for name, _, folder in pairs
        if name not in ("", "none")
    }
    rows = select_rows(options.grid, options.rows)
    features = next(filter(None, (row.finetuning.get("feature_based") for row in rows)), None)
    labels = max(row.labels for row in rows)
    for name, folder in tasks.items():
        flags = FineTuningOptions(task=name, data_dir=folder, output_dir="unused", do_eval=True)
        try:
            task = make_task(flags.changed(feature_based=features))
            splits = [TRAIN, *task.dev_splits[:1]]
            found = task.read_splits(splits, DataFiles(data_dir=folder))
            if labels:
                draw_examples(found[TRAIN], labels, options.random_seed)
        except (ValueError, OSError) as error:
            raise ValueError(f"--tasks={name}={folder or 'FOLDER'}: {error}") from None
    return tasks


def _row_flags(
    row: GridRow, column: TaskColumn, config: BertConfig, options: AblationOptions
) -> dict[str, Any]:
    """Returns the flags that a row or a column sets."""
    flags: dict[str, Any] = {"learning_rate": options.finetuning_learning_rate}
    if column.features:
        deep = config.num_hidden_layers >= _LAYERS_OF_FEATURES
        flags["learning_rate"] = _FEATURES_RATE
        flags["feature_based"] = "concat_last_four" if deep else "last"
    return flags | row.finetuning


def _check_memory(options: AblationOptions, plans: Sequence[RowPlan]) -> None:
    """Raises a ValueError if a row needs more memory than this machine has; only for the CPU."""
    gpus = options.strategy == "auto" and tf.config.list_physical_devices("GPU")
    if gpus or options.strategy not in ("auto", "cpu") or options.use_tpu or options.tpu_name:
        return
    memory = machine_memory()
    for plan in plans:
        for needed, purpose in _needs(plan):
            if needed > memory:
                raise ValueError(
                    f"{plan.row.name} ({count_parameters(plan.config):,} parameters) needs about "
                    f"{needed / 1e9:.1f} GB {purpose}, but this machine has {memory / 1e9:.1f} GB: "
                    "use a smaller --train_batch_size, more --gradient_accumulation_steps or "
                    "shorter examples, or drop the row or the task from --rows or --tasks"
                )


def _needs(plan: RowPlan) -> Iterator[tuple[int, str]]:
    """Yields for each run of a row the bytes that it needs, and what for."""
    if options := plan.pretraining:
        batch = math.ceil(options.train_batch_size / options.gradient_accumulation_steps)
        sizes = plan.records.max_seq_length, plan.records.max_predictions_per_seq
        yield (
            training_memory(plan.config, batch, *sizes),
            f"for a step of {options.train_batch_size} examples",
        )
    for run in plan.finetuning.values():
        if run.feature_based:  # the encoder does not train
            continue
        length = with_length(run, plan.config).max_seq_length
        texts = len(TASKS[run.task].head.labels) if run.task == "swag" else 1
        yield (
            training_memory(plan.config, run.train_batch_size * texts, length, predictions=0),
            f"to fine-tune on {run.task} with {length} tokens per example",
        )


def count_parameters(config: BertConfig) -> int:
    """Returns the number of parameters of a `BertPretrainer`, without building it, or a BiLSTM."""
    if not config.has_layers:
        return make_encoder(config).count_params()
    found = entries(own_rows(config), config, [part for part in PARTS if part != "head"])
    return sum(math.prod(entry.our_shape) for entry in found)


def training_memory(config: BertConfig, batch: int, length: int, predictions: int) -> int:
    """Estimates the bytes of a process that trains in float32, without rematerialization.

    Weights, gradients and the optimizer's two moments take 4 bytes each. The backward pass needs
    the activations that the source counts: per layer, 17 values for each token and element of its
    vector, and 2 for each head and pair of tokens; without dropout, this is a little too much.
    The masked-LM head keeps the logits and their gradient.

    `batch` counts sequences per device and step, with `length` tokens each; of each, the masked-LM
    head scores `predictions` positions.

    Source: Reducing Activation Recomputation in Large Transformer Models (arXiv:2205.05198)
    equation 1.
    """
    tokens = batch * length
    layer = 17 * config.hidden_size + 2 * config.num_attention_heads * length
    logits = 2 * batch * predictions * config.vocab_size
    activations = tokens * layer * config.num_hidden_layers + logits
    return _TENSORFLOW + 4 * (4 * count_parameters(config) + activations)
