"""The flags of convert_checkpoint."""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option, rare_option


@dataclass(frozen=True, kw_only=True)
class ConversionOptions(command.Options):
    """See the help of each flag."""

    from_: str = option(
        help="The checkpoint to convert: a path, or hf:, keras: or tfhub: and a name to download."
    )
    to: str = option(
        help="The format to write. run is a run folder, as run_pretraining writes it.",
        choices=("google", "huggingface", "kerashub", "run"),
    )
    output_dir: str = option(help="Folder to write; must be new or empty.")
    bert_config_file: str | None = rare_option(
        None, "The encoder's bert_config.json. Needed only if --from comes without one."
    )
    vocab_file: str | None = option(
        None,
        "The encoder's vocabulary. Needed only if --from comes without one, or with "
        "--init_vocab_mapping.",
    )
    do_lower_case: bool | None = rare_option(
        None, "Whether the text is lower-cased. Needed only if --from does not state it."
    )
    hidden_act: str | None = rare_option(
        None,
        "The activation that the weights were trained with, if --from states another or none: "
        "gelu (exact) or gelu_new (tanh approximation). Google's files call both gelu.",
    )
    allow_missing: str | None = rare_option(
        None,
        "Weights that --from may lack, comma-separated: names or patterns, such as "
        "'classifier.*'. They start from random values, as does a pooler that --from lacks.",
    )
    allow_extra: str | None = rare_option(
        None,
        "Weights of --from to leave out, comma-separated: names or patterns, such as "
        "'pretrainer/next_sentence/*'.",
    )
    init_vocab_mapping: str | None = option(
        None,
        "Grow the model to the extended vocabulary in --vocab_file: the .mapping.json that "
        "build_vocab --extend_vocab wrote.",
        needs=("vocab_file",),
    )
    max_position_embeddings: int | None = option(
        None,
        "Length of the longest sequence that the result takes. A smaller number keeps the "
        "first position embeddings; a larger one repeats them.",
        at_least=3,
        at_most=1_000_000,
    )
    layers: str | None = option(
        None, "The layers to keep, such as 0-5 (the first six) or 0,2,4,6,8,10."
    )
