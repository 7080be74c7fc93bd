"""Exports an encoder, classifier, tagger or embedder as a LiteRT model.

  python -m export.lite --checkpoint=run --output_file=a.tflite --quantize=int8

--checkpoint is a run folder of run_finetuning, whose best weights become a model from token
ids to probabilities or vectors; a sentence-transformers folder; or a run folder of
run_pretraining, or a checkpoint of another program, whose encoder is exported.

The model takes one example at a time, int32 [1, max_seq_length]: input_word_ids, input_mask and
input_type_ids. It does not tokenize text. Its file is also a zip archive of
vocab.txt, tokenizer_config.json, classifier.json and labels.txt, for tokenization on the device
(docs/lite_onnx.md). In Python, predict does the tokenization:

  unzip sst2.tflite
  python -m bert_tf.predict --checkpoint=sst2.tflite "a moving film"

The command also runs the model and prints how much its outputs differ from the original's.
--evaluate measures both on the dev set of the fine-tuning run.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.inference.inference_options import LITE
from export.export_options import SingleFileOptions


@dataclass(frozen=True, kw_only=True)
class Options(SingleFileOptions):
    """The flags of the command."""

    ending = LITE

    quantize: str = option(
        "none",
        "How to store the weights. float16 halves the file. int8 quarters it, computes with "
        "8 bits and changes the outputs a little.",
        choices=("none", "float16", "int8"),
    )


run = command.late("export.portable:export_file")

if __name__ == "__main__":
    command.run(__name__)
