"""Fine-tunes a pre-trained encoder on a task.

  python -m bert_tf.run_finetuning --task=sst2 --data_dir=glue/SST-2 \\
    --do_train --do_eval --do_predict --init_checkpoint=run --output_dir=sst2
  python -m bert_tf.run_finetuning --task=csv --train_file=mails.csv \\
    --do_train --do_eval --init_checkpoint=run --output_dir=spam

--init_checkpoint is a run folder of run_pretraining or a checkpoint of another program, such
as Google's or hf:ORG/NAME (docs/checkpoints.md). It provides configuration, vocabulary and casing.
Training evaluates on the dev set after every epoch and keeps the best weights in output_dir/best,
which export.classifier exports as a SavedModel. Run the same command again to resume an interrupted
run.

Without --do_train, the command evaluates the run in output_dir, or the fine-tuned model of
--init_checkpoint. --preset=tiny --vocab_file=vocab.txt trains from scratch, and --preset=bilstm a
BiLSTM in place of BERT. --num_seeds=3 and --grid make several runs in subfolders of output_dir and
compare them.

Tasks:
  cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli
                 the tasks of GLUE. The best epoch is chosen on dev.tsv, whose metrics are reported,
                 as is customary. --do_predict writes the files for GLUE's server.
  squad, squad2  answers in contexts of any length, which are read in windows of --max_seq_length
                 tokens. squad2 has unanswerable questions.
  ner            named entities and other tags of words, in CoNLL files.
  swag           which of four endings continues a situation.
  imdb           positive and negative reviews. A tenth of the training reviews is held out to
                 choose the best epoch; the test set is evaluated once, at the end.
  csv            classes, numbers or tags in your own .csv, .tsv or .jsonl files with the columns
                 text and label. --label_type and --label_column say what to predict, or that
                 the run trains vectors of texts.

Flags have the names and defaults of google-research/bert's run_classifier and run_squad, with some
differences (docs/differences.md).
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.common_options import WorkerOptions
from bert_tf.finetuning.finetuning_options import FineTuningOptions


@dataclass(frozen=True, kw_only=True)
class Options(FineTuningOptions, WorkerOptions):
    """The flags of the command."""


run = command.late("bert_tf.finetuning.sweep:fine_tune_all")

if __name__ == "__main__":
    command.run(__name__)
