"""Applies a fine-tuned model to text: labels, numbers, answers or tags.

  python -m bert_tf.predict --checkpoint=sst2 "a moving film" "so dull"
  python -m bert_tf.predict --checkpoint=mrpc "A sentence. ||| Another one."
  python -m bert_tf.predict --checkpoint=squad --input_file=a.jsonl --json

--checkpoint is a run folder of run_finetuning, a fine-tuned model of another program
(docs/checkpoints.md), or what export.classifier, export.lite or export.onnx wrote. Examples are
arguments, or the lines of --input_file or of standard input. Separate the two texts of a pair, or a
question and its context, with a tab or " ||| ". An --input_file named .csv, .tsv or .jsonl is read
as run_finetuning reads tables; its columns are those of the run, or the inputs of the model:
{"text": "..."}, {"text": "...", "text_b": "..."} or {"question": "...", "context": "..."}. --json
prints such objects with the prediction added, and with the "id" if there is one. --output_file
writes them for files of any size, on several processes or machines; a killed run resumes.
"""

from bert_tf.base import command
from bert_tf.inference.inference_options import PredictOptions

Options = PredictOptions
run = command.late("bert_tf.inference.predicting:predict")

if __name__ == "__main__":
    command.run(__name__)
