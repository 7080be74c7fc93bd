"""The flags of run_finetuning.

They have the names and defaults of google-research/bert's run_classifier and run_squad, except for
those in docs/differences.md. `absent_flags` lists the flags that are missing here.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.base import command
from bert_tf.base.choices import (
    BATCH,
    EMBEDDING_POOLINGS,
    FEATURES,
    LABEL_TYPES,
    PAIR_LENGTH,
    RATE,
    SEED,
    SHARE,
)
from bert_tf.base.command import option, rare_option
from bert_tf.base.common_options import DeviceOptions
from bert_tf.tables.memory import TableInMemory

EVAL_RESULTS_JSON = "eval_results.json"
# Flags by their roles; see `option`.
_place = functools.partial(option, role="place")
_rare_place = functools.partial(rare_option, role="place")
_evaluation = functools.partial(rare_option, role="evaluation")

# What flags need; see `option`.
_TABLES, _SQUAD = "task=csv or task=ner", "task=squad or task=squad2"
_VECTORS = "label_type=similarity or label_type=pairs"


@dataclass(frozen=True, kw_only=True)
class TaskOptions(command.Options):
    """The flags that only some tasks read."""

    data_dir: str | None = _place(
        None,
        "Folder of the task's official files, or its parent, such as SST-2 with train.tsv and "
        "dev.tsv, or aclImdb. Without it, tensorflow-datasets downloads the data.",
        instead_of=("task=csv",),
    )
    train_file: str | TableInMemory | None = _place(
        None, "Training file, instead of the one in --data_dir."
    )
    dev_file: str | TableInMemory | None = _place(
        None,
        "File to evaluate on, with answers, instead of the one in --data_dir. Without either, "
        "a tenth of --train_file is held out.",
    )
    test_file: str | TableInMemory | None = _place(
        None, "Test file, with or without answers, instead of the one in --data_dir."
    )
    text_column: str | None = rare_option(
        None,
        "Column of the text. Default: text, in upper or lower case, or the only column left; with "
        "--task=ner, which counts columns from 1, the first that does not number sentences or "
        "words.",
        needs=(_TABLES,),
    )
    text_b_column: str | None = rare_option(
        None,
        "Column of the second text, for pairs of texts.",
        needs=("task=csv",),
        instead_of=("label_type=tags",),
    )
    negative_column: str | None = rare_option(
        None,
        "Column of wrong second texts that are hard to tell from the right ones.",
        needs=("text_b_column", "label_type=pairs"),
    )
    label_column: str | None = rare_option(
        None,
        "Column to predict, or with --label_type=classes several, comma-separated, one per class, "
        "which hold 0 or 1. Default: label. With --task=ner, the number of the column of tags, by "
        "default the last one or the only one with entities.",
        needs=(_TABLES,),
    )
    label_type: str = rare_option(
        "class",
        "What --label_column holds: class, one class; classes, several at once; number, a "
        "number; tags, a tag for every word (the columns tokens and tags hold lists). To train "
        "vectors of texts: similarity, a number for two texts (the only one with --task=stsb); "
        "pairs, nothing: the second text belongs to the first.",
        choices=LABEL_TYPES,
        needs=("task=csv or task=stsb",),
    )
    label_separator: str | None = rare_option(
        None,
        "Separator between the classes in a cell. Default: a comma. Lists in brackets need no "
        "separator.",
        needs=("label_type=classes",),
    )
    tsv_quotes: bool | None = rare_option(
        None,
        "Whether double quotes enclose the fields of .tsv files, as in .csv files; otherwise they "
        "are text. Default: true if all of the training file follows that rule.",
        needs=("task=csv",),
        instead_of=("label_type=tags",),
    )

    # Vectors of texts.
    pooling: str | None = rare_option(
        None,
        "How to compute the vector of a text: mean or max of the last layer's outputs for all "
        "tokens, or cls, its output for [CLS]. Default: as in --init_checkpoint, or mean.",
        choices=EMBEDDING_POOLINGS,
        needs=(_VECTORS,),
    )
    normalize: bool | None = rare_option(
        None,
        "Divide each vector by its length. Default: as in --init_checkpoint, or false. The loss "
        "compares directions, so this changes only the vectors that later commands compute.",
        needs=(_VECTORS,),
    )
    temperature: float = rare_option(
        0.05, "The loss divides the cosines by this.", at_least=0.001, needs=("label_type=pairs",)
    )

    # Tagging.
    document_context: bool = rare_option(
        True,
        "Read each sentence together with the others of its document. "
        "--nodocument_context: every sentence alone.",
        needs=("task=ner",),
    )
    feature_based: str | None = rare_option(
        None,
        "Freeze the encoder and train two bidirectional LSTMs on these outputs of the "
        "encoder, as in table 7 of the paper, with a --learning_rate such as 1e-3. By default, the "
        "encoder trains.",
        choices=FEATURES,
        needs=("task=ner",),
    )

    # Questions on contexts.
    doc_stride: int = rare_option(
        128,
        "Contexts longer than --max_seq_length are split into windows that start this many tokens "
        "apart.",
        at_least=1,
        needs=(_SQUAD,),
    )
    max_query_length: int = rare_option(
        64, "Tokens per question; longer ones are truncated.", at_least=1, needs=(_SQUAD,)
    )
    n_best_size: int | None = _evaluation(
        None,
        "How many of the best starts and ends are combined, and the number of answers per "
        "question in nbest_predictions.json. Default: 20.",
        at_least=1,
        needs=(_SQUAD,),
    )
    max_answer_length: int | None = _evaluation(
        None, "Tokens per answer. Default: 30.", at_least=1, needs=(_SQUAD,)
    )
    null_score_diff_threshold: float | None = _evaluation(
        None,
        'A question gets no answer if "no answer" scores higher than the best answer by more than '
        "this. Default: 0.",
        needs=("task=squad2",),
    )


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(TaskOptions, DeviceOptions):
    """What to fine-tune, on which task, and how."""

    absent_flags: ClassVar[Mapping[str, str]] = DeviceOptions.absent_flags | {
        "predict_file": "use --dev_file if it has answers and --test_file otherwise",
        "save_checkpoints_steps": "the command saves every 1,000 steps and each epoch, so omit it",
        "version_2_with_negative": "use --task=squad2 for SQuAD 2.0",
        "iterations_per_loop": "the command chooses it, so omit it",
        "batch_size": "use --train_batch_size",
        "epochs": "use --num_train_epochs",
        "num_epochs": "use --num_train_epochs",
        "lr": "use --learning_rate",
        "max_length": "use --max_seq_length",
        "model": "use --init_checkpoint",
        "data": "use --train_file",
        "train_dataset": "use --train_file",
        "eval_data": "use --dev_file",
        "eval_dataset": "use --dev_file",
        "validation_data": "use --dev_file",
        "X": "use --train_file; in Python, train=(texts, labels)",
        "y": "use --train_file; in Python, train=(texts, labels)",
        "labels": "use --train_file; in Python, train=(texts, labels)",
    }
    command: ClassVar[str] = "run_finetuning"
    # Whether the command trains on other examples than those in the files.
    changes_examples: ClassVar[bool] = False
    # The files that a finished run has written.
    result_files: ClassVar[tuple[str, ...]] = (EVAL_RESULTS_JSON,)
    # What a run may have in its folder before its first step.
    early_files: ClassVar[tuple[str, ...]] = ()

    task: str = option(
        help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad, squad2, ner, swag, imdb, "
        "csv for your own tables, or several: mrpc,rte. Several share an encoder.",
        aliases=("task_name",),
    )
    output_dir: str = option(
        help="Run folder: checkpoints, best weights, results, predictions and logs.", role="place"
    )
    do_train: bool = _place(
        False, "Train, evaluate on the dev set after every epoch and keep the best weights."
    )
    do_eval: bool = _place(
        False, "Evaluate the best weights on the dev set and on a test set with answers."
    )
    do_predict: bool = _place(False, "Write the best weights' predictions for the test set.")
    init_checkpoint: str | None = _place(
        None,
        "Run folder of run_pretraining, a checkpoint in one, or a checkpoint of another "
        "program (docs/checkpoints.md), whose encoder to start from. Configuration, vocabulary and "
        "casing come with it. To evaluate without --do_train: a fine-tuned model, or an ensemble, "
        "a,b,c.",
    )
    init_vocab_mapping: str | None = _rare_place(
        None,
        "Grow --init_checkpoint to the extended vocabulary in --vocab_file: the .mapping.json that "
        "build_vocab --extend_vocab wrote.",
        needs=("init_checkpoint",),
    )
    bert_config_file: str | None = _rare_place(
        None,
        "The encoder's bert_config.json. Needed only if --init_checkpoint has none, or to "
        "change dropout.",
        instead_of=("preset",),
    )
    preset: str | None = _rare_place(
        None,
        "A published size, such as tiny, mini, small, base or L-6_H-256, to train an encoder "
        "from scratch. As baselines: bilstm, a BiLSTM, and bilstm-pairs, one for pairs of texts.",
    )
    vocab_file: str | None = _rare_place(
        None,
        "The encoder's vocabulary. Needed only with --preset, or if --init_checkpoint has "
        "no vocab.txt.",
    )
    replace_vocab: bool = _rare_place(
        False,
        "Use --vocab_file although --init_checkpoint has another vocabulary. Only correct if "
        "ids keep their meaning, for example if you renamed [unused] tokens.",
        needs=("vocab_file",),
    )
    do_lower_case: bool | None = _rare_place(
        None,
        "Whether to lower-case the text. Default: as for --init_checkpoint; true from scratch.",
    )
    max_seq_length: int | None = option(
        None,
        "Tokens per example; longer ones are truncated, except that contexts and tagged texts "
        "are read in windows of this length. Default: 384 for squad and squad2, otherwise 128, or "
        "the most that the model takes.",
        **PAIR_LENGTH,
    )
    train_batch_size: int = option(
        32, "Examples per training step, over all devices together.", **BATCH, instead_of=("grid",)
    )
    eval_batch_size: int = rare_option(
        32,
        "Examples per evaluation or prediction step, over all devices together.",
        **BATCH,
        aliases=("predict_batch_size",),
        role="place",
    )
    learning_rate: float = option(
        5e-5, "The peak learning rate, at the end of the warm-up.", **RATE, instead_of=("grid",)
    )
    num_train_epochs: float = option(
        3.0, "Epochs over the training examples.", at_least=0, at_most=10**6, instead_of=("grid",)
    )
    num_train_examples: int | None = rare_option(
        None,
        "Train on this many examples, drawn at random with --random_seed; not for squad, swag, "
        "tags or several tasks.",
        at_least=1,
    )
    warmup_proportion: float = rare_option(
        0.1, "Share of the steps over which the learning rate rises.", **SHARE
    )
    random_seed: int = rare_option(
        12345, "Seed of the new weights, the order of the data and dropout.", **SEED
    )
    bias_correction: bool = rare_option(
        True,
        "Correct the bias of Adam's moments, which makes fine-tuning on small data stable. "
        "google-research/bert does not: --nobias_correction.",
    )
    metric: str | None = rare_option(
        None,
        "The metric on the dev set that chooses the best epoch, such as macro_f1, roc_auc, "
        "f1/spam (the F1 of the class spam) or loss. Default: the metric of the task, such as "
        "accuracy.",
    )
    early_stopping: int | None = rare_option(
        None,
        "End training after this many epochs in a row without improvement of the metric.",
        at_least=1,
    )
    class_weights: str | None = rare_option(
        None,
        "Weights of the classes in the loss: `balanced` gives every class the same total "
        "weight, whatever its number of training examples; spam=1,ham=4 sets them, and classes "
        "that are not named weigh 1.",
    )
    freeze_encoder: bool = rare_option(
        False,
        "Train only the head. The encoder keeps its weights and has no dropout.",
        instead_of=("feature_based", "label_type=similarity", "label_type=pairs"),
    )
    lora_rank: int | None = rare_option(
        None,
        "Fine-tune with LoRA: train only the head and, for every query and value projection, two "
        "matrices of this rank (usually 8), with a --learning_rate of 1e-3 to 5e-3.",
        at_least=1,
        instead_of=("freeze_encoder", "feature_based", "init_vocab_mapping"),
    )
    lora_alpha: float = rare_option(
        16.0,
        "Scale of LoRA: the product of the two matrices is multiplied by this / --lora_rank.",
        at_least=0.001,
        needs=("lora_rank",),
    )
    layer_decay: float = rare_option(
        1.0,
        "Multiply the learning rate by this factor per layer, from the head down to the "
        "embeddings; 0.8 to 0.95 are usual for small data.",
        **SHARE,
        instead_of=("freeze_encoder", "feature_based", "lora_rank"),
    )
    num_seeds: int = option(
        1,
        "Train this many times, with --random_seed and the seeds after it, in subfolders of "
        "--output_dir, and report mean, standard deviation and the best run.",
        at_least=1,
        at_most=1000,
        needs=("do_train",),
    )
    grid: bool = option(
        False,
        "Train with every combination that the paper tries: batches of 16 and 32, learning "
        "rates of 5e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs. The dev set chooses.",
        needs=("do_train",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")

    @property
    def is_sweep(self) -> bool:
        """Whether the flags ask for several runs."""
        return self.grid or self.num_seeds > 1

    def num_train_steps(self, num_examples: int) -> int:
        """Returns the number of steps for this number of training examples."""
        steps = int(num_examples * self.num_train_epochs / self.train_batch_size)
        if steps < 1:
            raise ValueError(
                f"--num_train_epochs={self.num_train_epochs} over {num_examples} examples is less "
                f"than one step of --train_batch_size={self.train_batch_size}: use more epochs or "
                "a smaller batch"
            )
        return steps
