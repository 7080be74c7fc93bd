"""Fills in every [MASK] of a text with the likeliest words.

  python -m bert_tf.fill_mask --checkpoint=run "The capital of France is [MASK]."
  python -m bert_tf.fill_mask --checkpoint=hf:google-bert/bert-base-uncased --input_file=texts.txt

--checkpoint is the output folder of run_pretraining, the SavedModel of export.encoder or a
checkpoint of another program with a masked-LM head (docs/checkpoints.md). Texts are arguments, the
lines of --input_file or of standard input, or a column of a table (.csv, .tsv, .jsonl). Several
masks in a text are filled in independently of each other. The words are tokens of the vocabulary;
one that begins with ## continues the word before it. --targets compares the words that you name:

  python -m bert_tf.fill_mask --checkpoint=run --targets=he,she "[MASK] is a nurse."

--json prints a JSON object per text:

  {"text": "...", "masks": [[{"token": "paris", "probability": 0.42}, ...], ...]}
"""

import contextlib
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_tf.inference.options import TextOptions, VocabularyOptions
from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.inference.masks import Guess, MaskFiller


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions, VocabularyOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="Output folder of run_pretraining, SavedModel of export.encoder, or a checkpoint of "
        "another program with a masked-LM head (docs/checkpoints.md)."
    )
    top_k: int | None = option(
        None,
        at_least=1,
        help="Number of words to show for each [MASK]. Default: 5, or all of --targets.",
    )
    targets: tuple = option(
        (),
        help="Words to compare: only these are shown, the likeliest first. Separate them with "
        "commas, or repeat the flag. Each must be a single token of the vocabulary, such as paris "
        "or ##ing.",
    )


def run(options: Options) -> None:
    """Prints the answers; everything else goes to standard error.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.inference.table_files import read_texts

    with contextlib.redirect_stdout(sys.stderr):
        filler = load_filler(options)
    total = without = 0
    for texts in read_texts(options.texts, options.input_file, options.text_column):
        answers = filler.fill(texts)
        for text, masks in zip(texts, answers, strict=True):
            print((_json if options.json else _lines)(text.decode("utf-8", "replace"), masks))
        sys.stdout.flush()
        total += len(texts)
        without += sum(not masks for text, masks in zip(texts, answers, strict=True) if text)
    if without:
        print(
            f"WARNING: no [MASK] in {without:,} of {total:,} texts: write it with brackets and in "
            "capital letters.",
            file=sys.stderr,
        )


def load_filler(options: Options) -> "MaskFiller":
    """Loads the model and its tokenizer.

    Raises:
        ValueError, OSError: the checkpoint cannot be used; says why.
    """
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.inference.masks import MaskFiller, target_ids
    from bert_tf.inference.models import load_model, load_tokenizer
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.weights.names import part_of

    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    if "masked_lm" not in {part_of(name) for name in checkpoint.tensors}:
        raise ValueError(
            f"{options.checkpoint} has no masked-LM head, which predicts the words: give a run of "
            "run_pretraining, or another checkpoint with such a head"
        )
    tokenizer = load_tokenizer(checkpoint, options, special_tokens_in_text=True)
    ids = tokenizer.vocab.ids  # A comma may be a token itself.
    words = [w for x in options.targets for w in ([x] if x in ids else x.split(","))]
    targets = target_ids(tokenizer, words)
    model = load_model(checkpoint, BertPretrainer, ("encoder", "projection", "masked_lm"))
    return MaskFiller(model, tokenizer, options.top_k, targets)


def _json(text: str, masks: "list[list[Guess]]") -> str:
    answers = [
        [{"token": token, "probability": float(f"{value:.6g}")} for token, value in guesses]
        for guesses in masks
    ]
    return json.dumps({"text": text, "masks": answers}, ensure_ascii=False)


def _lines(text: str, masks: "list[list[Guess]]") -> str:
    lines = [" ".join(text.splitlines())]
    for number, guesses in enumerate(masks, 1):
        label = f"[MASK] {number}: " if len(masks) > 1 else ""
        words = (f"{token} {_percent(value)}" for token, value in guesses)
        lines.append(f"  {label}{', '.join(words)}")
    return "\n".join(lines)


def _percent(value: float) -> str:
    return f"{value:.1%}" if value > 0.0005 else f"{100 * value:.2g}%"


if __name__ == "__main__":
    command.run(Options, run)
