"""Goes from text to a filled-in [MASK], in five to eight minutes.

  python -m bert_tf.quickstart --output_dir=quickstart

The text is English prose that every machine has: the docstrings of Python's standard library,
NumPy, Keras and TensorFlow. Every step is a command of this project, shown as you would type it.
Steps whose result exists are skipped; remove the folder to start over.
"""

import ast
import importlib.util
import inspect
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
import time
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.choices import VOCABULARY
from bert_tf.base.command import option
from bert_tf.base.command_help import command_line
from bert_tf.base.progress import say

_CODE = re.compile(r"```.*?(```|$)", re.DOTALL)
PACKAGES = ("numpy", "keras", "tensorflow")
_MAX_SEQ_LENGTH = 64
# A small model learns more from twice as many masks; see docs/results.md.
_MASKED_LM_PROB, _MAX_PREDICTIONS = 0.3, 20
_SENTENCES = (
    "returns a new [MASK] with the same shape and type as the input.",
    "if the file does not [MASK], an error is raised.",
    "the default [MASK] is none.",
)


@dataclass(frozen=True)
class Options(command.Options):
    """The flags of the command."""

    output_dir: str = option("quickstart", "Folder for all files.")
    num_train_steps: int = option(2600, "Pre-training steps of 32 examples.", at_least=1)
    vocab_size: int = option(8000, "Size of the vocabulary.", **VOCABULARY)
    open: bool = option(False, "Open the page of `explore` in a browser at the end.")


def run(options: Options) -> None:
    """Runs every step, then fills in the [MASK] of each of `_SENTENCES`."""
    from bert_tf.base.output_files import check_can_write

    started = time.monotonic()
    check_can_write(options.output_dir)
    folder = pathlib.Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"The steps take five to eight minutes on two cores. Their files go to {folder}/.")
    train, heldout = _make_data(folder, options.vocab_size)
    model, steps = folder / "pretraining", options.num_train_steps
    _step(
        model / f"ckpt-{steps}.index",
        "bert_tf.run_pretraining",
        do_train=True,
        do_eval=True,
        input_file=train,
        eval_input_file=heldout,
        preset="tiny",
        masked_lm_prob=_MASKED_LM_PROB,
        max_predictions_per_seq=_MAX_PREDICTIONS,
        train_batch_size=32,
        eval_batch_size=64,
        learning_rate=0.001,
        num_train_steps=steps,
        num_warmup_steps=steps // 10,
        save_checkpoints_steps=600,
        output_dir=model,
    )
    encoder, preprocessor = folder / "encoder", folder / "preprocessor"
    _step(encoder, "export.encoder", checkpoint=model, output_dir=encoder)
    _step(
        preprocessor,
        "export.preprocessor",
        checkpoint=model,
        max_seq_length=_MAX_SEQ_LENGTH,
        output_dir=preprocessor,
    )
    _step(None, "export.check", saved_model_dir=encoder)
    _step(None, "bert_tf.fill_mask", *_SENTENCES, checkpoint=encoder)
    page = folder / "explore.html"
    _step(page, "bert_tf.explore", *_SENTENCES[:2], checkpoint=model, output_file=page)
    if options.open:
        webbrowser.open(page.absolute().as_uri())
    print(
        f"\nFinished after {(time.monotonic() - started) / 60:.1f} minutes. {folder}/ holds:\n"
        "  train.txt, heldout.txt    the text, one sentence per line\n"
        "  vocab.txt                 the vocabulary\n"
        "  *.tfrecord                examples: sentence pairs with masked tokens\n"
        "  pretraining/              checkpoints, curves, eval_results.txt\n"
        "  encoder/, preprocessor/   SavedModels for hub.KerasLayer\n"
        "  explore.html              what the encoder does with two sentences\n"
        f"To explore other text: python -m bert_tf.explore --checkpoint={model} --serve --open\n"
        "Next: run the same commands on your own text, or fine-tune: "
        "python -m bert_tf.run_finetuning --help"
    )


def _make_data(folder: pathlib.Path, vocab_size: int) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the records to train and to evaluate on."""
    train, heldout = folder / "train.txt", folder / "heldout.txt"
    if not (train.exists() and heldout.exists()):
        write_texts(train, heldout)
    vocab = folder / "vocab.txt"
    _step(vocab, "bert_tf.build_vocab", input_file=train, vocab_size=vocab_size, output_file=vocab)
    records = train.with_suffix(".tfrecord"), heldout.with_suffix(".tfrecord")
    for text, record, dupe_factor in zip((train, heldout), records, (4, 1), strict=True):
        _step(
            record,
            "bert_tf.create_pretraining_data",
            input_file=text,
            output_file=record,
            vocab_file=vocab,
            dupe_factor=dupe_factor,
            max_seq_length=_MAX_SEQ_LENGTH,
            masking="dynamic",
            max_predictions_per_seq=_MAX_PREDICTIONS,
        )
    return records


def _step(result: pathlib.Path | None, module: str, *texts: str, **flags: object) -> None:
    """Shows a command and runs it, unless its result exists."""
    line = command_line(module, *texts, **flags)
    say(f"\n$ {line}")
    if result and result.exists():
        say(f"Skipped: {result} exists.")
        return
    arguments = shlex.split(line)[1:]
    status = subprocess.run([sys.executable, *arguments], check=False).returncode
    if status:
        raise ValueError(f"{arguments[1]} failed with exit code {status}: see its message above")


def write_texts(train: pathlib.Path, heldout: pathlib.Path) -> None:
    """Writes the docstrings as documents, with every 20th in the held-out text."""
    from bert_tf.base.output_files import atomic_write
    from bert_tf.corpus.lines import split_sentences

    say(f"Gathering the docstrings of Python, {', '.join(PACKAGES)} ...")
    documents = []
    for docstring in dict.fromkeys(_docstrings()):  # many texts occur twice
        prose = []
        # Paragraphs that are not code, tables or lists of names.
        for paragraph in re.split(r"\n\s*\n", _CODE.sub("\n\n", docstring)):
            text = " ".join(paragraph.split())
            letters = sum(character.isalpha() or character in " ,." for character in text)
            if text.count(" ") > 6 and letters > 0.93 * len(text) and ">>>" not in text:
                prose.append(text if text[-1] in ".!?" else text + ".")
        sentences = split_sentences(" ".join(prose))
        if len(sentences) > 1:
            documents.append("\n".join(sentences) + "\n")
    rest = [document for i, document in enumerate(documents) if i % 20]
    for file, chosen in ((heldout, documents[::20]), (train, rest)):
        if not file.exists():
            atomic_write(str(file), "\n".join(chosen))
    size = sum(map(len, documents)) / 1e6
    say(f"Wrote {len(documents):,} documents, {size:.1f} MB, to {train} and {heldout}.")


def _docstrings() -> Iterator[str]:
    """Yields the docstrings of all modules, classes and functions, in a fixed order."""
    folders = [pathlib.Path(sysconfig.get_path("stdlib"))]
    for name in PACKAGES:
        folders.append(pathlib.Path(importlib.util.find_spec(name).origin).parent)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if {"site-packages", "test", "tests"} & set(file.relative_to(folder).parts):
                continue
            try:
                tree = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError):
                continue  # broken on purpose, for a library's own tests
            for node in ast.walk(tree):
                if isinstance(node, kinds) and (text := ast.get_docstring(node, clean=False)):
                    yield inspect.cleandoc(text)


if __name__ == "__main__":
    command.run(__name__)
