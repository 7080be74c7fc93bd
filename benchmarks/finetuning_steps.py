"""Trains bert_tf and Hugging Face on the same batches, and compares every loss and the results.

  python -m venv hf && hf/bin/pip install transformers torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/finetuning_steps.py --task=rte --data_dir=RTE --model=my-bert \\
    --huggingface=hf/bin/python

Both start from the same weights, those of --model with a random head, and take the same steps in
float32 without dropout, so that nothing but rounding can differ. bert_tf trains as run_finetuning
does, and records its batches. The other process trains transformers' model on them with torch's
AdamW. Both minimize the loss of bert_tf, which differs from that of transformers in two ways: that
of a tagger is divided by the number of tags that a batch has on average, and padding is no
candidate for the start or end of an answer. At the end, bert_tf evaluates the weights of both on
the dev set.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from turns import argument_parser, decay_groups

TASKS = ("mrpc", "rte", "ner", "squad")
BATCHES, RATES, LOSSES = "batches", "rates.npy", "losses.npy"
RUN, START, END = "run", "start", "end"


def main() -> None:
    """Trains and compares both, or with --replay trains transformers' model."""
    parser = argument_parser(__doc__, 0, "huggingface")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--data_dir")
    parser.add_argument("--model", help="Folder of a BERT in Hugging Face's format")
    parser.add_argument("--train_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--num_train_epochs", type=float, default=3)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--random_seed", type=int, default=12345)
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        _replay(options.task, pathlib.Path(options.replay))
        return
    if not (options.task and options.data_dir and options.model and options.huggingface):
        parser.error("give --task, --data_dir, --model and --huggingface")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(_compare(options, pathlib.Path(folder)), indent=2))


def _compare(options: argparse.Namespace, folder: pathlib.Path) -> dict[str, float]:
    from bert_tf.base import command

    command.import_tensorflow()
    from bert_tf.finetuning.batches import train_batches
    from bert_tf.finetuning.evaluating import Evaluator, load_evaluator
    from bert_tf.finetuning.finetuning_options import FineTuningOptions
    from bert_tf.finetuning.preparing import read_features
    from bert_tf.finetuning.registry import make_task
    from bert_tf.finetuning.task import TRAIN
    from bert_tf.finetuning.task_learner import TaskLearner, make_training
    from bert_tf.runs.run import Run
    from bert_tf.sessions.session import Session
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.strategy import make_strategy
    from bert_tf.weights.formats import huggingface
    from bert_tf.weights.opening import open_checkpoint

    names = ("train_batch_size", "learning_rate", "num_train_epochs", "max_seq_length")
    flags = {name: getattr(options, name) for name in ("task", "data_dir", "random_seed", *names)}
    if options.task == "ner":
        flags["document_context"] = False
    flags = FineTuningOptions(output_dir=str(folder / RUN), do_train=True, strategy="cpu", **flags)
    init, task, strategy = open_checkpoint(options.model), make_task(flags), make_strategy(flags)
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    config = dataclasses.replace(init.spec.config, **dict.fromkeys(dropouts, 0.0))
    spec = dataclasses.replace(
        init.spec, config=config, lower_case=init.spec.lower_case is not False
    )
    dev = task.dev_splits[0]
    splits = read_features(flags, task, spec, [TRAIN, dev], print)
    run = Run(flags.output_dir)
    session = Session(flags, strategy, run, init)
    training = make_training(session, TaskLearner(task), spec, splits[TRAIN])
    training.set_weights()

    run.write(spec)
    run.write_head(task.head)
    Checkpointer(run.path, training.model, {"step": training.trainer.step}).save()
    for name in (START, BATCHES):
        (folder / name).mkdir()
    huggingface.write(open_checkpoint(run.path), str(folder / START))

    losses, rates, trainer = [], [], training.trainer
    size, steps = options.train_batch_size, flags.num_train_steps(len(splits[TRAIN]))
    batches = train_batches(splits[TRAIN], size, range(steps), options.random_seed)
    # Iterated twice: the batches are recorded as they are trained on.
    iterator = iter(batches)
    for number, batch in enumerate(batches):
        np.savez(folder / BATCHES / f"{number}.npz", **{n: v.numpy() for n, v in batch.items()})
        rates.append(float(trainer.schedule(trainer.step)))
        trainer.restart_means()
        trainer.train(iterator, 1)
        losses.append(trainer.training_means()["loss"])
    np.save(folder / RATES, rates)
    ours = Evaluator(task, trainer, splits, flags.eval_batch_size).evaluate(dev)

    command = [options.huggingface, __file__, f"--task={options.task}", f"--replay={folder}"]
    subprocess.run(command, check=True)
    trained = open_checkpoint(str(folder / END))
    theirs = load_evaluator(session, task, trained, splits).evaluate(dev)
    differences = np.abs(np.load(folder / LOSSES) - losses)
    metric = f"eval_{task.metric}"
    return {
        "steps": len(losses),
        "first loss": losses[0],
        "last loss": losses[-1],
        "largest difference of the first 100": differences[:100].max(),
        "largest difference": differences.max(),
        f"{metric}, bert_tf": ours[metric],
        f"{metric}, Hugging Face": theirs[metric],
    }


def _replay(task: str, folder: pathlib.Path) -> None:
    import torch
    import transformers

    classes = {
        "ner": transformers.AutoModelForTokenClassification,
        "squad": transformers.AutoModelForQuestionAnswering,
    }
    kind = classes.get(task, transformers.AutoModelForSequenceClassification)
    model = kind.from_pretrained(folder / START).train()
    optimizer = torch.optim.AdamW(decay_groups(model), eps=1e-6)
    losses = []
    for number, rate in enumerate(np.load(folder / RATES)):
        with np.load(folder / BATCHES / f"{number}.npz") as file:
            batch = {name: torch.tensor(values) for name, values in file.items()}
        output = model(
            input_ids=batch["input_word_ids"].long(),
            attention_mask=batch["input_mask"],
            token_type_ids=batch["input_type_ids"],
        )
        loss = _loss(output, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    np.save(folder / LOSSES, losses)
    model.save_pretrained(folder / END)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / END / name).write_bytes((folder / START / name).read_bytes())


def _loss(output, batch):
    from torch.nn.functional import cross_entropy

    if "tags" in batch:
        tags = batch["tags"].long().flatten()
        total = cross_entropy(output.logits.flatten(0, 1), tags, ignore_index=-1, reduction="sum")
        return total / batch["mean_tags"].sum()
    if "start" not in batch:
        return cross_entropy(output.logits, batch["labels"].long())
    padding = batch["input_mask"] == 0
    pairs = ((output.start_logits, "start"), (output.end_logits, "end"))
    return sum(cross_entropy(x - 1e9 * padding, batch[name].long()) / 2 for x, name in pairs)


if __name__ == "__main__":
    main()
