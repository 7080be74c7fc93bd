"""Converts a BERT checkpoint from any common format to any other.

  python -m bert_tf.convert_checkpoint --from=uncased_L-12_H-768_A-12.zip \\
    --to=run --output_dir=run
  python -m bert_tf.convert_checkpoint --from=run --to=huggingface \\
    --output_dir=my-bert

--from takes
- a Google checkpoint: bert_model.ckpt, its folder, or the published .zip or .tar.gz
- a Hugging Face folder with model.safetensors, or hf:ORG/NAME to download one
- a KerasHub preset folder, or keras:PRESET to download one
- an encoder SavedModel of TF Hub, the Model Garden or export.encoder, or tfhub:URL to download one
- a training checkpoint of the Model Garden
- a run folder of run_pretraining or run_finetuning, or a checkpoint in one

The format is detected. Every weight is accounted for: if weights are missing, unknown or of another
shape, the command lists them and writes nothing. Configuration, vocabulary and casing are converted
as well. docs/checkpoints.md describes each format.

All commands that take a checkpoint accept what --from does, so convert it for other programs, or to
change the model: a larger vocabulary (--init_vocab_mapping), other positions
(--max_position_embeddings) or fewer layers (--layers).
"""

from bert_tf.base import command
from bert_tf.conversion.conversion_options import ConversionOptions

Options = ConversionOptions
run = command.late("bert_tf.conversion.converting:convert")

if __name__ == "__main__":
    command.run(__name__)
