"""Makes a page to explore what a model does with a text.

  python -m bert_tf.explore --checkpoint=run --output_file=page.html "The cat [MASK] on the mat."
  python -m bert_tf.explore --checkpoint=run --serve

The page shows the tokens of each text, the likeliest words for every [MASK], and what each token
attends to in every layer and head; of several texts, two side by side. Write a pair of texts as
"a ||| b". The page is one file, which needs no network. With --serve, it is at a local address
instead, and takes new texts from you.

--checkpoint is any run folder or checkpoint of another program (docs/checkpoints.md). Without a
masked-LM head, there are no words for [MASK].
"""

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_tf.choices import PAIR_LENGTH
from bert_tf.inference.options import VocabularyOptions
from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.inference.explorer.exploring import Explorer


@dataclass(frozen=True, kw_only=True)
class Options(VocabularyOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="A run folder, or a checkpoint of another program (docs/checkpoints.md)."
    )
    texts: tuple = option(
        (),
        help="A text; may be repeated, and the name of the flag may be left out. Write a pair as "
        '"a ||| b".',
        positional=True,
        aliases=("text",),
    )
    output_file: str | None = option(None, help="The page to write, such as page.html.")
    serve: bool = option(
        False,
        help="Show the page at a local address, and take new texts there. It listens on 127.0.0.1, "
        "so only programs on this machine reach it.",
    )
    port: int = option(
        8000, at_least=0, at_most=65535, help="Where --serve listens; 0 for any free port."
    )
    top_k: int = option(5, at_least=1, help="How many words to show for each [MASK].")
    max_seq_length: int | None = option(
        None,
        **PAIR_LENGTH,
        help="Tokens per text; longer texts are truncated, and the page says so. Default: 64, or "
        "the most that the model takes.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.output_file) == self.serve:
            raise ValueError("give either --output_file or --serve")
        if self.output_file and not self.texts:
            raise ValueError("--output_file needs a text, such as --text='The cat [MASK] here.'")


def run(options: Options) -> None:
    """Writes the page, or serves it until Ctrl-C.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.inference.explorer.page import page_of
    from bert_tf.inference.explorer.server import PageServer
    from tfrecords.writer import atomic_write

    explorer = load_explorer(options)
    # Arguments that are not UTF-8 arrive with surrogates.
    texts = [text.encode("utf-8", "surrogateescape") for text in options.texts]
    explorations = [explorer.explore(text) for text in texts]
    name = os.path.basename(os.path.abspath(options.checkpoint))
    page = page_of(explorations, name, explorer.max_seq_length, live=options.serve)
    if not options.serve:
        atomic_write(options.output_file, page)
        print(f"Wrote {options.output_file}: open it in a browser.")
    else:
        with PageServer(options.port, page, explorer.explore) as server:
            print(f"Open {server.url} in a browser, and end with Ctrl-C.", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
    if truncated := sum(exploration["truncated"] for exploration in explorations):
        print(
            f"WARNING: truncated {truncated:,} of {len(texts):,} texts to "
            f"{explorer.max_seq_length} tokens: --max_seq_length may be up to "
            f"{explorer.most_tokens}.",
            file=sys.stderr,
        )


def load_explorer(options: Options) -> "Explorer":
    """Loads the model and its tokenizer.

    Raises:
        ValueError, OSError: the checkpoint cannot be used; says why.
    """
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.inference.explorer.exploring import Explorer
    from bert_tf.inference.models import load_model, load_tokenizer
    from bert_tf.models.encoder import BertEncoder
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.resolution import check_length
    from bert_tf.weights.names import part_of

    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    length = options.max_seq_length or min(64, checkpoint.spec.config.max_position_embeddings)
    check_length(checkpoint.spec.config, length)
    tokenizer = load_tokenizer(checkpoint, options, special_tokens_in_text=True)
    head = "masked_lm" in {part_of(name) for name in checkpoint.tensors}
    parts = ["encoder", "projection", *["masked_lm"] * head]
    model = load_model(checkpoint, BertPretrainer if head else BertEncoder, parts)
    return Explorer(model, tokenizer, length, options.top_k)


if __name__ == "__main__":
    command.run(Options, run)
