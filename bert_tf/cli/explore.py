"""Makes a page to explore what a model does with a text.

  python -m bert_tf.explore --checkpoint=run --output_file=page.html "a [MASK]"
  python -m bert_tf.explore --checkpoint=run --serve

The page shows one text, or two side by side: the answer of a fine-tuned model, the tokens, the
likeliest words for every [MASK] and for a token that you click, and what each token attends to in
every layer and head. Write a pair of texts as "a ||| b": the page then shows the probability that b
follows a. The page is one file that needs no network. With --serve, it is at a local address
instead, takes new texts, and suggests some from the data of the run.

--checkpoint is any run folder or checkpoint of another program (docs/checkpoints.md). The words
need a masked-LM head, and the probability of a pair needs a next-sentence head.
"""

from bert_tf.base import command
from bert_tf.inference.inference_options import ExplorerOptions

Options = ExplorerOptions
run = command.late("bert_tf.inference.explorer.server:explore")

if __name__ == "__main__":
    command.run(__name__)
