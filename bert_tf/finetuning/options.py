"""The flags of run_finetuning.

They have the names and defaults of google-research/bert's run_classifier, except that
--eval_batch_size is 32 instead of 8. `absent_flags` lists the flags that are missing here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.flags import DeviceOptions
from tfrecords.command import option


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(DeviceOptions):
    """What to fine-tune, on which task, and how."""

    absent_flags: ClassVar[Mapping[str, str]] = DeviceOptions.absent_flags | {
        "do_train": "the command always trains, so omit it",
        "do_eval": "the command always evaluates, so omit it",
        "do_predict": "export the run with export.classifier, and call that on your texts",
        "predict_batch_size": "this command makes no predictions: see export.classifier",
        "save_checkpoints_steps": "the command saves and evaluates after every epoch, so omit it",
        "iterations_per_loop": "the command chooses it, so omit it",
    }

    task: str = option(help="The task: sst2 or imdb.", aliases=("task_name",))
    output_dir: str = option(help="Run folder: checkpoints, best weights, results and logs.")
    data_dir: str | None = option(
        None,
        help="Folder of the task's official files, or its parent: SST-2 with train.tsv and "
        "dev.tsv, or aclImdb. Without it, tensorflow-datasets downloads the data.",
    )
    init_checkpoint: str | None = option(
        None,
        help="Run folder of run_pretraining, a checkpoint in one, or a checkpoint of another "
        "program (docs/checkpoints.md), whose encoder to start from. Configuration, vocabulary and "
        "casing come with it.",
    )
    init_vocab_mapping: str | None = option(
        None,
        help="The .mapping.json that build_vocab --extend_vocab wrote. It determines how the word "
        "embeddings of --init_checkpoint grow; --vocab_file is the extended vocabulary.",
    )
    bert_config_file: str | None = option(
        None,
        help="The encoder's bert_config.json. Needed only if --init_checkpoint has none, or to "
        "change dropout.",
    )
    preset: str | None = option(
        None,
        help="A published size, such as tiny, mini, small, base or L-6_H-256, to train an encoder "
        "from scratch.",
    )
    vocab_file: str | None = option(
        None,
        help="The encoder's vocabulary. Needed only with --preset, or if --init_checkpoint has "
        "no vocab.txt.",
    )
    replace_vocab: bool = option(
        False,
        help="Use --vocab_file although --init_checkpoint has another vocabulary. Only correct if "
        "ids keep their meaning, for example if you renamed [unused] tokens.",
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether to lower-case the text. Default: as for --init_checkpoint; true "
        "from scratch.",
    )
    max_seq_length: int = option(
        128, at_least=5, help="Tokens per example; longer ones are truncated."
    )
    train_batch_size: int = option(
        32, at_least=1, help="Examples per training step, over all devices together."
    )
    eval_batch_size: int = option(
        32, at_least=1, help="Examples per evaluation step, over all devices together."
    )
    learning_rate: float = option(
        5e-5, at_least=0, help="The peak learning rate, reached at the end of the warm-up."
    )
    num_train_epochs: float = option(3.0, at_least=0, help="Epochs over the training examples.")
    warmup_proportion: float = option(
        0.1, at_least=0, at_most=1, help="Share of the steps over which the learning rate rises."
    )
    random_seed: int = option(
        12345,
        at_least=0,
        at_most=2**32 - 1,
        help="Seed of the new weights, the order of the data, held-out splits and dropout.",
        aliases=("seed",),
    )

    def num_train_steps(self, num_examples: int) -> int:
        """Returns the number of steps for this number of training examples.

        Raises:
            ValueError: it would be 0.
        """
        steps = int(num_examples * self.num_train_epochs / self.train_batch_size)
        if steps < 1:
            raise ValueError(
                f"--num_train_epochs={self.num_train_epochs} over {num_examples} examples is less "
                f"than one step of --train_batch_size={self.train_batch_size}: use more epochs or "
                "a smaller batch"
            )
        return steps
