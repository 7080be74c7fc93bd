"""Compares the speed of fine-tuning on SST-2 and of prediction: bert_tf and Hugging Face.

  python -m venv hf && hf/bin/pip install transformers accelerate torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/finetuning.py --data_dir=SST-2 --model=my-bert --huggingface=hf/bin/python

All start from the same weights, --model, a BERT in Hugging Face's format, and process the same
--examples of train.tsv again and again, in batches of --batch_size. They are tokenized beforehand.

  bert_tf                what run_finetuning does: random batches, whose padding is skipped
  bert_tf, padded        the same batches, padded to the longest example, whose padding is computed
  Hugging Face           transformers' Trainer with dynamic padding, AdamW, and automatic mixed
                         precision if the precision is bfloat16

Each contender is a process of its own, and they take turns; see turns.py. In each round, a ratio
is the speed of bert_tf divided by that of the contender. The table shows the median ratios.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable

from turns import Process, argument_parser, serve, take_turns

# A function that processes all examples a number of times, and a description.
Contender = tuple[Callable[[int], float], str]
OURS, PADDED, HUGGING_FACE = "bert_tf", "bert_tf, padded", "Hugging Face"
# More than any benchmark takes.
_EPOCHS = 500


def main() -> None:
    """Compares all contenders, or with --serve runs one."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data_dir", help="Folder of SST-2's train.tsv")
    parser.add_argument("--model", help="BERT in Hugging Face's format")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument(
        "--work", nargs="+", choices=("train", "predict"), default=["train", "predict"]
    )
    parser.add_argument("--examples", type=int, default=640)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    options = parser.parse_args()
    if options.serve:
        serve(lambda: CONTENDERS[options.serve](argparse.Namespace(**options.sizes)))
        return
    if not (options.data_dir and options.model):
        parser.error("give --data_dir and --model")
    if options.examples % options.batch_size:
        parser.error("--examples must be a multiple of --batch_size")
    with tempfile.TemporaryDirectory() as folder:
        for work in options.work:
            _compare(options, work, pathlib.Path(folder))


def _compare(options: argparse.Namespace, work: str, folder: pathlib.Path) -> None:
    names = "data_dir", "model", "examples", "batch_size", "precision", "seq_length"
    sizes = {name: getattr(options, name) for name in names} | {"work": work, "folder": str(folder)}
    pythons = {HUGGING_FACE: options.huggingface}
    processes = {
        name: Process(__file__, name, pythons.get(name, sys.executable), sizes, folder)
        for name in options.contenders
    }
    rounds = take_turns(processes, options.rounds)
    print(
        f"\n{work}, {options.precision}: {options.examples} examples, batch {options.batch_size}, "
        f"at most {options.seq_length} tokens, {options.rounds} rounds\n"
    )
    print("| | examples per second | bert_tf is faster by a factor of (min, max) |")
    print("|---|---|---|")
    for name, process in processes.items():
        print(f"| {name} | {process.failure or _figures(name, rounds, options.examples)} |")
    for name, process in processes.items():
        if not process.failure:
            print(f"\n{name}: {process.description}")


def _figures(name: str, rounds: list[dict[str, float]], examples: int) -> str:
    """Returns the cells of a row."""
    rate = examples / statistics.median(times[name] for times in rounds)
    ratios = [times[name] / times[OURS] for times in rounds if times.get(OURS)]
    if name == OURS or not ratios:
        return f"{rate:.4g} | "
    factors = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})"
    return f"{rate:.4g} | {factors}"


def _bert_tf(sizes: argparse.Namespace, skips_padding: bool = True) -> Contender:
    from tfrecords import command

    command.import_tensorflow()
    import keras
    import numpy as np
    import tensorflow as tf

    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.finetuning.batches import eval_batches, train_batches
    from bert_tf.finetuning.fine_tuner import FineTuner, Training
    from bert_tf.finetuning.finetuning_options import FineTuningOptions
    from bert_tf.finetuning.registry import TASKS
    from bert_tf.finetuning.task import TRAIN, DataFiles
    from bert_tf.runs.run import Run
    from bert_tf.session import Session
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.training.strategy import make_strategy, set_precision

    set_precision(sizes.precision)
    task, init = TASKS["sst2"], open_checkpoint(sizes.model)
    options = FineTuningOptions(
        task="sst2",
        strategy="cpu",
        output_dir=f"{sizes.folder}/run",
        do_train=True,
        train_batch_size=sizes.batch_size,
        eval_batch_size=sizes.batch_size,
        num_train_epochs=_EPOCHS,
        max_seq_length=sizes.seq_length,
    )
    tokenizer = WordPieceTokenizer(init.spec.vocab, init.spec.lower_case is not False)
    examples = task.read_splits([TRAIN], DataFiles(sizes.data_dir), 0)[TRAIN]
    features = task.featurize(examples.take(np.arange(sizes.examples)), tokenizer, sizes.seq_length)
    session = Session(options, make_strategy(options), Run(options.output_dir), init)
    tuner = FineTuner(session, Training(task), init.spec.config, {TRAIN: features})
    tuner.set_weights()
    tuner.model.encoder.skips_padding = skips_padding
    trainer, steps = tuner.trainer, sizes.examples // sizes.batch_size
    iterator = iter(train_batches(features, sizes.batch_size, range(steps * _EPOCHS), 0))

    def train(epochs: int) -> float:
        trainer.restart_means()
        trainer.train(iterator, steps * epochs)
        return trainer.training_means()["loss"]

    def predict(epochs: int) -> float:
        for _ in range(epochs):
            outputs = trainer.predict(eval_batches(features, sizes.batch_size))
        return float(outputs["logits"].mean())

    versions = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    return (train if sizes.work == "train" else predict), f"{versions}, {_result(sizes)}"


def _huggingface(sizes: argparse.Namespace) -> Contender:
    import torch
    import transformers

    with open(f"{sizes.data_dir}/train.tsv", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1 : sizes.examples + 1]
    tokenizer = transformers.BertTokenizerFast.from_pretrained(sizes.model)
    encoded = tokenizer([text for text, _ in rows], truncation=True, max_length=sizes.seq_length)
    data = [
        {name: values[i] for name, values in encoded.items()} | {"labels": int(rows[i][1])}
        for i in range(len(rows))
    ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(sizes.model)

    def trainer(epochs: int) -> transformers.Trainer:
        arguments = transformers.TrainingArguments(
            f"{sizes.folder}/trainer",
            num_train_epochs=epochs,
            per_device_train_batch_size=sizes.batch_size,
            per_device_eval_batch_size=sizes.batch_size,
            bf16=sizes.precision == "bfloat16",
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        collator = transformers.DataCollatorWithPadding(tokenizer)
        return transformers.Trainer(model, arguments, data_collator=collator, train_dataset=data)

    def train(epochs: int) -> float:
        return trainer(epochs).train().training_loss

    predictor = trainer(1)

    def predict(epochs: int) -> float:
        for _ in range(epochs):
            outputs = predictor.predict(data)
        return float(outputs.predictions.mean())

    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    return (train if sizes.work == "train" else predict), f"{versions}, {_result(sizes)}"


def _result(sizes: argparse.Namespace) -> str:
    """Returns what the number is that `serve` adds to the description."""
    return "loss" if sizes.work == "train" else "mean logit"


CONTENDERS: dict[str, Callable[[argparse.Namespace], Contender]] = {
    OURS: _bert_tf,
    PADDED: lambda sizes: _bert_tf(sizes, skips_padding=False),
    HUGGING_FACE: _huggingface,
}


if __name__ == "__main__":
    main()
