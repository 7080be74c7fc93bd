"""What run_pretraining starts from: the encoder's configuration and its weights."""

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from bert_tf.run_pretraining_flags import Options

if TYPE_CHECKING:
    from bert_tf.config import BertConfig
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.trainer import Trainer
    from bert_tf.weights.growing import VocabularyMapping


def checked_config(options: Options) -> "BertConfig":
    """The encoder's configuration, once the flags that belong together agree."""
    from bert_tf.config import BertConfig
    from bert_tf.presets import preset_config
    from bert_tf.run_folder import other_config
    from bert_tf.weights.growing import load_mapping
    from tfrecords.vocabulary import load_vocab

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
    _check_init_checkpoint(options, config, mapping)
    return config


def _check_init_checkpoint(
    options: Options, config: "BertConfig", mapping: "VocabularyMapping | None"
) -> None:
    import tensorflow as tf

    from bert_tf.run_folder import other_config
    from bert_tf.training.checkpoints import latest_checkpoint

    # A run that goes on does not read it again.
    goes_on = tf.io.gfile.glob(os.path.join(options.output_dir, "ckpt-*.index"))
    if options.init_checkpoint and not goes_on:
        folder = os.path.dirname(latest_checkpoint(options.init_checkpoint))
        if saved := other_config(folder, config, mapping):
            raise ValueError(f"{saved} is of another configuration: take it as --bert_config_file")


def set_weights(
    options: Options, trainer: "Trainer", checkpointer: "Checkpointer", say: Callable[[str], None]
) -> None:
    """From the first of these that is there:

    1. this run's own newest checkpoint that can be read: everything, to go on exactly;
    2. --init_checkpoint: the model's weights, every one, its tables grown by --init_vocab_mapping;
    3. random numbers.
    """
    from bert_tf.run_folder import changed_flags
    from bert_tf.training.checkpoints import latest_checkpoint
    from bert_tf.weights.growing import load_mapping
    from bert_tf.weights.loading import load_weights

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
