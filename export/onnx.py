"""Exports an encoder, classifier, tagger or embedder as an ONNX model.

  python -m export.onnx --checkpoint=run-sst2 --output_file=sst2.onnx

--checkpoint is a run folder of run_finetuning, whose best weights become a model from token
ids to probabilities or vectors; a sentence-transformers folder; or a run folder of
run_pretraining, or a checkpoint of another program, whose encoder is exported.

The inputs, int64 [batch, sequence], are input_ids, attention_mask and token_type_ids, the names
that other programs expect. The model does not tokenize text. Its metadata has
vocab.txt, tokenizer_config.json, classifier.json and labels.txt. In Python, predict does the
tokenization:

  python -m bert_tf.predict --checkpoint=sst2.onnx "a moving film"

The command also runs the model and prints how much its outputs differ from the original's.
--evaluate measures both on the dev set of the fine-tuning run.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.inference.inference_options import ONNX
from export.export_options import SingleFileOptions


@dataclass(frozen=True, kw_only=True)
class Options(SingleFileOptions):
    """The flags of the command."""

    ending = ONNX

    quantize: str = option(
        "none",
        "How to store the weights. int8 quarters the file, computes with 8 bits and changes the "
        "outputs a little.",
        choices=("none", "int8"),
    )


run = command.late("export.portable:export_file")

if __name__ == "__main__":
    command.run(__name__)
