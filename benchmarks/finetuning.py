"""Compares the speed of fine-tuning on SST-2 and of prediction: bert_tf and Hugging Face.

  python -m venv hf && hf/bin/pip install transformers accelerate torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/finetuning.py --data_dir=SST-2 --model=my-bert --huggingface=hf/bin/python

All start from the same weights, --model, a BERT in Hugging Face's format, and process the same 640
examples of train.tsv again and again, in batches of 32. They are tokenized beforehand.

  bert_tf                what run_finetuning does: random batches, whose padding is skipped
  bert_tf, padded        the same batches, padded to the longest example, whose padding is computed
  Hugging Face           transformers' Trainer with dynamic padding, AdamW, and automatic mixed
                         precision if the precision is bfloat16

Each contender is a process of its own, and they take turns; see turns.py. In each round, a ratio
is the speed of bert_tf divided by that of the contender. The table shows the median ratios.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable

from turns import HUGGING_FACE, Contender, argument_parser, compare, parse, times_as_fast, versions

OURS, PADDED = "bert_tf", "bert_tf, padded"
EXAMPLES, BATCH_SIZE, LENGTH = 640, 32, 128
# More than any benchmark takes.
_EPOCHS = 500


def main() -> None:
    """Compares all contenders."""
    parser = argument_parser(__doc__, 6, "huggingface")
    parser.add_argument("--data_dir", required=True, help="Folder of SST-2's train.tsv")
    parser.add_argument("--model", required=True, help="BERT in Hugging Face's format")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    options = parse(parser, lambda name, options: CONTENDERS[name](options))

    def cells(name: str, rounds: list[dict]) -> list[str]:
        rate = EXAMPLES / statistics.median(times[name] for times in rounds)
        return [f"{rate:.4g}", times_as_fast(OURS, name, rounds)]

    with tempfile.TemporaryDirectory() as folder:
        for work in ("train", "predict"):
            compare(
                options,
                options.contenders,
                {"work": work, "folder": folder},
                f"{work}, {options.precision}: {EXAMPLES} examples, batch {BATCH_SIZE}, at most "
                f"{LENGTH} tokens",
                ["examples per second", "bert_tf is faster by a factor of (min, max)"],
                cells,
            )


def _bert_tf(options: argparse.Namespace, skips_padding: bool = True) -> Contender:
    from bert_tf.base import command

    command.import_tensorflow()
    import numpy as np

    from bert_tf.finetuning.batches import eval_batches, train_batches
    from bert_tf.finetuning.finetuning_options import FineTuningOptions
    from bert_tf.finetuning.registry import TASKS
    from bert_tf.finetuning.task import TRAIN, DataFiles
    from bert_tf.finetuning.task_learner import TaskLearner, make_training
    from bert_tf.runs.run import Run
    from bert_tf.sessions.session import Session
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.training.strategy import make_strategy, set_precision
    from bert_tf.weights.opening import open_checkpoint

    set_precision(options.precision)
    task, init = TASKS["sst2"], open_checkpoint(options.model)
    flags = FineTuningOptions(
        task="sst2",
        strategy="cpu",
        output_dir=f"{options.folder}/run",
        do_train=True,
        train_batch_size=BATCH_SIZE,
        eval_batch_size=BATCH_SIZE,
        num_train_epochs=_EPOCHS,
        max_seq_length=LENGTH,
    )
    tokenizer = WordPieceTokenizer(init.spec.vocab, init.spec.lower_case is not False)
    examples = task.read_splits([TRAIN], DataFiles(options.data_dir))[TRAIN]
    examples = examples.take(np.arange(EXAMPLES))
    features = task.featurize(examples, tokenizer, LENGTH)
    session = Session(flags, make_strategy(flags), Run(flags.output_dir), init)
    training = make_training(session, TaskLearner(task), init.spec, features)
    training.set_weights()
    training.model.encoder.skips_padding = skips_padding
    trainer, steps = training.trainer, EXAMPLES // BATCH_SIZE
    iterator = iter(train_batches(features, BATCH_SIZE, range(steps * _EPOCHS), 0))

    def train(epochs: int) -> float:
        trainer.restart_means()
        trainer.train(iterator, steps * epochs)
        return trainer.training_means()["loss"]

    def predict(epochs: int) -> float:
        for _ in range(epochs):
            outputs = trainer.predict(eval_batches(features, BATCH_SIZE))
        return float(outputs["logits"].mean())

    return _working(options, train, predict, "tensorflow", "keras")


def _huggingface(options: argparse.Namespace) -> Contender:
    import transformers

    with open(f"{options.data_dir}/train.tsv", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1 : EXAMPLES + 1]
    tokenizer = transformers.BertTokenizerFast.from_pretrained(options.model)
    encoded = tokenizer([text for text, _ in rows], truncation=True, max_length=LENGTH)
    data = [
        {name: values[i] for name, values in encoded.items()} | {"labels": int(rows[i][1])}
        for i in range(len(rows))
    ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(options.model)

    def trainer(epochs: int) -> transformers.Trainer:
        arguments = transformers.TrainingArguments(
            f"{options.folder}/trainer",
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH_SIZE,
            per_device_eval_batch_size=BATCH_SIZE,
            bf16=options.precision == "bfloat16",
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

    return _working(options, train, predict, "transformers", "torch")


def _working(
    options: argparse.Namespace, train: Callable, predict: Callable, *packages: str
) -> Contender:
    """Returns the function for the work, and a description."""
    trains = options.work == "train"
    result = "loss" if trains else "mean logit"
    return (train if trains else predict), f"{versions(*packages)}, {result}"


CONTENDERS: dict[str, Callable[[argparse.Namespace], Contender]] = {
    OURS: _bert_tf,
    PADDED: lambda options: _bert_tf(options, skips_padding=False),
    HUGGING_FACE: _huggingface,
}


if __name__ == "__main__":
    main()
