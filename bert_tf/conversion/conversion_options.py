"""The flags of convert_checkpoint."""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True, kw_only=True)
class ConversionOptions(command.Options):
    """See the help of each flag."""

    from_: str = option(
        help="The checkpoint to convert: a path, or a name to download that begins with hf:, "
        "keras: or tfhub:."
    )
    to: str = option(
        choices=("google", "huggingface", "kerashub", "run"),
        help="The format to write. run is a run folder, as run_pretraining writes it.",
    )
    output_dir: str = option(help="Folder to write; must be new or empty.")
    bert_config_file: str | None = option(
        None,
        help="The encoder's bert_config.json. Needed only if --from comes without one.",
        rare=True,
    )
    vocab_file: str | None = option(
        None,
        help="The encoder's vocabulary. Needed only if --from comes without one, or with "
        "--init_vocab_mapping.",
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether the text is lower-cased. Needed only if --from does not state it.",
        rare=True,
    )
    hidden_act: str | None = option(
        None,
        help="The activation that the weights were trained with, if --from states another or none: "
        "gelu (exact) or gelu_new (tanh approximation). Google's files call both gelu.",
        rare=True,
    )
    allow_missing: str | None = option(
        None,
        help="Weights that --from may lack; they start from random values. Comma-separated names "
        "or patterns, such as 'encoder/pooler/*'.",
        rare=True,
    )
    allow_extra: str | None = option(
        None,
        help="Weights of --from to leave out. Comma-separated names or patterns, such as "
        "'pretrainer/next_sentence/*'.",
        rare=True,
    )
    init_vocab_mapping: str | None = option(
        None,
        help="The .mapping.json that build_vocab --extend_vocab wrote. It determines how the "
        "tables with one row per token grow; --vocab_file is the extended vocabulary.",
    )
    max_position_embeddings: int | None = option(
        None,
        at_least=3,
        at_most=1_000_000,
        help="Length of the longest sequence that the result takes. A smaller number keeps the "
        "first position embeddings; a larger one repeats them.",
    )
    layers: str | None = option(
        None, help="The layers to keep, such as 0-5 (the first six) or 0,2,4,6,8,10."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init_vocab_mapping and not self.vocab_file:
            raise ValueError("--init_vocab_mapping needs --vocab_file, the extended vocabulary")
