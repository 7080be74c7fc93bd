"""Writes SavedModels with model cards, as folders and as .tar.gz with the same bytes every time."""

import atexit
import gzip
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import __version__
from bert_tf.base.files import read_file
from bert_tf.base.output_files import atomic_write, check_new_folder, whole_file, whole_folder
from bert_tf.config import BertConfig
from bert_tf.inference.inference_options import LITE, ONNX
from bert_tf.runs.run import Run
from bert_tf.text.tokenizer_files import TokenizerFiles
from bert_tf.training.checkpoints import check_name
from bert_tf.training.reports import EVAL_RESULTS, read_results
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.features import write_records
from tfrecords.vocabulary import Vocabulary, write_vocab

CARD = "README.md"
CONFIG_COPY = "assets.extra/bert_config.json"

# The flags of a run that say what it was trained on, and how.
_DATA = ("task", "data_dir", "input_file", "eval_input_file", "init_checkpoint")
_TRAINING = """phases_file objective masking max_seq_length train_batch_size num_train_steps
num_train_epochs num_warmup_steps warmup_proportion optimizer learning_rate precision
random_seed""".split()


def check_output(path: str) -> None:
    """Raises a ValueError unless a SavedModel can be written to `path` and loaded from there."""
    check_new_folder(path)
    check_name(path)
    if path.endswith((LITE, ONNX)):
        raise ValueError(
            f"{path} names a file, but a SavedModel is a folder: choose another name, or use "
            "export.onnx or export.lite"
        )


def add_vocab(module: tf.Module, vocab: Vocabulary, lower_case: bool) -> None:
    """Gives a module the asset `vocab_file`, and tokenizer_config.json if tokens were added."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = os.path.join(folder, vocab.file_name)
    write_vocab(file, vocab)
    module.vocab_file = tf.saved_model.Asset(file)
    if vocab.tokenizer_values():
        files = TokenizerFiles(folder)
        files.write(vocab, lower_case)
        module.tokenizer_config = tf.saved_model.Asset(files.config_file)


def save_model(
    module: Any,
    serving: Callable,
    path: str,
    *card: Any,
    files: Mapping[str, str | Sequence[bytes]] | None = None,
    **facts: Any,
) -> None:
    """Writes a SavedModel and its model card beside `path`, then renames the folder.

    `serving` is the function of the default signature. `card` and `facts` are the arguments of
    `model_card` after the first. `files` are what else the folder holds, by name: text, or the
    records of a TFRecord file.
    """
    files = {CARD: model_card(path, *card, **facts), **(files or {})}
    with whole_folder(path) as temporary:
        tf.saved_model.save(module, temporary, signatures={"serving_default": serving})
        for name, content in files.items():
            write = atomic_write if isinstance(content, str) else write_records
            write(f"{temporary}/{name}", content)


def model_card(
    output_dir: str,
    kind: str,
    about: str,
    code: str,
    vocab: Vocabulary,
    lower_case: bool,
    *,
    license: str | None = None,
    config: BertConfig | None = None,
    run: Run | None = None,
    converted_from: str | None = None,
) -> str:
    """Returns a model card in the form of Hugging Face's: YAML, then Markdown.

    `kind` and `about` say what the model is, in a few words and in a sentence or two. `code` is
    Python that loads "FOLDER", which becomes `output_dir`, and calls it. The `run` trained it, if
    one did, or the weights are `converted_from` the checkpoint of another program.
    """
    name = os.path.basename(os.path.abspath(output_dir))
    code = code.replace('"FOLDER"', json.dumps(name))
    license = license or "unknown: set --license"
    front = f'---\nlicense: {json.dumps(license)}\nlibrary_name: "tensorflow"\n'
    vocabulary = {
        "tokens": f"{len(vocab):,}",
        "text": "lower-cased, without accents" if lower_case else "cased",
        "SHA-256 of the tokens": vocab.sha256,
    }
    sections = [
        f'{front}tags: ["bert", "saved-model"]\n---\n\n# {name}: {kind}\n\n{about}',
        f"## How to load it\n\n```python\n{code.strip()}\n```",
        _table("Configuration", config.to_dict() if config else {}),
        _table("Vocabulary", vocabulary),
        _table("Weights", {"converted from": converted_from}),
        *(_sections_of(run) if run else ()),
        f"## License\n\n{license}\n\nWritten by bert_tf {__version__}.\n",
    ]
    return "\n\n".join(filter(None, sections))


def license_of(given: str | None, checkpoint: Checkpoint | None) -> str | None:
    """Returns the license that the user gave, or the one in the model card beside a checkpoint."""
    file = checkpoint and (checkpoint.config_file or checkpoint.vocab_file)
    path = os.path.join(os.path.dirname(file), CARD) if file else ""
    if given or not os.path.isfile(path):
        return given
    front = re.match(r"---\n(.*?)\n---", read_file(path).decode(errors="replace"), re.S)
    stated = front and re.search("^license: *(.+?) *$", front[1], re.MULTILINE)
    return stated[1].strip("\"'") if stated else given


def casing_of(lower_case: bool) -> str:
    """Returns the usual name of a casing."""
    return "uncased" if lower_case else "cased"


def _sections_of(run: Run) -> Iterable[str]:
    flags, results = run.flags, read_results(run.file(EVAL_RESULTS))
    data = {name: flags.get(name) for name in _DATA}
    for name, files in run.made_from.sets.items():
        if size := sum(file.get("bytes", 0) for file in files):
            data[name] = f"{len(files):,} files, {size:,} bytes"
    yield _table("Data", data)
    yield _table("Training", {name: flags.get(name) for name in _TRAINING})
    yield _table("Metrics", {name: f"{value:.6g}" for name, value in results.items()})


def _table(title: str, values: Mapping[str, Any]) -> str:
    """Returns a section with the values that are known; "" if none is."""
    known = {name: value for name, value in values.items() if value is not None}
    rows = [f"| {name} | {value} |".replace("\n", " ") for name, value in known.items()]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *rows]) if rows else ""


def write_archive(folder: str, path: str) -> None:
    """Writes the content of a folder to a .tar.gz, whole or not at all.

    Names are sorted, and relative to the folder. There are no times, owners or links.
    """
    with (
        whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|") as archive,
    ):
        for parent, folders, names in tf.io.gfile.walk(folder):
            folders.sort()
            if parent.rstrip("/") != folder.rstrip("/"):
                entry = tarfile.TarInfo(os.path.relpath(parent, folder))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            for path in (os.path.join(parent, name) for name in sorted(names)):
                entry = tarfile.TarInfo(os.path.relpath(path, folder))
                entry.size = tf.io.gfile.stat(path).length
                with tf.io.gfile.GFile(path, "rb") as content:
                    archive.addfile(entry, content)
