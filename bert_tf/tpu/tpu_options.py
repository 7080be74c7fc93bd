"""The flags of tpu_check."""

from dataclasses import dataclass

from bert_tf.choices import BATCH, REMATERIALIZATIONS, TOKENS
from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True, kw_only=True)
class TpuCheckOptions(command.Options):
    """Which training step to compile, and for which TPU."""

    bert_config_file: str | None = option(None, help="bert_config.json of the encoder.")
    preset: str | None = option(
        None,
        help="Published size to use instead of --bert_config_file: tiny, mini, small, medium, "
        "base, large, or one like L-6_H-256.",
    )
    topology: str = option("v5e:2x2", help="TPU version and number of chips in each dimension.")
    train_batch_size: int = option(32, **BATCH, help="Sequences per step, over all chips.")
    max_seq_length: int = option(128, **TOKENS, help="Tokens per sequence.")
    max_predictions_per_seq: int = option(20, **TOKENS, help="Masked positions per sequence.")
    precision: str = option(
        "bfloat16",
        help="Type of the activations and matrix products. Variables stay in float32.",
        choices=("float32", "bfloat16"),
    )
    rematerialize: str = option(
        "selective",
        help="What to recompute in the backward pass instead of keeping it. layers has no effect, "
        "because the compiler merges the recomputation with the first computation.",
        choices=REMATERIALIZATIONS,
        rare=True,
    )
    find_largest_batch: bool = option(
        True, help="Search for the largest batch that fits, which takes more compilations."
    )
