"""The flags of run_pretraining.

Flags that google-research/bert's script of the same name has keep their names and defaults.
"""

from dataclasses import dataclass
from typing import ClassVar

from bert_tf.base import choices
from bert_tf.base.command import option, rare_option
from bert_tf.base.common_options import DeviceOptions
from bert_tf.config import describe_presets


@dataclass(frozen=True, kw_only=True)
class SharedOptions(DeviceOptions):
    """The flags of all commands that pre-train: which encoder, on which records, and how."""

    command: ClassVar[str] = "run_pretraining"
    if_out_of_memory: ClassVar[str] = (
        "use a smaller --train_batch_size, --eval_batch_size or encoder, more "
        "--gradient_accumulation_steps, --rematerialize=layers, or shorter examples"
    )

    input_file: str = option(help="TFRecord files, comma-separated; globs allowed.")
    output_dir: str = option(
        help="Run folder: checkpoints, configuration, vocabulary and logs.", role="place"
    )
    bert_config_file: str | None = option(None, "The encoder's bert_config.json.")
    preset: str | None = option(
        None,
        "A published size in place of --bert_config_file (layers x width, parameters with "
        f"bert-base-uncased's vocabulary): {describe_presets()}, or one such as L-6_H-256.",
        instead_of=("bert_config_file",),
    )
    vocab_file: str | None = rare_option(
        None,
        "The vocabulary of the examples. Needed only if no manifest beside the records holds it.",
    )
    replace_vocab: bool = rare_option(
        False,
        "Use --vocab_file although the records, the run or --init_checkpoint have another "
        "vocabulary. Only correct if ids keep their meaning, for example if you renamed [unused] "
        "tokens.",
        needs=("vocab_file",),
    )
    do_lower_case: bool | None = rare_option(
        None,
        "Whether the text of the examples was lower-cased. Needed only if no manifest beside "
        "the records states it; without it, exports will ask for the casing.",
    )
    max_seq_length: int | None = rare_option(
        None,
        "Length of the examples. Default: the value in the records' manifest, else 128.",
        **choices.TOKENS,
    )
    max_predictions_per_seq: int | None = rare_option(
        None,
        "Masked positions per example. Default: the value in the records' manifest, else 20; more "
        "if --masked_lm_prob needs more.",
        **choices.TOKENS,
    )
    masking: str | None = rare_option(
        None,
        "What to mask as one unit in dynamic examples, which get new masks in every epoch; "
        "default: wordpiece. left_to_right masks nothing and predicts every next token; it needs "
        "an encoder whose configuration sets is_decoder.",
        choices=choices.DYNAMIC_MASKINGS,
    )
    masked_lm_prob: float | None = rare_option(
        None,
        "Share of the tokens to mask in dynamic examples. Default: the value in the records' "
        "manifest, else 0.15.",
        at_least=1e-6,
        at_most=1,
    )
    eval_masked_lm_prob: float | None = rare_option(
        None,
        "The same for held-out dynamic examples, to compare runs of different shares. Default: "
        "the share in training.",
        at_least=1e-6,
        at_most=1,
    )
    replacements: str | None = rare_option(
        None,
        "What dynamic examples show in place of the tokens to predict, in percent: [MASK], "
        "the token itself, a random token. Multiples of 10 that add up to 100. Default: 80,10,10.",
    )
    objective: str | None = rare_option(
        None,
        "What to learn. nsp: masked tokens and next sentences. sop: masked tokens and the "
        "order of sentences. mlm: masked tokens only. Default: what the examples were created for.",
        choices=choices.OBJECTIVES,
    )
    eval_input_file: str | None = option(
        None,
        "Held-out TFRecord files to evaluate on. Without them, every hundredth record of "
        "each --input_file is held out of training for evaluation; --do_eval alone evaluates all "
        "records of files that the run was not trained on.",
    )
    train_batch_size: int = option(
        32, "Examples per training step, over all devices together.", **choices.BATCH
    )
    eval_batch_size: int = rare_option(
        8, "Examples per evaluation step, over all devices together.", **choices.BATCH
    )
    gradient_accumulation_steps: int = rare_option(
        1,
        "Number of parts in which each device processes its share of the batch, to save "
        "memory. The result is the same as for the whole batch.",
        at_least=1,
    )
    rematerialize: str | None = rare_option(
        None,
        "What to recompute in the backward pass instead of keeping it. selective, the "
        "default except on the CPU: attention probabilities and dropout masks. layers: all "
        "activations inside a layer, which saves much memory but takes a third more arithmetic.",
        choices=choices.REMATERIALIZATIONS,
    )
    optimizer: str = rare_option(
        "adamw", "adamw as in BERT, or lamb for very large batches.", choices=("adamw", "lamb")
    )
    bias_correction: bool | None = rare_option(
        None,
        "Correct the bias of the optimizer's moments. Default: off for adamw, as in BERT; on "
        "for lamb.",
    )
    learning_rate: float = option(
        5e-5, "The peak learning rate, at the end of the warm-up.", **choices.RATE
    )
    num_train_steps: int = option(100000, "Total number of steps.", at_least=1, at_most=10**12)
    num_warmup_steps: int = option(
        10000, "Steps over which the learning rate rises from 0.", at_least=0
    )
    save_checkpoints_steps: int = option(
        1000, "Steps between checkpoints, and between evaluations.", at_least=1
    )
    log_steps: int = rare_option(
        100, "Steps that each line of metrics.jsonl averages over.", at_least=1
    )
    keep_checkpoints: int = rare_option(5, "How many checkpoints to keep.", at_least=1)
    iterations_per_loop: int = rare_option(
        1000, "Maximum number of steps before the device returns to the host.", at_least=1
    )
    max_eval_steps: int = rare_option(100, "Maximum number of evaluation steps.", at_least=1)
    random_seed: int = rare_option(
        12345,
        "Seed of the initial weights, the order of the data, the masks and dropout.",
        **choices.SEED,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.replacement_tenths  # noqa: B018 - raises an error

    @property
    def replacement_tenths(self) -> tuple[int, int, int]:
        """Of ten tokens to predict, how many become [MASK], stay unchanged and become random."""
        text = self.replacements or "80,10,10"
        numbers = [int(part) if part.isdecimal() else -1 for part in text.split(",")]
        if len(numbers) != 3 or sum(numbers) != 100 or any(n % 10 or n < 0 for n in numbers):
            raise ValueError(
                f"--replacements={text}: give three multiples of 10 that add up to 100, such as "
                "80,10,10"
            )
        mask, same, random = (number // 10 for number in numbers)
        return mask, same, random


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(SharedOptions):
    """What a single run does, and what it starts from."""

    do_train: bool = option(False, "Train.")
    do_eval: bool = option(
        False, "Evaluate at every checkpoint, and write eval_results.txt to --output_dir."
    )
    init_checkpoint: str | None = option(
        None,
        "Run folder, a checkpoint in one, or a checkpoint of another program "
        "(docs/checkpoints.md), whose weights to start from.",
    )
    init_vocab_mapping: str | None = rare_option(
        None,
        "Grow --init_checkpoint to an extended vocabulary: the .mapping.json that build_vocab "
        "--extend_vocab wrote.",
        needs=("init_checkpoint",),
    )
    phases_file: str | None = rare_option(
        None,
        'JSON list of phases, each with its "share" of --num_train_steps and, if they '
        "differ from the flags, input_file, eval_input_file, max_seq_length, "
        "max_predictions_per_seq and train_batch_size. Use it to train on short sequences first, "
        "then on long ones.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.do_train or self.do_eval):
            raise ValueError("nothing to do: give --do_train, --do_eval or both")
