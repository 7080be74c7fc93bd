"""Exports an encoder or a classifier as a LiteRT model, for small devices.

  python -m export.lite --checkpoint=run-sst2 --output_file=sst2.tflite --quantize=int8

--checkpoint is the output folder of run_finetuning, whose best weights become a model from token
ids to probabilities; or the output folder of run_pretraining, or a checkpoint of another program,
whose encoder is exported.

The model takes one example at a time, int32 [1, max_seq_length]: input_word_ids, input_mask and
input_type_ids. What turns text into them is not part of it. Its file is also a zip archive of
vocab.txt, tokenizer_config.json, classifier.json and labels.txt, for tokenization on the device
(docs/exports.md). In Python, predict does the tokenization:

  unzip sst2.tflite
  python -m bert_tf.predict --checkpoint=sst2.tflite "a moving film"

The command also runs the model and prints how much its outputs differ from the original's.
--evaluate measures both on the dev set of the fine-tuning run.
"""

from dataclasses import dataclass

from bert_tf.choices import SINGLE_LENGTH
from bert_tf.inference.inference_options import LITE
from tfrecords import command
from tfrecords.command import option, rare_option


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    checkpoint: str = option(
        help="Output folder of run_finetuning or run_pretraining, or a checkpoint of another "
        "program (docs/checkpoints.md)."
    )
    output_file: str = option(help="The file to write; must be new, and end in .tflite.")
    quantize: str = option(
        "none",
        "How to store the weights. float16 halves the file. int8 quarters it, computes with "
        "8 bits and changes the outputs a little.",
        choices=("none", "float16", "int8"),
    )
    max_seq_length: int | None = option(
        None,
        "Tokens per example; shorter examples are padded and take as long. Default: as in a "
        "fine-tuning run; otherwise 128, or the most that the model takes.",
        **SINGLE_LENGTH,
    )
    evaluate: bool = option(
        False,
        "Measure the metrics of the new model and of the original on the dev set of the "
        "fine-tuning run. The data must still be where the run found it.",
    )
    pairs: bool = rare_option(
        False, "A model of another program classifies pairs of texts. The task of a run states it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file.endswith(LITE):
            raise ValueError(f"--output_file={self.output_file} must end in {LITE}")


run = command.late("export.lite_model:export")

if __name__ == "__main__":
    command.run(__name__)
