"""Writes the contextual vectors of text: one per token, word or line.

  python -m bert_tf.extract_features --checkpoint=run --input_file=text.txt \\
    --output_file=vectors.npz

The input has a text or a pair, "a ||| b", on every line, or is a table (.csv, .jsonl, ...) with a
text or a pair in every row. --checkpoint is a run folder or a checkpoint of another program
(docs/checkpoints.md).

--output_file ends with

  .npz       compact arrays: values [vectors, layers, hidden_size], row_splits [lines + 1],
             starts and limits (bytes in the line), ids (of tokens), layers; line i has the
             vectors row_splits[i] to row_splits[i + 1]
  .parquet   a table with a row per vector: line, text, start, limit, and a list of numbers for
             each layer
  .tfrecord  compact records, one per line, with the names of .npz
  .jsonl     the JSON lines of google-research/bert, 2.6 times as large as float32 arrays
  .tsv       tab-separated values of one layer, such as --layers=-1, and beside them the files that
             TensorBoard's embedding projector needs: tensorboard --logdir=FOLDER

Flags have the names and defaults of google-research/bert's extract_features.
"""

from bert_tf.base import command
from bert_tf.inference.inference_options import ExtractionOptions

Options = ExtractionOptions
run = command.late("bert_tf.inference.extraction:extract_features")

if __name__ == "__main__":
    command.run(__name__)
