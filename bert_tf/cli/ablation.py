"""Pre-trains and fine-tunes the rows of an ablation, beside the paper's.

  python -m bert_tf.ablation --grid=sizes --input_file='data/train.tfrecord-*' \\
    --tasks=mrpc,sst2 --data_dir=glue --num_train_steps=20000 \\
    --num_warmup_steps=1000 --learning_rate=1e-3 --output_dir=ablation

Each row is an ordinary run of run_pretraining and, for each task, of run_finetuning. Run the same
command again to resume: finished runs are kept. The table shows the rows beside those of the paper.

Grids (docs/ablations.md has their rows and the paper's results):
  sizes     layers, width and heads (table 6 of the BERT paper): --rows=L-2_H-128_A-2,... or
            --rows=paper. By default, small models that mirror the paper's rows.
  tasks     masked LM with and without next sentences, and left to right (table 5)
  steps     accuracy after more and more pre-training steps, masked and left to right (figure 5)
  masking   what replaces the tokens to predict: [MASK], the token, a random one (table 8)
  rates     which share of the tokens is masked in training; all rows are tested at 15%
  layers    which outputs of one frozen encoder, --init_checkpoint, a tagger reads (table 7)
  entities  masking of single tokens or of whole phrases, as in ERNIE: how many held-out phrases of
            --lexicon_file are predicted as a whole

layers needs neither records nor a size. All others but sizes take the size from --preset or
--bert_config_file, and need records created with --masking=dynamic, for entities also with the same
--lexicon_file. The other flags are those of run_pretraining.
"""

from bert_tf.ablations.ablation_options import AblationOptions
from bert_tf.base import command

Options = AblationOptions
run = command.late("bert_tf.ablations.running:run_ablation")

if __name__ == "__main__":
    command.run(__name__)
