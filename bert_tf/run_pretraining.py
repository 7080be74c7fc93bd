"""Pre-trains an encoder on the examples that create_pretraining_data made.

  python -m bert_tf.run_pretraining --input_file='train-*.tfrecord' --preset=tiny \\
    --vocab_file=vocab.txt --do_train --num_train_steps=20000 --num_warmup_steps=1000 \\
    --learning_rate=1e-3 --do_eval --eval_input_file=heldout.tfrecord --output_dir=runs/tiny

The same command again goes on where the run stopped, as if it had not stopped. --strategy says
where to train: the CPU, all GPUs of the machine, many machines, or a TPU; --preset or
--bert_config_file says how large an encoder. Without --eval_input_file one record in a hundred is
held out of training to evaluate on. Flags and defaults are those of google-research/bert's script
of the same name.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bert_tf.run_pretraining_flags import Options
from tfrecords import command

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.tasks.phases import Phase, PhaseOptions
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.trainer import Trainer
    from bert_tf.training.vocabulary_mapping import VocabularyMapping
    from tfrecords.dynamic_masking import DynamicMasking


def run(options: Options) -> dict[str, float]:
    """Trains and evaluates as the flags say.

    Returns the last evaluation's results, empty without --do_eval.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.tasks.pretrain import PreTrainer, Settings
    from bert_tf.tasks.run_folder import CONFIG, save_flags
    from bert_tf.training.strategy import check_batch_size, is_chief
    from tfrecords.writer import make_folder

    config = _checked_config(options)
    # Before anything is computed: many machines have to come together first.
    strategy = _strategy(options)
    chief = is_chief(strategy)
    say = print if chief else _say_nothing
    phases = _phases(options, config)
    for phase in phases if options.do_train else ():
        check_batch_size(
            strategy,
            "train_batch_size",
            phase.train_batch_size,
            options.gradient_accumulation_steps,
        )
    trainer = _trainer(options, config, strategy, phases[0].files[0])
    checkpointer = _checkpointer(options, trainer, chief)
    _set_weights(options, trainer, checkpointer, say)
    make_folder(options.output_dir)
    _check_start_of_workers(trainer)
    if options.do_train and chief:
        config.to_json_file(os.path.join(options.output_dir, CONFIG))
        save_flags(options.output_dir, dataclasses.asdict(options))
    _say_what(options, config, trainer, phases, say)
    names = [field.name for field in dataclasses.fields(Settings) if field.name != "phases"]
    settings = Settings(phases=phases, **{name: getattr(options, name) for name in names})
    with _explained(phases, config.vocab_size):
        results = PreTrainer(settings, config, trainer, checkpointer).run()
    say(
        f"Wrote {options.output_dir}: checkpoints, curves.png, metrics.jsonl; for TensorBoard: "
        f"tensorboard --logdir={options.output_dir}\n"
        f"Next: python -m export.encoder --checkpoint={options.output_dir} "
        f"--vocab_file={options.vocab_file or 'vocab.txt'} --output_dir=encoder"
    )
    return results


@contextlib.contextmanager
def _explained(phases: list["Phase"], vocab_size: int) -> Iterator[None]:
    """Turns what TensorFlow raises over bad records and lost workers into one line."""
    import tensorflow as tf

    from tfrecords.reader import explain_bad_record

    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        for phase in phases:
            files = [*phase.files, *phase.eval_files]
            contract = (phase.max_seq_length, phase.max_predictions_per_seq, vocab_size)
            if problem := explain_bad_record(files, *contract):
                raise ValueError(problem) from None
        raise
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        raise OSError(
            "a worker is lost, so that the others had to stop; start the same command on all of "
            "them: training goes on from the last checkpoint"
        ) from error


def _say_nothing(*_) -> None:
    """Of many workers the chief speaks."""


def _strategy(options: Options) -> "tf.distribute.Strategy":
    from bert_tf.training import strategy as strategies

    name = options.strategy
    if options.use_tpu:
        if name not in ("auto", "tpu"):
            raise ValueError(f"--use_tpu and --strategy={name} contradict each other")
        name = "tpu"
    workers = options.worker_hosts or options.task_index is not None
    for asked, flag, names in (
        (workers, "--worker_hosts", ("auto", "multi_worker")),
        (options.tpu_name, "--tpu_name", ("auto", "tpu")),
    ):
        if asked and name not in names:
            raise ValueError(f"{flag} and --strategy={name} contradict each other")
    strategy = strategies.make_strategy(
        name,
        options.tpu_name,
        options.tpu_zone,
        options.gcp_project,
        options.worker_hosts.split(",") if options.worker_hosts else (),
        options.task_index,
    )
    strategies.check_batch_size(strategy, "eval_batch_size", options.eval_batch_size)
    return strategy


def _trainer(
    options: Options, config: "BertConfig", strategy: "tf.distribute.Strategy", example_file: str
) -> "Trainer":
    """The model with random weights, and what trains it."""
    import keras

    from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
    from bert_tf.training import optimizers, schedules
    from bert_tf.training.strategy import device_type, set_precision
    from bert_tf.training.trainer import Trainer

    set_precision(options.precision)
    keras.utils.set_random_seed(options.random_seed)
    correction = {}
    if options.bias_correction is not None:
        correction["bias_correction"] = options.bias_correction
    optimizer_type = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}[options.optimizer]
    default = "none" if device_type(strategy) == "CPU" else "selective"
    with strategy.scope():
        model = BertPretrainer(config, options.rematerialize or default)
        optimizer = optimizer_type(model.trainable_weights, **correction)
    schedule = schedules.make_schedule(
        options.learning_rate_schedule,
        options.learning_rate,
        options.num_train_steps,
        options.num_warmup_steps,
        options.learning_rate_power,
    )
    return Trainer(
        strategy,
        model,
        PretrainingObjective(next_sentence=_objective(options, example_file) != "mlm"),
        optimizer,
        schedule,
        accumulation_steps=options.gradient_accumulation_steps,
        seed=options.random_seed,
    )


def _checkpointer(options: Options, trainer: "Trainer", chief: bool) -> "Checkpointer":
    from bert_tf.training.checkpoints import Checkpointer

    return Checkpointer(
        options.output_dir, trainer.model, trainer.state, options.keep_checkpoints, chief
    )


def _objective(options: Options, file: str) -> str:
    """What to learn: what the flag says, else what the manifest beside the examples says, else nsp.

    Raises:
        ValueError: next sentences are to be learnt from examples without.
    """
    made_for = _settings_of(file).get("objective", "nsp")
    if made_for == "mlm" and options.objective not in (None, "mlm"):
        raise ValueError(
            f"--objective={options.objective}, but the examples of {file} have no second sentence: "
            "they were made with --objective=mlm"
        )
    return options.objective or made_for


def _settings_of(file: str) -> dict:
    """What the manifest beside a file of examples says they were made with; {} without one."""
    import tensorflow as tf

    from tfrecords.manifest import manifest_path, read_manifest

    path = manifest_path(file)
    return read_manifest(path).get("settings", {}) if tf.io.gfile.exists(path) else {}


def _made_with_vocabulary(file: str, vocab_file: str) -> bool:
    """False where the manifest beside a file of examples tells of another vocabulary."""
    from bert_tf.text.vocab import load_vocab
    from tfrecords.manifest import lines_sha256

    checksum = _settings_of(file).get("vocab_file")
    return checksum in (None, lines_sha256(load_vocab(vocab_file).tokens))


def _phases(options: Options, config: "BertConfig") -> list["Phase"]:
    """The phases, once their records have been looked at."""
    from bert_tf.tasks.phases import PhaseOptions, last_steps, read_phases

    names = [field.name for field in dataclasses.fields(PhaseOptions) if field.name != "share"]
    whole = PhaseOptions(share=1.0, **{name: getattr(options, name) for name in names})
    asked = read_phases(options.phases_file, whole) if options.phases_file else [whole]
    ends = last_steps(asked, options.num_train_steps)
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


def _phase(
    options: Options, config: "BertConfig", asked: "PhaseOptions", start: int, end: int
) -> "Phase":
    from bert_tf.tasks.phases import Phase
    from bert_tf.tasks.run_folder import files_split_by
    from tfrecords.reader import check_pretraining_files, expand_files

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
        splits=not {*map(os.path.abspath, split)}.isdisjoint(map(os.path.abspath, eval_files)),
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
    from bert_tf.text.vocab import load_vocab
    from tfrecords.dynamic_masking import DynamicMasking

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


def _set_weights(
    options: Options, trainer: "Trainer", checkpointer: "Checkpointer", say: Callable[[str], None]
) -> None:
    """From the first of these that is there:

    1. this run's own newest checkpoint that can be read: everything, to go on exactly;
    2. --init_checkpoint: the model's weights, every one, its tables grown by --init_vocab_mapping;
    3. random numbers.
    """
    from bert_tf.tasks.run_folder import changed_flags
    from bert_tf.training.checkpoints import latest_checkpoint, load_weights
    from bert_tf.training.vocabulary_mapping import load_mapping

    if path := checkpointer.restore():
        step = int(trainer.step.numpy())
        say(f"Going on from {path}, step {step:,}.")
        if options.do_train:
            for change in changed_flags(options.output_dir, dataclasses.asdict(options)):
                say(f"Changed since the last start: {change}.")
        if options.do_train and step >= options.num_train_steps:
            say(f"Nothing left to train: --num_train_steps={options.num_train_steps}.")
    elif options.init_checkpoint:
        path = latest_checkpoint(options.init_checkpoint)
        mapping = load_mapping(options.init_vocab_mapping) if options.init_vocab_mapping else None
        load_weights(path, trainer.model.weights, mapping)
        say(f"Starting from {path}: all {len(trainer.model.weights)} weights of the model.")
        if mapping:
            say(mapping.describe())
    elif options.do_train:
        say(f"Starting from random numbers, seed {options.random_seed}.")
    else:
        raise ValueError(f"{options.output_dir}: no checkpoint to evaluate; train first")


def _check_start_of_workers(trainer: "Trainer") -> None:
    """Raises a ValueError where workers found different checkpoints."""
    from bert_tf.training.strategy import mean_over_workers

    step = float(trainer.step.numpy())
    if mean_over_workers(trainer.strategy, [step]) != [step]:
        raise ValueError(
            f"the workers do not start from the same checkpoint, this one from step {step:.0f}: "
            "--output_dir must be a folder that all of them see"
        )


def _say_what(
    options: Options,
    config: "BertConfig",
    trainer: "Trainer",
    phases: list["Phase"],
    say: Callable[[str], None],
) -> None:
    from bert_tf.training.strategy import describe

    say(
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{trainer.model.count_params():,} parameters, on {describe(trainer.strategy)}."
    )
    if options.do_train and options.num_warmup_steps >= options.num_train_steps:
        say(
            f"WARNING: the learning rate rises over --num_warmup_steps={options.num_warmup_steps}, "
            f"but --num_train_steps={options.num_train_steps} end before: give fewer warm-up steps."
        )
    file = phases[0].files[0]
    if options.vocab_file and not _made_with_vocabulary(file, options.vocab_file):
        say(
            f"WARNING: {file} was made with another vocabulary than {options.vocab_file}: with "
            "other ids its words are others."
        )
    if any(phase.splits for phase in phases):
        say(
            "One record in a hundred is held out to evaluate on. Where a text was used several "
            "times (--dupe_factor), its other copies are trained on: to measure on new text, give "
            "--eval_input_file."
        )


def _checked_config(options: Options) -> "BertConfig":
    """The encoder's configuration, once the flags that belong together agree."""
    from bert_tf.config import BertConfig
    from bert_tf.presets import preset_config
    from bert_tf.tasks.run_folder import other_config
    from bert_tf.text.vocab import load_vocab
    from bert_tf.training.vocabulary_mapping import load_mapping

    if not (options.do_train or options.do_eval):
        raise ValueError("nothing to do: give --do_train, --do_eval or both")
    if (options.bert_config_file is None) == (options.preset is None):
        raise ValueError("give one of --bert_config_file and --preset")
    if options.init_vocab_mapping and not options.init_checkpoint:
        raise ValueError("--init_vocab_mapping needs --init_checkpoint, whose tables are to grow")
    mapping = load_mapping(options.init_vocab_mapping) if options.init_vocab_mapping else None
    vocab = load_vocab(options.vocab_file) if options.vocab_file else None
    if options.bert_config_file:
        config = BertConfig.from_json_file(options.bert_config_file)
    elif vocab is None:
        raise ValueError("--preset needs --vocab_file, to know the size of the vocabulary")
    else:
        config = preset_config(options.preset, len(vocab))
    if mapping:
        config = mapping.grow_config(config)
    if vocab and len(vocab) > config.vocab_size:
        raise ValueError(
            f"{options.vocab_file} has {len(vocab)} tokens, more than the vocab_size "
            f"{config.vocab_size} of {options.bert_config_file}"
        )
    if saved := other_config(options.output_dir, config):
        raise ValueError(
            f"{saved} is of another configuration than asked for: take another --output_dir, or "
            f"--bert_config_file={saved} to go on with that run"
        )
    _check_start(options, config, mapping)
    return config


def _check_start(
    options: Options, config: "BertConfig", mapping: "VocabularyMapping | None"
) -> None:
    from bert_tf.tasks.run_folder import other_config
    from bert_tf.training.checkpoints import latest_checkpoint

    if options.init_checkpoint:
        folder = os.path.dirname(latest_checkpoint(options.init_checkpoint))
        if saved := other_config(folder, config, mapping):
            raise ValueError(f"{saved} is of another configuration: take it as --bert_config_file")


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()
