"""Makes a page to explore what a model does with a text.

  python -m bert_tf.explore --checkpoint=run --output_file=page.html "a [MASK]"
  python -m bert_tf.explore --checkpoint=run

The page shows one text, or two side by side, and of each what the model has: the answer of a
fine-tuned one and the words that moved it; the likeliest words for every [MASK] and for a token
that you click; the probability that b follows a, for a pair "a ||| b"; the cosine similarity of the
two texts; and what each token attends to in every layer and head. Without texts, the page shows
examples from the data of the run, or of the kind that the model takes. It is one file that needs no
network. Without --output_file, it is at a local address instead, and takes new texts.

--checkpoint is any run folder or checkpoint of another program (docs/checkpoints.md).
"""

from bert_tf.base import command
from bert_tf.inference.inference_options import ExplorerOptions

Options = ExplorerOptions
run = command.late("bert_tf.inference.explorer.server:explore")

if __name__ == "__main__":
    command.run(__name__)
