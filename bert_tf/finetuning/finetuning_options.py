"""The flags of run_finetuning.

They have the names and defaults of google-research/bert's run_classifier and run_squad, except for
those in docs/differences.md. `absent_flags` lists the flags that are missing here.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.choices import BATCH, FEATURES, LABEL_TYPES, PAIR_LENGTH, RATE, SEED, SHARE
from bert_tf.flags import DeviceOptions
from tfrecords import command
from tfrecords.command import option

EVAL_RESULTS_JSON = "eval_results.json"


@dataclass(frozen=True, kw_only=True)
class TaskOptions(command.Options):
    """The flags that only some tasks read; see `Task.flags`."""

    data_dir: str | None = option(
        None,
        help="Folder of the task's official files, or its parent, such as SST-2 with train.tsv and "
        "dev.tsv, or aclImdb. Without it, tensorflow-datasets downloads the data.",
    )
    train_file: str | None = option(None, help="Training file, instead of the one in --data_dir.")
    dev_file: str | None = option(
        None, help="File with the answers to evaluate on, instead of the one in --data_dir."
    )
    test_file: str | None = option(
        None, help="File to predict, with or without answers, instead of the one in --data_dir."
    )
    text_column: str | None = option(
        None,
        help="Column of the text in files of --task=csv. Default: text, in upper or lower case, or "
        "the only column left. With --task=ner, the number of the column of words, counted from 1. "
        "Default: the first column that does not number sentences or words.",
        aliases=("word_column",),
        rare=True,
    )
    text_b_column: str | None = option(
        None,
        help="Column of the second text, for pairs of texts in files of --task=csv.",
        rare=True,
    )
    label_column: str | None = option(
        None,
        help="Column to predict in files of --task=csv. Default: label. With --label_type=classes, "
        "it may be several columns, separated by commas, one per class, which hold 0 or 1. With "
        "--task=ner, the number of the column of tags. Default: the last column, or the only one "
        "with tags of entities.",
        aliases=("tag_column",),
        rare=True,
    )
    label_type: str = option(
        "class",
        choices=LABEL_TYPES,
        help="What --label_column holds: class, one class; classes, several at once; number, a "
        "number; tags, a tag for every word (the columns tokens and tags hold lists).",
        rare=True,
    )
    label_separator: str | None = option(
        None,
        help="Separator between the classes in a cell, with --label_type=classes. Default: a "
        "comma. Lists in brackets need no separator.",
        rare=True,
    )

    # Tagging.
    document_context: bool = option(
        True,
        help="Read each sentence together with the others of its document. "
        "--nodocument_context: every sentence alone.",
        rare=True,
    )
    feature_based: str | None = option(
        None,
        choices=FEATURES,
        help="Freeze the encoder and train two bidirectional LSTMs on these outputs of the "
        "encoder, as in table 7 of the paper, with a --learning_rate such as 1e-3. By default, the "
        "encoder trains.",
        rare=True,
    )

    # Questions on contexts.
    doc_stride: int = option(
        128,
        at_least=1,
        help="squad, squad2: contexts longer than --max_seq_length are split into windows that "
        "start this many tokens apart.",
        rare=True,
    )
    max_query_length: int = option(
        64,
        at_least=1,
        help="squad, squad2: tokens per question; longer ones are truncated.",
        rare=True,
    )
    n_best_size: int | None = option(
        None,
        at_least=1,
        help="squad, squad2: how many of the best starts and ends are combined, and the number of "
        "answers per question in nbest_predictions.json. Default: 20.",
        rare=True,
    )
    max_answer_length: int | None = option(
        None, at_least=1, help="squad, squad2: tokens per answer. Default: 30.", rare=True
    )
    null_score_diff_threshold: float | None = option(
        None,
        help='squad2: a question gets no answer if "no answer" scores higher than the best answer '
        "by more than this. Default: 0.",
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TaskOptions, DeviceOptions):
    """What to fine-tune, on which task, and how."""

    absent_flags: ClassVar[Mapping[str, str]] = DeviceOptions.absent_flags | {
        "predict_file": "use --dev_file if it has answers and --test_file otherwise",
        "save_checkpoints_steps": "the command saves every 1,000 steps and each epoch, so omit it",
        "version_2_with_negative": "use --task=squad2 for SQuAD 2.0",
        "iterations_per_loop": "the command chooses it, so omit it",
    }
    command: ClassVar[str] = "run_finetuning"
    # Whether the command trains on other examples than those in the files.
    changes_examples: ClassVar[bool] = False
    # The files that a finished run has written.
    result_files: ClassVar[tuple[str, ...]] = (EVAL_RESULTS_JSON,)

    task: str = option(
        help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad, squad2, ner, swag, imdb, "
        "or csv for your own tables.",
        aliases=("task_name",),
    )
    output_dir: str = option(
        help="Run folder: checkpoints, best weights, results, predictions and logs."
    )
    do_train: bool = option(
        False, help="Train, evaluate on the dev set after every epoch and keep the best weights."
    )
    do_eval: bool = option(
        False, help="Evaluate the best weights on the dev set and on a test set with answers."
    )
    do_predict: bool = option(False, help="Write the best weights' predictions for the test set.")
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
        rare=True,
    )
    bert_config_file: str | None = option(
        None,
        help="The encoder's bert_config.json. Needed only if --init_checkpoint has none, or to "
        "change dropout.",
        rare=True,
    )
    preset: str | None = option(
        None,
        help="A published size, such as tiny, mini, small, base or L-6_H-256, to train an encoder "
        "from scratch.",
        rare=True,
    )
    vocab_file: str | None = option(
        None,
        help="The encoder's vocabulary. Needed only with --preset, or if --init_checkpoint has "
        "no vocab.txt.",
        rare=True,
    )
    replace_vocab: bool = option(
        False,
        help="Use --vocab_file although --init_checkpoint has another vocabulary. Only correct if "
        "ids keep their meaning, for example if you renamed [unused] tokens.",
        rare=True,
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether to lower-case the text. Default: as for --init_checkpoint; true "
        "from scratch.",
        rare=True,
    )
    max_seq_length: int | None = option(
        None,
        **PAIR_LENGTH,
        help="Tokens per example; longer ones are truncated, except that contexts and tagged texts "
        "are read in windows of this length. Default: 384 for squad and squad2, otherwise 128, or "
        "the most that the model takes.",
    )
    train_batch_size: int = option(
        32, **BATCH, help="Examples per training step, over all devices together."
    )
    eval_batch_size: int = option(
        32,
        **BATCH,
        help="Examples per evaluation or prediction step, over all devices together.",
        aliases=("predict_batch_size",),
        rare=True,
    )
    learning_rate: float = option(
        5e-5, **RATE, help="The peak learning rate, at the end of the warm-up."
    )
    num_train_epochs: float = option(
        3.0, at_least=0, at_most=10**6, help="Epochs over the training examples."
    )
    warmup_proportion: float = option(
        0.1, **SHARE, help="Share of the steps over which the learning rate rises.", rare=True
    )
    random_seed: int = option(
        12345,
        **SEED,
        help="Seed of the new weights, the order of the data, held-out splits and dropout.",
        aliases=("seed",),
        rare=True,
    )
    hold_out_seed: int | None = option(
        None,
        **SEED,
        help="Seed that chooses which tenth of the training set to hold out if there is no dev "
        "set. Default: --random_seed; in compress, that of the model to compress.",
        rare=True,
    )
    bias_correction: bool = option(
        True,
        help="Correct the bias of Adam's moments, which makes fine-tuning on small data stable. "
        "google-research/bert does not: --nobias_correction.",
        rare=True,
    )
    group_by_length: bool = option(
        True,
        help="Train on batches of examples of similar length, which need little padding. "
        "--nogroup_by_length: random batches, which need more padding and take longer; on small "
        "data, the model is sometimes slightly better.",
        rare=True,
    )
    metric: str | None = option(
        None,
        help="The metric on the dev set that chooses the best epoch, such as macro_f1, roc_auc, "
        "f1/spam (the F1 of the class spam) or loss. Default: the metric of the task, such as "
        "accuracy.",
        rare=True,
    )
    early_stopping: int | None = option(
        None,
        at_least=1,
        help="End training after this many epochs in a row without improvement of the metric.",
        rare=True,
    )
    class_weights: str | None = option(
        None,
        help="Weights of the classes in the loss: `balanced` gives every class the same total "
        "weight, whatever its number of training examples; spam=1,ham=4 states them, and classes "
        "that are not named weigh 1.",
        rare=True,
    )
    freeze_encoder: bool = option(
        False,
        help="Train only the head. The encoder keeps its weights and has no dropout.",
        rare=True,
    )
    layer_decay: float = option(
        1.0,
        **SHARE,
        help="Multiply the learning rate by this factor per layer, from the head down to the "
        "embeddings; 0.8 to 0.95 are usual for small data.",
        rare=True,
    )
    num_seeds: int = option(
        1,
        at_least=1,
        at_most=1000,
        help="Train this many times, with --random_seed and the seeds after it, in subfolders of "
        "--output_dir, and report mean, standard deviation and the best run.",
    )
    grid: bool = option(
        False,
        help="Train with every combination that the paper tries: batches of 16 and 32, learning "
        "rates of 5e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs. The dev set chooses.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
        if self.freeze_encoder and self.feature_based:
            raise ValueError("--feature_based freezes the encoder: omit --freeze_encoder")
        if self.layer_decay != 1 and (self.freeze_encoder or self.feature_based):
            raise ValueError("--layer_decay has no effect on a frozen encoder: omit it")
        if self.random_seed + self.num_seeds - 1 > SEED["at_most"]:
            raise ValueError(
                f"--random_seed={self.random_seed} and --num_seeds={self.num_seeds} need seeds "
                f"above {SEED['at_most']}: use a smaller --random_seed"
            )
        if self.is_sweep and not self.do_train:
            raise ValueError(
                "--num_seeds and --grid are for training: add --do_train, or give the folder of "
                "one run as --output_dir"
            )

    @property
    def is_sweep(self) -> bool:
        """Whether the flags ask for several runs."""
        return self.grid or self.num_seeds > 1

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


def check_task_flags(options: TaskOptions, flags: tuple[str, ...]) -> None:
    """Checks that only flags are set which the task reads.

    Raises:
        ValueError: another one is set.
    """
    for field in dataclasses.fields(TaskOptions):
        if getattr(options, field.name) != field.default and field.name not in flags:
            raise ValueError(f"--{field.name} has no effect with --task={options.task}: omit it")
