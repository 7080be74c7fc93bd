"""Creates masked-LM and sentence-pair examples for run_pretraining.

  python -m bert_tf.create_pretraining_data --input_file='corpus/*.txt' \\
    --output_file=data/train.tfrecord --num_shards=8 --vocab_file=vocab.txt

The input is text with one sentence per line and a blank line between documents (the end of a file
also ends its document), or with one paragraph per line and --split_sentences. For books and mail
whose paragraphs are broken into lines of a fixed width, use --unwrap. The input can also be JSON
lines (*.jsonl) with a text field, or a TFDS dataset. Files may be compressed with gzip, bzip2, xz
or zstd. The same command, run again after a failure or a kill, creates only what is missing.

Sentences are collected into pairs [CLS] A [SEP] B [SEP]. Half the time, and more often if documents
are short, B does not follow A but comes from another document. About 15% of the tokens are chosen
for prediction. The output holds dupe_factor passes over the text, each with different pairs and
masks. A manifest beside the TFRecord files records the inputs, the settings and the vocabulary.

The same input, flags and seed give the same files, byte for byte, with any number of workers.
--dry_run estimates the time and the disk space. docs/data.md explains all options with examples.

Flags, defaults and the record format are those of google-research/bert's script of the same name,
but memory use does not grow with the input.
"""

from bert_tf.base import command
from bert_tf.examples.creation_options import DataOptions

Options = DataOptions
run = command.late("bert_tf.examples.creation:create_pretraining_data")

if __name__ == "__main__":
    command.run(__name__)
