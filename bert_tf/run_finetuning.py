"""Fine-tunes a pre-trained encoder on a classification task and exports the classifier.

  python -m bert_tf.run_finetuning --task=sst2 --data_dir=glue/SST-2 --vocab_file=vocab.txt \\
    --init_checkpoint=runs/tiny --output_dir=runs/sst2

--init_checkpoint is the output folder of run_pretraining; --preset=tiny in its place trains from
scratch. After every epoch the dev set is evaluated and the best weights are kept; output_dir/
saved_model then takes raw strings and returns probabilities. The same command again goes on where
an interrupted run stopped. Flags and defaults are those of google-research/bert's run_classifier.

Tasks: sst2 chooses the best epoch on dev.tsv and reports that accuracy, as is usual; imdb has no
dev set: a tenth of the training reviews is held out to choose on, and the test set is read once.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.config import BertConfig
    from bert_tf.finetuning.task import Task

CONFIG = "bert_config.json"
SETTINGS = "finetuning.json"
RESULTS = "eval_results.txt"
SAVED_MODEL = "saved_model"
# What may differ when a run goes on: where it is and where it computes.
_MAY_CHANGE = ("output_dir", "strategy", "tpu_name", "tpu_zone", "gcp_project")


@dataclass(frozen=True, kw_only=True)
class Options(command.DeviceOptions):
    """The flags."""

    task: str = option(help="sst2 or imdb.")
    vocab_file: str = option(help="The vocabulary the encoder was trained with (vocab.txt).")
    output_dir: str = option(help="Folder for checkpoints, results and the SavedModel.")
    data_dir: str | None = option(
        None,
        help="Folder of the official files: SST-2 with its train.tsv and dev.tsv, aclImdb, or the "
        "parent of either. Without it tensorflow-datasets downloads them.",
    )
    init_checkpoint: str | None = option(
        None,
        help="Output folder of run_pretraining, or one checkpoint in it, to start from; its "
        "bert_config.json is used.",
    )
    init_vocab_mapping: str | None = option(
        None,
        help="The .mapping.json of build_vocab --extend_vocab: the table of --init_checkpoint "
        "grows by it to the new --vocab_file.",
    )
    bert_config_file: str | None = option(
        None, help="The encoder's bert_config.json, where it is not beside --init_checkpoint."
    )
    preset: str | None = option(
        None, help="Train from scratch in a published size: tiny, mini, small, base, L-6_H-256..."
    )
    do_lower_case: bool = option(True, help="Lower-case the text; for uncased vocabularies.")
    max_seq_length: int = option(128, at_least=5, help="Longer texts are cut to so many pieces.")
    train_batch_size: int = option(
        32, at_least=1, help="Examples a step, over all devices together."
    )
    eval_batch_size: int = option(
        32, at_least=1, help="Examples an evaluation step, over all devices."
    )
    learning_rate: float = option(
        5e-5, at_least=0, help="AdamW's highest rate, at the end of the warm-up."
    )
    num_train_epochs: float = option(3.0, at_least=0, help="Passes over the training examples.")
    warmup_proportion: float = option(
        0.1, at_least=0, at_most=1, help="Share of the steps over which the rate rises."
    )
    seed: int = option(
        12345,
        at_least=0,
        at_most=2**32 - 1,
        help="Of the new weights, the order of the data and dropout.",
    )


def run(options: Options) -> dict[str, float]:
    """Fine-tunes, evaluates and exports; returns the results, as `eval_results.txt` holds them.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.finetuning.registry import get_task
    from bert_tf.finetuning.run import FineTuner, read_results
    from bert_tf.finetuning.task import load_splits
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.training import strategy as strategies
    from bert_tf.weights.growing import load_mapping
    from tfrecords.vocabulary import load_vocab
    from tfrecords.writer import make_folder

    task = get_task(options.task)
    vocab = load_vocab(options.vocab_file)
    config = _checked_config(options, len(vocab))
    if _check_folder(options):
        print(f"{options.output_dir}: this run is finished; take another folder to repeat it.")
        return read_results(os.path.join(options.output_dir, RESULTS))
    strategy = strategies.make_strategy(
        options.strategy, options.tpu_name, options.tpu_zone, options.gcp_project
    )
    for flag in ("train_batch_size", "eval_batch_size"):
        strategies.check_batch_size(strategy, flag, getattr(options, flag))
    strategies.set_precision(options.precision)
    tokenizer = WordPieceTokenizer(vocab, options.do_lower_case)
    encoded = _encode(options, load_splits(task, options.data_dir, options.seed), tokenizer)
    tuner = FineTuner(
        options.output_dir, config, len(task.labels), encoded, _settings(options), strategy
    )
    mapping = load_mapping(options.init_vocab_mapping) if options.init_vocab_mapping else None
    tuner.start(options.init_checkpoint, mapping)
    make_folder(options.output_dir)
    _start_folder(options, config)
    results = tuner.train()
    _export(options, config, task, tokenizer)
    _say_results(options, task, results)
    return results


def _encode(options: Options, splits: dict, tokenizer) -> dict:
    from bert_tf.finetuning.batches import encode

    encoded = {
        name: encode(examples, tokenizer, options.max_seq_length, f"tokenizing {name}")
        for name, examples in splits.items()
    }
    for name, examples in encoded.items():
        line = f"{name}: {len(examples):,} examples"
        if examples.truncated:
            share = examples.truncated / len(examples)
            line += f", {examples.truncated:,} ({share:.1%}) cut to {options.max_seq_length} pieces"
        if examples.not_utf8:
            line += f", {examples.not_utf8:,} with bytes that are not UTF-8, which were dropped"
        print(line)
    return encoded


def _settings(options: Options):
    from bert_tf.finetuning.run import Settings

    names = [field.name for field in dataclasses.fields(Settings)]
    return Settings(**{name: getattr(options, name) for name in names})


def _checked_config(options: Options, vocab_size: int) -> "BertConfig":
    """The encoder's configuration, once the flags that belong together agree."""
    from bert_tf.weights.growing import load_mapping

    config, source = _config_and_source(options, vocab_size)
    if options.init_vocab_mapping:
        if not options.init_checkpoint:
            raise ValueError("--init_vocab_mapping needs --init_checkpoint, whose table is to grow")
        config = load_mapping(options.init_vocab_mapping).grow_config(config)
    if vocab_size > config.vocab_size:
        raise ValueError(
            f"{options.vocab_file} has {vocab_size} tokens, more than the vocab_size "
            f"{config.vocab_size} of {source}"
        )
    if options.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={options.max_seq_length} is longer than the "
            f"max_position_embeddings {config.max_position_embeddings} of {source}"
        )
    return config


def _config_and_source(options: Options, vocab_size: int) -> tuple["BertConfig", str]:
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.presets import preset_config
    from bert_tf.training.checkpoints import latest_checkpoint

    if options.preset:
        if options.init_checkpoint or options.bert_config_file:
            raise ValueError("--preset trains from scratch: leave the other flags of the model out")
        return preset_config(options.preset, vocab_size), f"--preset={options.preset}"
    path = options.bert_config_file
    if options.init_checkpoint:
        folder = os.path.dirname(latest_checkpoint(options.init_checkpoint))
        beside = os.path.join(folder, CONFIG)
        if path is None:
            path = beside
        elif tf.io.gfile.exists(beside):
            _check_same_encoder(path, beside)
    if path is None:
        raise ValueError("give --init_checkpoint, or --preset to train from scratch")
    return BertConfig.from_json_file(path), path


def _check_same_encoder(path: str, beside: str) -> None:
    """That a configuration asks for the encoder of the one beside a checkpoint.

    What counts in training only may differ: some pre-train without the dropout they fine-tune with.
    """
    from bert_tf.config import BertConfig

    asked, saved = (dataclasses.asdict(BertConfig.from_json_file(file)) for file in (path, beside))
    free = {"hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"}
    for name in asked.keys() - free:
        if asked[name] != saved[name]:
            raise ValueError(
                f"{path} has {name} {asked[name]}, but {beside} has {saved[name]}: leave "
                "--bert_config_file out"
            )


def _check_folder(options: Options) -> bool:
    """Whether the run in the output folder is finished.

    Raises:
        ValueError: the folder holds something else, or a run with other flags.
    """
    import tensorflow as tf

    folder, path = options.output_dir, os.path.join(options.output_dir, SETTINGS)
    if not tf.io.gfile.exists(path):
        if tf.io.gfile.isdir(folder) and tf.io.gfile.listdir(folder):
            raise ValueError(f"{folder} is not empty and holds no fine-tuning run; take another")
        return False
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        saved = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; take another --output_dir") from error
    if not tf.io.gfile.glob(os.path.join(folder, "*.index")):
        return False  # it stopped before its first checkpoint: nothing to go on from
    for name, value in _saved_settings(options).items():
        if saved.get(name) != value:
            raise ValueError(
                f"{folder} holds a run with --{name}={saved.get(name)}, not {value}; take another "
                "--output_dir, or the same flags to go on"
            )
    return tf.io.gfile.exists(os.path.join(folder, SAVED_MODEL))


def _saved_settings(options: Options) -> dict:
    return {k: v for k, v in dataclasses.asdict(options).items() if k not in _MAY_CHANGE}


def _start_folder(options: Options, config: "BertConfig") -> None:
    from bert_tf.finetuning.run import BEST
    from tfrecords.writer import atomic_write

    # Each folder of checkpoints has its configuration, so that it may be an --init_checkpoint.
    for folder in (options.output_dir, os.path.join(options.output_dir, BEST)):
        config.to_json_file(os.path.join(folder, CONFIG))
    settings = json.dumps(_saved_settings(options), indent=2) + "\n"
    atomic_write(os.path.join(options.output_dir, SETTINGS), settings)


def _export(options: Options, config: "BertConfig", task: "Task", tokenizer) -> None:
    from bert_tf.finetuning.run import BEST
    from bert_tf.models.task_model import BertTaskModel
    from bert_tf.training import checkpoints
    from bert_tf.weights.loading import load_weights
    from export import saved_models
    from export.classifier_module import TextClassifier

    # Whatever precision trained it, probabilities are float32.
    model = BertTaskModel(config, len(task.labels), dtype="float32")
    best = checkpoints.latest_checkpoint(os.path.join(options.output_dir, BEST))
    load_weights(best, model.weights)
    module = TextClassifier(model, tokenizer, task.labels, options.max_seq_length, task.pairs)
    path = os.path.join(options.output_dir, SAVED_MODEL)
    saved_models.save_folder(module, path, {"serving_default": module.serving})


def _say_results(options: Options, task: "Task", results: dict[str, float]) -> None:
    folder = options.output_dir
    chosen = "which the best epoch was chosen on"
    dev = "the dev set" if task.has_dev else "the held-out tenth of the training set"
    print(f"Accuracy {results['eval_accuracy']:.4f} on {dev}, {chosen}.")
    if task.has_test:
        print(f"Accuracy {results['test_accuracy']:.4f} on the test set.")
    arguments = '["a text"], ["another"]' if task.pairs else '["a text"]'
    print(
        f"Wrote {folder}: results in {RESULTS}, best weights in best, curves for tensorboard, and "
        f"the classifier in {SAVED_MODEL}. To use it:\n"
        "  import tensorflow as tf, tensorflow_text\n"
        f"  classify = tf.saved_model.load({os.path.join(folder, SAVED_MODEL)!r})\n"
        f"  print(classify({arguments}))  # probabilities of {', '.join(task.labels)}"
    )


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()
