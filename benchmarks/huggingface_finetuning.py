"""Fine-tunes with Hugging Face's Trainer on the same files as run_finetuning, to compare quality.

  python -m venv hf && hf/bin/pip install 'transformers<5' accelerate seqeval scikit-learn torch \\
    --extra-index-url https://download.pytorch.org/whl/cpu
  hf/bin/python benchmarks/huggingface_finetuning.py --task=mrpc --data_dir=glue/MRPC \\
    --model=my-bert --seeds 12345 12346 12347
  python -m bert_tf.run_finetuning --task=mrpc --data_dir=glue/MRPC --init_checkpoint=my-bert \\
    --num_seeds=3 --do_train --do_eval --output_dir=mrpc

Both use AdamW with bias correction, weight decay 0.01 except for biases and layer normalization,
the original BERT's warm-up over a tenth of the steps and linear decay, clipping at norm 1 and
dropout 0.1; both train on random batches, evaluate after every epoch and report the best one. The
script prints one line of JSON per seed.

  mrpc, rte  BertForSequenceClassification; F1 and accuracy, and accuracy
  ner        BertForTokenClassification, sentence by sentence as with --nodocument_context; seqeval
  squad      BertForQuestionAnswering, with the windows, answers and scores of transformers' own
             processors.squad and squad_metrics, which version 5 no longer has
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertTokenizerFast,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from turns import argument_parser

# Column of text A, of text B and of the label, and the labels.
PAIRS = {
    "mrpc": ("#1 String", "#2 String", "Quality", ("0", "1")),
    "rte": ("sentence1", "sentence2", "label", ("entailment", "not_entailment")),
}
IGNORED = -100


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--model", required=True, help="Folder of a BERT in Hugging Face's format")
    parser.add_argument("--seeds", type=int, nargs="+", default=[12345])
    parser.add_argument("--train_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--doc_stride", type=int, default=128)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    tokenizer = BertTokenizerFast.from_pretrained(options.model)
    task = TASKS[options.task](options, tokenizer)
    for seed in options.seeds:
        print(json.dumps({"seed": seed} | _fine_tune(options, task, tokenizer, seed)), flush=True)


def _fine_tune(
    options: argparse.Namespace, task, tokenizer: BertTokenizerFast, seed: int
) -> dict[str, float]:
    """Returns the metrics of the best epoch and the seconds of training without evaluation.

    `task` holds `train` and `dev`, lists of dicts of lists.
    """
    set_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=options.train_batch_size,
            per_device_eval_batch_size=32,
            learning_rate=options.learning_rate,
            num_train_epochs=options.num_train_epochs,
            weight_decay=0.01,
            adam_epsilon=1e-6,
            seed=seed,
            bf16=options.precision == "bfloat16",
            use_cpu=not torch.cuda.is_available(),
            eval_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            dataloader_pin_memory=False,
        )
        collator = task.collator(tokenizer)
        trainer = _Trainer(task.model(), arguments, collator, task.train)
        results, seconds = [], 0.0

        def evaluate() -> None:
            nonlocal seconds, started
            seconds += time.perf_counter() - started
            results.append(task.score(trainer))
            started = time.perf_counter()

        trainer.add_callback(_AtEpochEnds(evaluate))
        started = time.perf_counter()
        trainer.train()
    best = max(results, key=lambda result: result[task.metric])
    return best | {"train_seconds": round(seconds, 1)}


class _Trainer(Trainer):
    """A `Trainer` with bert_tf's schedule, whose decay counts the steps of the warm-up, too."""

    def create_scheduler(self, num_training_steps, optimizer=None):
        warmup = int(0.1 * num_training_steps)

        def factor(step: int) -> float:
            return step / warmup if step < warmup else 1 - step / num_training_steps

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, factor)
        return self.lr_scheduler


class _AtEpochEnds(TrainerCallback):
    def __init__(self, function):
        self._function = function

    def on_epoch_end(self, args, state, control, **kwargs):
        self._function()


class Pairs:
    collator = DataCollatorWithPadding

    def __init__(self, options: argparse.Namespace, tokenizer: BertTokenizerFast):
        self._options = options
        self.train, self.dev = (self._read(split, tokenizer) for split in ("train", "dev"))
        self.metric = "f1" if options.task == "mrpc" else "accuracy"

    def _read(self, split: str, tokenizer: BertTokenizerFast) -> list[dict]:
        text_a, text_b, label, labels = PAIRS[self._options.task]
        with open(f"{self._options.data_dir}/{split}.tsv", encoding="utf-8-sig", newline="\n") as f:
            header, *lines = (line.rstrip("\r\n").split("\t") for line in f)
        rows = [dict(zip(header, line, strict=False)) for line in lines]
        encoded = tokenizer(
            [row[text_a] for row in rows],
            [row[text_b] for row in rows],
            truncation=True,
            max_length=self._options.max_seq_length,
        )
        return [
            {name: values[i] for name, values in encoded.items()}
            | {"labels": labels.index(rows[i][label])}
            for i in range(len(rows))
        ]

    def model(self):
        return AutoModelForSequenceClassification.from_pretrained(self._options.model, num_labels=2)

    def score(self, trainer: Trainer) -> dict[str, float]:
        from sklearn.metrics import accuracy_score, f1_score

        output = trainer.predict(self.dev)
        predicted = output.predictions.argmax(-1)
        return {
            "accuracy": accuracy_score(output.label_ids, predicted),
            "f1": f1_score(output.label_ids, predicted),
        }


class Ner:
    metric, collator = "f1", DataCollatorForTokenClassification

    def __init__(self, options: argparse.Namespace, tokenizer: BertTokenizerFast):
        self._options = options
        splits = {name: self._sentences(f"{name}.txt") for name in ("train", "valid")}
        self._tags = sorted({tag for _, tags in splits["train"] for tag in tags})
        self.train, self.dev = (self._encode(splits[name], tokenizer) for name in splits)

    def _sentences(self, name: str) -> list[tuple[list[str], list[str]]]:
        with open(f"{self._options.data_dir}/{name}", encoding="utf-8") as file:
            blocks = file.read().split("\n\n")
        rows = [[line.split() for line in block.splitlines() if line] for block in blocks]
        rows = [block for block in rows if block and block[0][0] != "-DOCSTART-"]
        return [([row[0] for row in block], [row[-1] for row in block]) for block in rows]

    def _encode(self, sentences, tokenizer: BertTokenizerFast) -> list[dict]:
        rows = []
        for words, tags in sentences:
            encoded = tokenizer(
                words,
                is_split_into_words=True,
                truncation=True,
                max_length=self._options.max_seq_length,
            )
            word_ids = encoded.word_ids()
            labels = [
                IGNORED if word is None or word == before else self._tags.index(tags[word])
                for word, before in zip(word_ids, [None, *word_ids], strict=False)
            ]
            rows.append(dict(encoded) | {"labels": labels})
        return rows

    def model(self):
        return AutoModelForTokenClassification.from_pretrained(
            self._options.model, num_labels=len(self._tags)
        )

    def score(self, trainer: Trainer) -> dict[str, float]:
        from seqeval.metrics import f1_score

        output = trainer.predict(self.dev)
        predicted, labels = output.predictions.argmax(-1), output.label_ids
        gold, found = (
            [
                [self._tags[tag] for tag, label in zip(row, mask, strict=True) if label != IGNORED]
                for row, mask in zip(values, labels, strict=True)
            ]
            for values in (labels, predicted)
        )
        return {"f1": f1_score(gold, found)}


class Squad:
    metric, collator = "f1", DataCollatorWithPadding

    def __init__(self, options: argparse.Namespace, tokenizer: BertTokenizerFast):
        from transformers.data.processors.squad import SquadV1Processor

        self._options, self._tokenizer = options, tokenizer
        processor = SquadV1Processor()
        train = processor.get_train_examples(options.data_dir)
        self._examples = processor.get_dev_examples(options.data_dir)
        self.train = [
            self._row(f) | {"start_positions": f.start_position, "end_positions": f.end_position}
            for f in self._features(train, True)
        ]
        self._dev_features = self._features(self._examples, False)
        self.dev = [self._row(feature) for feature in self._dev_features]

    def _features(self, examples, is_training: bool) -> list:
        from transformers import BertTokenizer
        from transformers.data.processors.squad import squad_convert_examples_to_features

        return squad_convert_examples_to_features(
            examples=examples,
            # The processor needs the tokenizer in Python.
            tokenizer=BertTokenizer.from_pretrained(self._options.model),
            max_seq_length=self._options.max_seq_length,
            doc_stride=self._options.doc_stride,
            max_query_length=64,
            is_training=is_training,
            threads=os.cpu_count(),
            tqdm_enabled=False,
        )

    @staticmethod
    def _row(feature) -> dict:
        length = sum(feature.attention_mask)
        return {
            "input_ids": feature.input_ids[:length],
            "token_type_ids": feature.token_type_ids[:length],
            "attention_mask": feature.attention_mask[:length],
        }

    def model(self):
        return AutoModelForQuestionAnswering.from_pretrained(self._options.model)

    def score(self, trainer: Trainer) -> dict[str, float]:
        from transformers.data.metrics.squad_metrics import (
            compute_predictions_logits,
            squad_evaluate,
        )
        from transformers.data.processors.squad import SquadResult

        start, end = trainer.predict(self.dev).predictions
        results = []
        for index, feature in enumerate(self._dev_features):
            logits = (np.where(x[index] == IGNORED, -1e9, x[index]).tolist() for x in (start, end))
            results.append(SquadResult(feature.unique_id, *logits))
        with tempfile.TemporaryDirectory() as folder:
            predictions = compute_predictions_logits(
                self._examples,
                self._dev_features,
                results,
                20,
                30,
                True,
                f"{folder}/predictions.json",
                f"{folder}/nbest.json",
                None,
                False,
                False,
                0.0,
                self._tokenizer,
            )
        scores = squad_evaluate(self._examples, predictions)
        return {"exact": scores["exact"], "f1": scores["f1"]}


TASKS = {"mrpc": Pairs, "rte": Pairs, "ner": Ner, "squad": Squad}

if __name__ == "__main__":
    main()
