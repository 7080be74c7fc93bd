"""The flags of run_pretraining: those of google-research/bert's script, and some more."""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option


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
    phases_file: str | None = option(
        None,
        help='JSON list of phases, each with its "share" of --num_train_steps and, where they '
        "differ from the flags, input_file, eval_input_file, max_seq_length, "
        "max_predictions_per_seq and train_batch_size: short sequences first, then long ones.",
    )
    init_checkpoint: str | None = option(
        None, help="Checkpoint, or folder of one, to start from in place of random weights."
    )
    init_vocab_mapping: str | None = option(
        None,
        help="The .mapping.json of build_vocab --extend_vocab: the tables of --init_checkpoint "
        "grow by it; --bert_config_file may be that of the checkpoint.",
    )
    max_seq_length: int = option(128, at_least=1, help="As given to create_pretraining_data.")
    max_predictions_per_seq: int = option(
        20, at_least=1, help="As given to create_pretraining_data."
    )
    masking: str | None = option(
        None,
        help="What to mask as a whole in examples made with --masking=dynamic, which are masked "
        "anew in every epoch; wordpiece by default. left_to_right masks nothing: every next piece "
        "is predicted, by an encoder whose configuration has is_decoder.",
        choices=("wordpiece", "whole_word", "left_to_right"),
    )
    masked_lm_prob: float | None = option(
        None,
        help="Share of the pieces to mask in examples made with --masking=dynamic; 0.15 by "
        "default.",
    )
    objective: str | None = option(
        None,
        help="What to learn: nsp, masked words and next sentences; sop, and the order of "
        "sentences; mlm, masked words alone. By default what the examples were made for.",
        choices=("nsp", "sop", "mlm"),
    )
    do_train: bool = option(False, help="Train.")
    do_eval: bool = option(
        False, help="Evaluate at every checkpoint, and write eval_results.txt in the output folder."
    )
    eval_input_file: str | None = option(
        None,
        help="Held-out TFRecord files to evaluate on. Without them the first of every hundred "
        "records of each --input_file is kept out of training for it; --do_eval alone evaluates "
        "all of a file that the run was not trained on.",
    )
    train_batch_size: int = option(
        32, at_least=1, help="Examples a step, over all devices together."
    )
    eval_batch_size: int = option(
        8, at_least=1, help="Examples an evaluation step, over all devices."
    )
    gradient_accumulation_steps: int = option(
        1,
        at_least=1,
        help="Parts in which each device works through its share of the batch, for less memory; "
        "the result is that of the whole.",
    )
    rematerialize: str | None = option(
        None,
        help="What to compute anew for the gradient instead of keeping it: selective, the default "
        "but for the CPU, attention's probabilities and the masks of dropout; layers, all: much "
        "less memory on GPUs and the CPU, a third slower.",
        choices=("none", "selective", "layers"),
    )
    optimizer: str = option(
        "adamw", help="adamw as in BERT; lamb for very large batches.", choices=("adamw", "lamb")
    )
    bias_correction: bool | None = option(
        None, help="Of the optimizer's moments; by default off for adamw, as in BERT, on for lamb."
    )
    learning_rate: float = option(
        5e-5, at_least=0, help="The highest rate, at the end of the warm-up."
    )
    learning_rate_schedule: str = option(
        "linear",
        help="How the rate falls after the warm-up: to 0 at the last step, but for constant.",
        choices=("linear", "polynomial", "cosine", "constant"),
    )
    learning_rate_power: float = option(2.0, at_least=0, help="Power of the polynomial schedule.")
    num_train_steps: int = option(
        100000, at_least=1, at_most=10**12, help="Steps in all; the rate falls to 0 at the last."
    )
    num_warmup_steps: int = option(
        10000, at_least=0, help="Steps over which the rate rises from 0."
    )
    save_checkpoints_steps: int = option(
        1000, at_least=1, help="Steps between checkpoints and evaluations."
    )
    log_steps: int = option(
        100, at_least=1, help="Steps between lines of metrics.jsonl, each the mean of these steps."
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
    strategy: str = option(
        "auto",
        help="Devices to use; auto takes the workers named, else the TPU named, else all GPUs, "
        "else the CPU.",
        choices=("auto", "cpu", "gpu", "multi_worker", "tpu"),
    )
    worker_hosts: str | None = option(
        None,
        help="host:port of every machine of --strategy=multi_worker, comma-separated, the same on "
        "each; TF_CONFIG says it, too.",
    )
    task_index: int | None = option(
        None, at_least=0, help="Which of --worker_hosts this is; number 0 writes the files."
    )
    use_tpu: bool = option(False, help="The same as --strategy=tpu.")
