"""Pre-trains an encoder on the examples that create_pretraining_data made.

  python -m bert_tf.run_pretraining --input_file='train-*.tfrecord' --preset=tiny \\
    --vocab_file=vocab.txt --do_train --num_train_steps=20000 --num_warmup_steps=1000 \\
    --learning_rate=1e-3 --do_eval --eval_input_file=heldout.tfrecord --output_dir=runs/tiny

The same command again goes on where the run stopped. --strategy says where to train: the CPU, all
GPUs of the machine, or a TPU; --preset or --bert_config_file says how large an encoder. Flags and
defaults are those of google-research/bert's script of the same name.
"""

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.config import BertConfig
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.loop import Trainer
    from bert_tf.training.vocabulary_mapping import VocabularyMapping
    from tfrecords.dynamic_masking import DynamicMasking

CONFIG = "bert_config.json"
EVAL_RESULTS = "eval_results.txt"


@dataclass(frozen=True, kw_only=True)
class Options(command.DeviceOptions):
    """The flags."""

    input_file: str = option(help="TFRecord files, comma-separated; globs allowed.")
    output_dir: str = option(help="Folder for checkpoints, bert_config.json and logs.")
    bert_config_file: str | None = option(None, help="The encoder's bert_config.json.")
    preset: str | None = option(
        None,
        help="A published size in place of --bert_config_file: tiny, mini, small, medium, base, "
        "large or L-6_H-256 and the like; needs --vocab_file.",
    )
    vocab_file: str | None = option(
        None,
        help="The vocabulary the examples were made with: sizes the preset's tables; needed to "
        "mask.",
    )
    init_checkpoint: str | None = option(
        None, help="Checkpoint, or folder of one, to start from in place of random weights."
    )
    init_vocab_mapping: str | None = option(
        None,
        help="The .mapping.json of build_vocab --extend_vocab: the tables of --init_checkpoint "
        "grow by it; --bert_config_file may be that of the checkpoint.",
    )
    max_seq_length: int = option(128, help="As given to create_pretraining_data.")
    max_predictions_per_seq: int = option(20, help="As given to create_pretraining_data.")
    masking: str | None = option(
        None,
        help="What to mask as a whole in examples made with --masking=dynamic, which are masked "
        "anew in every epoch; wordpiece by default.",
        choices=("wordpiece", "whole_word"),
    )
    masked_lm_prob: float | None = option(
        None,
        help="Share of the pieces to mask in such examples; 0.15 by default.",
        at_least=0,
        at_most=1,
    )
    do_train: bool = option(False, help="Train.")
    do_eval: bool = option(False, help=f"Evaluate, and write {EVAL_RESULTS} in the output folder.")
    eval_input_file: str | None = option(
        None,
        help="Held-out TFRecord files to evaluate on. Needed with --do_train --do_eval; --do_eval "
        "alone evaluates --input_file.",
    )
    train_batch_size: int = option(
        32, at_least=1, help="Examples a step, over all devices together."
    )
    eval_batch_size: int = option(
        8, at_least=1, help="Examples an evaluation step, over all devices."
    )
    learning_rate: float = option(
        5e-5, at_least=0, help="AdamW's highest rate, at the end of the warm-up."
    )
    num_train_steps: int = option(
        100000, at_least=1, help="Steps in all; the rate falls to 0 at the last."
    )
    num_warmup_steps: int = option(
        10000, at_least=0, help="Steps over which the rate rises from 0."
    )
    save_checkpoints_steps: int = option(
        1000, at_least=1, help="Steps between checkpoints and evaluations."
    )
    keep_checkpoints: int = option(
        5, at_least=1, help="How many of the newest checkpoints to keep."
    )
    iterations_per_loop: int = option(
        1000, at_least=1, help="Most steps before the device reports back."
    )
    max_eval_steps: int = option(100, at_least=1, help="Most evaluation steps.")
    random_seed: int = option(
        12345,
        at_least=0,
        at_most=2**32 - 1,
        help="Of the weights, the order of the data and dropout.",
    )
    use_tpu: bool = option(False, help="The same as --strategy=tpu.")


def run(options: Options) -> dict[str, float]:
    """Trains and evaluates as the flags say.

    Returns the evaluation's results, empty without --do_eval.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    import tensorflow as tf

    from tfrecords.reader import check_pretraining_files, expand_files, explain_bad_record
    from tfrecords.writer import make_folder

    config = _checked_config(options)
    files = expand_files(options.input_file)
    eval_files = expand_files(options.eval_input_file) if options.eval_input_file else files
    # What reader functions have in common: what the records must be.
    contract = (options.max_seq_length, options.max_predictions_per_seq, config.vocab_size)
    used = (files if options.do_train else []) + (eval_files if options.do_eval else [])
    needs_masking = check_pretraining_files(used, *contract)
    masking = _masking(options, used[0], needs_masking)
    make_folder(options.output_dir)
    try:
        results = _train_and_evaluate(options, config, masking, files, eval_files)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        if problem := explain_bad_record(used, *contract):
            raise ValueError(problem) from None
        raise
    print(
        f"Wrote {options.output_dir}; for its curves: tensorboard --logdir={options.output_dir}\n"
        f"Next: python -m export.encoder --checkpoint={options.output_dir} "
        f"--vocab_file={options.vocab_file or 'vocab.txt'} --output_dir=encoder"
    )
    return results


def _train_and_evaluate(
    options: Options,
    config: "BertConfig",
    masking: "DynamicMasking | None",
    files: list[str],
    eval_files: list[str],
) -> dict[str, float]:
    import tensorflow as tf

    from bert_tf.training import loop
    from bert_tf.training import strategy as strategies
    from bert_tf.training.results import write_results
    from tfrecords.reader import pretraining_dataset

    trainer, checkpointer = _trainer(options, config)
    strategy = trainer.strategy

    def dataset(names: list[str], batch_size: int, training: bool):
        step = int(trainer.step.numpy())
        now = dataclasses.replace(masking, first_step=step) if masking else None
        return strategy.distribute_datasets_from_function(
            lambda context: pretraining_dataset(
                names,
                options.max_seq_length,
                options.max_predictions_per_seq,
                config.vocab_size,
                context.get_per_replica_batch_size(batch_size),
                training,
                options.random_seed,
                context,
                now,
            )
        )

    _set_weights(options, trainer, checkpointer)
    if options.do_train and options.num_warmup_steps >= options.num_train_steps:
        print(
            f"WARNING: the learning rate rises over --num_warmup_steps={options.num_warmup_steps}, "
            f"but --num_train_steps={options.num_train_steps} end before: give fewer warm-up steps."
        )
    print(
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{trainer.model.count_params():,} parameters, on {strategies.describe(strategy)}."
    )
    results: dict[str, float] = {}
    eval_writer = tf.summary.create_file_writer(f"{options.output_dir}/eval")

    def evaluate(step: int) -> None:
        batches = dataset(eval_files, options.eval_batch_size, training=False)
        results.update(trainer.evaluate(batches, options.max_eval_steps), global_step=step)
        results["masked_lm_perplexity"] = math.exp(min(results["masked_lm_loss"], 700.0))
        write_results(f"{options.output_dir}/{EVAL_RESULTS}", results, eval_writer)

    if options.do_train:
        config.to_json_file(f"{options.output_dir}/{CONFIG}")
        loop.fit(
            trainer,
            iter(dataset(files, options.train_batch_size, training=True)),
            options.num_train_steps,
            options.train_batch_size,
            checkpointer,
            options.save_checkpoints_steps,
            options.iterations_per_loop,
            log_dir=f"{options.output_dir}/train",
            on_checkpoint=evaluate if options.do_eval else None,
        )
    if options.do_eval and not results:
        evaluate(int(trainer.step.numpy()))
    return results


def _trainer(options: Options, config: "BertConfig") -> tuple["Trainer", "Checkpointer"]:
    """The model with random weights, and what trains and keeps it, on the devices asked for."""
    import keras

    from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
    from bert_tf.training import checkpoints, loop, optimizers, schedules
    from bert_tf.training import strategy as strategies

    strategy = strategies.make_strategy(
        "tpu" if options.use_tpu else options.strategy,
        options.tpu_name,
        options.tpu_zone,
        options.gcp_project,
    )
    strategies.check_batch_size(strategy, "train_batch_size", options.train_batch_size)
    strategies.check_batch_size(strategy, "eval_batch_size", options.eval_batch_size)
    strategies.set_precision(options.precision)
    keras.utils.set_random_seed(options.random_seed)
    with strategy.scope():
        model = BertPretrainer(config)
        optimizer = optimizers.AdamW(model.trainable_weights)
    schedule = schedules.linear_warmup_and_decay(
        options.learning_rate, options.num_train_steps, options.num_warmup_steps
    )
    trainer = loop.Trainer(strategy, model, PretrainingObjective(), optimizer, schedule)
    checkpointer = checkpoints.Checkpointer(
        options.output_dir, model, optimizer, trainer.step, options.keep_checkpoints
    )
    return trainer, checkpointer


def _masking(options: Options, file: str, needed: bool) -> "DynamicMasking | None":
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
    vocab = load_vocab(options.vocab_file)
    return DynamicMasking(
        mask_id=vocab.mask_id,
        cls_id=vocab.cls_id,
        sep_id=vocab.sep_id,
        vocab_size=len(vocab),
        masked_lm_prob=0.15 if options.masked_lm_prob is None else options.masked_lm_prob,
        whole_word=options.masking == "whole_word",
        seed=options.random_seed,
    )


def _set_weights(options: Options, trainer: "Trainer", checkpointer: "Checkpointer") -> None:
    """From this run's own newest checkpoint, else --init_checkpoint, else random numbers."""
    from bert_tf.training.checkpoints import latest_checkpoint, load_weights
    from bert_tf.training.vocabulary_mapping import load_mapping

    if path := checkpointer.restore():
        step = int(trainer.step.numpy())
        print(f"Going on from {path}, step {step:,}.")
        if options.do_train and step >= options.num_train_steps:
            print(f"Nothing left to train: --num_train_steps={options.num_train_steps}.")
    elif options.init_checkpoint:
        path = latest_checkpoint(options.init_checkpoint)
        mapping = load_mapping(options.init_vocab_mapping) if options.init_vocab_mapping else None
        load_weights(path, trainer.model.weights, mapping)
        print(f"Starting from the weights of {path}.")
        if mapping:
            print(mapping.describe())
    elif not options.do_train:
        raise ValueError(f"{options.output_dir}: no checkpoint to evaluate; train first")


def _checked_config(options: Options) -> "BertConfig":
    """The encoder's configuration, once the flags that belong together agree."""
    from bert_tf.config import BertConfig
    from bert_tf.presets import preset_config
    from bert_tf.text.vocab import load_vocab
    from bert_tf.training.vocabulary_mapping import load_mapping

    if not (options.do_train or options.do_eval):
        raise ValueError("nothing to do: give --do_train, --do_eval or both")
    if options.do_train and options.do_eval and not options.eval_input_file:
        raise ValueError("--do_train --do_eval needs --eval_input_file: records to hold out")
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
    if options.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={options.max_seq_length} is longer than the "
            f"max_position_embeddings {config.max_position_embeddings} of "
            f"{options.bert_config_file or options.preset}"
        )
    if saved := _other_config(options.output_dir, config):
        raise ValueError(
            f"{saved} is of another configuration than asked for: take another --output_dir, or "
            f"--bert_config_file={saved} to go on with that run"
        )
    _check_start(options, config, mapping)
    return config


def _check_start(
    options: Options, config: "BertConfig", mapping: "VocabularyMapping | None"
) -> None:
    from bert_tf.training.checkpoints import latest_checkpoint

    if options.init_checkpoint:
        folder = os.path.dirname(latest_checkpoint(options.init_checkpoint))
        if saved := _other_config(folder, config, mapping):
            raise ValueError(f"{saved} is of another configuration: take it as --bert_config_file")


def _other_config(
    folder: str, config: "BertConfig", mapping: "VocabularyMapping | None" = None
) -> str | None:
    """The path of the configuration of a folder's checkpoints, where it differs from `config`.

    With a mapping it may also differ by what the vocabulary grows.
    """
    import tensorflow as tf

    from bert_tf.config import BertConfig

    path = os.path.join(folder, CONFIG)
    if not (tf.io.gfile.exists(path) and tf.io.gfile.glob(os.path.join(folder, "*.index"))):
        return None
    saved = BertConfig.from_json_file(path)
    return path if (mapping.grow_config(saved) if mapping else saved) != config else None


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()
