"""The flags of device_check."""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.choices import BATCH, REMATERIALIZATIONS, TOKENS
from bert_tf.base.command import option, rare_option


@dataclass(frozen=True, kw_only=True)
class DeviceCheckOptions(command.Options):
    """Which training step to compile, and for which device."""

    bert_config_file: str | None = option(None, "bert_config.json of the encoder.")
    preset: str | None = option(
        None,
        "Published size to use instead of --bert_config_file: tiny, mini, small, medium, "
        "base, large, or one like L-6_H-256.",
        instead_of=("bert_config_file",),
    )
    device: str = option(
        help="GPU, such as t4, a100 or h100:8, or TPU version and number of chips in each "
        "dimension, such as v5e:2x2."
    )
    train_batch_size: int = option(32, "Sequences per step, over all devices.", **BATCH)
    max_seq_length: int = option(128, "Tokens per sequence.", **TOKENS)
    max_predictions_per_seq: int = option(20, "Masked positions per sequence.", **TOKENS)
    fill: float = rare_option(
        1.0,
        "Share of the positions that a step computes when it skips padding. The time is for a "
        "batch with no more tokens than that, the memory for any batch.",
        at_least=0.01,
        at_most=1,
    )
    precision: str = option(
        "bfloat16",
        "Type of the activations and matrix products. Variables stay in float32.",
        choices=("float32", "bfloat16", "float16"),
    )
    rematerialize: str = rare_option(
        "selective",
        "What to recompute in the backward pass instead of keeping it.",
        choices=REMATERIALIZATIONS,
    )
    find_largest_batch: bool = option(
        True, "Search for the largest batch that fits, which takes more compilations."
    )
