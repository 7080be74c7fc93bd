"""Fills in every [MASK] of a text with the likeliest words.

  python -m bert_tf.fill_mask --checkpoint=run "The capital is [MASK]."
  python -m bert_tf.fill_mask --checkpoint=hf:google-bert/bert-base-uncased \\
    --input_file=texts.txt

--checkpoint is a run folder of run_pretraining, the SavedModel of export.encoder or a
checkpoint of another program with a masked-LM head (docs/checkpoints.md). Texts are arguments, the
lines of --input_file or of standard input, or a column of a table (.csv, .tsv, .jsonl). Several
masks in a text are filled in independently of each other. The words are tokens of the vocabulary;
one that begins with ## continues the word before it.

--targets compares the words that you name:

  python -m bert_tf.fill_mask --checkpoint=run --targets=he,she "[MASK] reads."

--json prints a JSON object per text:

  {"text": "...", "masks": [[{"token": "paris", "probability": 0.42}, ...], ...]}
"""

from bert_tf.base import command
from bert_tf.inference.inference_options import FillMaskOptions

Options = FillMaskOptions
run = command.late("bert_tf.inference.masks:fill_mask")

if __name__ == "__main__":
    command.run(__name__)
