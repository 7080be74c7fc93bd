"""Compresses a model: a smaller student learns from it.

  python -m bert_tf.compress --recipe=pkd6 --teacher=run-sst2 --task=sst2 \\
    --data_dir=glue/SST-2 --output_dir=run-sst2-pkd6
  python -m bert_tf.compress --recipe=distilbert --teacher=run \\
    --input_file=data --output_dir=small

With --task, the other flags are those of run_finetuning; with --input_file, of run_pretraining (see
--input_file --help), and the output is a run to fine-tune. --report=FOLDER compares all students.

Recipes (docs/recipes.md has their papers and published results):
  layers      no teacher: fine-tunes the lowest half of the layers
  distilbert  the teacher's probabilities, its last hidden states, and the labels or masked tokens
  pkd6, pkd3  the teacher's probabilities, [CLS] of every second or fourth layer, and the labels
  pd          the teacher's probabilities alone; for any --init_checkpoint
  tinybert    attention scores, hidden states and embeddings; on a task, probabilities afterwards
  mobilebert  attention and hidden states from the lowest layer up, then probabilities and labels;
              for a MobileBERT: --bert_config_file
  mixed-vocabulary
              for a student with a small vocabulary: the teacher trains, too, on the tokens of both
              vocabularies, and the weights of both models approach each other; on a task, the
              labels alone
  albert      no teacher: fine-tunes an ALBERT of your choice
  internal    attention and [CLS] from the lowest layer up, then probabilities and labels;
              internal-progressive: one layer at a time
  theseus     layers replace modules of the teacher at random, more and more often
  heads       no teacher: removes the share --sparsity of the heads, the least important ones
  weights     no teacher: sets the share --sparsity of the weights, the smallest ones, to zero
  q8bert      trains with weights and activations of 8 bits
  qbert       weights of 2 to 8 bits, more in sensitive layers: --bits=2/3
  minibert    for taggers: a quarter of the layers, and the teacher's probabilities at tagged tokens
  bilstm      a bidirectional LSTM learns the teacher's outputs
distilbert, tinybert, mobilebert and mixed-vocabulary work with --input_file, too.

The student starts with layers of the teacher: --student_layers chooses them. --init_checkpoint
names another initial encoder, and --preset or --bert_config_file with --vocab_file a random one.
The student may have a vocabulary of its own, such as a small one, with layers, weights, q8bert,
albert and mixed-vocabulary, and for classifiers also with pd, minibert and bilstm.
"""

from bert_tf.base import command
from bert_tf.compression.compression_options import (
    CompressionOptions,
    GeneralOptions,
    ReportOptions,
)

Options = CompressionOptions
run = command.late("bert_tf.compression.compressing:compress_all")
FORMS = {
    "report": (ReportOptions, command.late("bert_tf.comparison.students:report")),
    "input_file": (GeneralOptions, command.late("bert_tf.compression.compressing:distill")),
}

if __name__ == "__main__":
    command.run(__name__)
