"""Pre-trains an encoder on the examples that create_pretraining_data wrote.

  python -m bert_tf.run_pretraining --input_file='train.tf*' --preset=tiny \\
    --do_train --do_eval --num_train_steps=20000 --num_warmup_steps=1000 \\
    --learning_rate=1e-3 --output_dir=run

The manifest beside the records provides vocabulary, casing, lengths and objective. --preset or
--bert_config_file sets the size of the encoder. --strategy chooses where to train: on the CPU, all
GPUs of the machine, several machines, or a TPU. Run the same command again to resume an interrupted
run exactly where it stopped.

Without --eval_input_file, one record in a hundred is held out of training for evaluation. For
records of other programs, give --vocab_file, --max_seq_length and --max_predictions_per_seq. Flags
and defaults are those of google-research/bert's script of the same name.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.common_options import WorkerOptions
from bert_tf.pretraining.pretraining_options import PretrainingOptions


@dataclass(frozen=True, kw_only=True)
class Options(PretrainingOptions, WorkerOptions):
    """The flags of the command."""


run = command.late("bert_tf.pretraining.pretrain:pretrain")

if __name__ == "__main__":
    command.run(__name__)
