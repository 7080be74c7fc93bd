"""Opens checkpoints of any format, also in archives."""

import atexit
import contextlib
import dataclasses
import errno
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator

import tensorflow as tf

from bert_tf.base.files import named_errors
from bert_tf.base.process import check_not_forked
from bert_tf.config import EMBEDDING, BertConfig, ModelSpec
from bert_tf.runs.run import CONFIG, Run
from bert_tf.training.checkpoints import chosen_checkpoint, saved_tensors
from bert_tf.weights.checkpoint import Checkpoint, with_vocab
from bert_tf.weights.formats import google, huggingface, kerashub, model_garden, saved_model
from bert_tf.weights.translation import import_tensors, own_rows
from tfrecords.vocabulary import guess_casing

# The names of our models, as weights begin with them.
_MODELS = ("encoder", "pretrainer", "task_model")
# The formats of other programs. The first that recognizes a path opens it.
FORMATS = (google, huggingface, kerashub, saved_model, model_garden)
# Downloads for paths such as "hf:org/name", by the part before the colon; each returns a folder.
DOWNLOADS: dict[str, Callable[[str], str]] = {
    "hf": huggingface.download,
    "keras": kerashub.download,
    "tfhub": saved_model.download,
}
_ENDINGS = (".zip", ".tar.gz", ".tgz")
# What Python's libraries raise for damaged files; a RuntimeError for encrypted ones.
_DAMAGE = (
    *(OSError, EOFError, RuntimeError, UnicodeError, OverflowError, struct.error),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
)
# Python 3.11.0 to 3.11.3 have no filters.
_FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def open_checkpoint(
    path: str,
    config: BertConfig | None = None,
    *,
    ignored: Collection[str] = (),
    any_encoder: bool = False,
    vocab_file: str | None = None,
) -> Checkpoint:
    """Opens a checkpoint; reads everything but the values of the weights.

    Args:
        path: a run folder or a checkpoint in one; a checkpoint of another program (see `FORMATS`)
            or its download (see `DOWNLOADS`); or an archive of any of these.
        config: the configuration if there is none beside the checkpoint.
        ignored: patterns of names that may be left out, as another program's checkpoint has them.
        any_encoder: whether the encoder may have no layers of BERT.
        vocab_file: another vocabulary; the checkpoint's own may then be damaged.
    """
    check_not_forked()
    path = local_path(path)
    with local_folder(path) as folder:
        module = next((module for module in FORMATS if module.recognizes(folder)), None)
        if module:
            checkpoint = module.open_(folder, config, ignored)
        else:
            checkpoint = _open_run(folder, config, ignored, any_encoder)
        if checkpoint.vocab_problem and not vocab_file:
            raise ValueError(checkpoint.vocab_problem)
    if is_archive(path):
        checkpoint = dataclasses.replace(checkpoint, path=path)
    spec = checkpoint.spec
    if spec.lower_case is None and not checkpoint.unread_vocab:
        spec = dataclasses.replace(spec, lower_case=guess_casing(spec.vocab, checkpoint.path))
        checkpoint = dataclasses.replace(checkpoint, spec=spec, casing_is_guess=True)
    return checkpoint


@contextlib.contextmanager
def local_folder(path: str) -> Iterator[str]:
    """Yields the local path of a checkpoint, downloaded or extracted; errors name the archive."""
    path = local_path(path)
    with named_errors(f"cannot read {path}: download it first"):
        tf.io.gfile.exists(path)
    path = path.rstrip("/") or path
    folder = extract(path) if is_archive(path) else path
    try:
        yield folder
    except (ValueError, OSError) as error:
        if folder == path:
            raise
        kind = ValueError if isinstance(error, ValueError) else OSError
        raise kind(str(error).replace(folder, path)) from error


def local_path(path: str) -> str:
    """Downloads a path such as "hf:org/name" and returns the folder; returns other paths as is."""
    path = os.fspath(path)
    prefix, _, name = path.partition(":")
    return DOWNLOADS[prefix](name) if _is_download(path) else path


def anchored_path(path: str) -> str:
    """Returns a local path as one that does not depend on the current folder; others as is."""
    return path if "://" in path or _is_download(path) else os.path.abspath(path)


def _is_download(path: str) -> bool:
    prefix, colon, _ = path.partition(":")
    return bool(colon) and prefix in DOWNLOADS and not os.path.exists(path)


def _open_run(
    path: str, config: BertConfig | None, ignored: Collection[str], any_encoder: bool
) -> Checkpoint:
    try:
        checkpoint = chosen_checkpoint(path)
    except FileNotFoundError:
        Run(path).check_single()
        raise
    folder = Run(os.path.dirname(checkpoint))
    spec = ModelSpec(folder.config_or(config), lower_case=folder.lower_case)
    if not (spec.config.has_layers or any_encoder):
        raise ValueError(
            f"{path} is a BiLSTM, which has no layers of BERT: only run_finetuning --do_eval, "
            "predict, export.classifier and results can read it"
        )
    # The best weights of --lora_rank are merged.
    tensors = saved_tensors(checkpoint).items()
    saved = {path: tensor for path, tensor in tensors if not path.startswith("lora/")}
    if folder.flags and folder.flags.get("lora_rank"):
        raise ValueError(
            f"{checkpoint} is from the middle of a --lora_rank training, which merges its matrices "
            f"at the end: finish the training and give the run folder, {folder.path}"
        )
    found = {path: tensor for path, tensor in saved.items() if path.split("/")[0] in _MODELS}
    others = {path: tensor for path, tensor in saved.items() if path not in found}
    opened = Checkpoint(
        path=checkpoint,
        format="",
        spec=spec,
        tensors=found,
        head=folder.head,
        config_file=folder.file(CONFIG),
        vocab_file=folder.vocab_file,
        run=folder.whole,
    )
    if spec.config.has_layers:
        opened = import_tensors(opened, own_rows(spec.config), ignored)
    computes_vectors = folder.head and folder.head.kind == EMBEDDING
    is_ours = computes_vectors or any(path.startswith("task_model/") for path in found)
    # Other models may have names of their own, but not those of pre-training.
    if not others or is_ours or (folder.flags and "task" not in folder.flags):
        opened = dataclasses.replace(opened, unused=(*opened.unused, *sorted(others)))
    else:
        opened = dataclasses.replace(opened, tensors={**opened.tensors, **others})
    return with_vocab(opened, lambda: folder.vocab)


def is_archive(path: str) -> bool:
    """Returns whether a path is a file whose name is that of an archive."""
    return path.endswith(_ENDINGS) and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def extract(path: str) -> str:
    """Extracts an archive to a temporary folder, which is removed when the process ends.

    Returns:
        the folder with the files, which has the name of the archive, or of the only folder in it.
    """
    temporary = tempfile.mkdtemp(prefix="bert_tf-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    ending = next(ending for ending in _ENDINGS if path.endswith(ending))
    # Without leading dots, as ".." would be another folder.
    name = os.path.basename(path).removesuffix(ending).lstrip(".")
    folder = os.path.join(temporary, name or "archive")
    os.mkdir(folder)
    try:
        local = path
        if "://" in path:
            # TensorFlow's files lack some of what Python's libraries need.
            tf.io.gfile.copy(path, local := f"{folder}{ending}")
        with open(local, "rb") as file:
            unpack = _unzip if ending == ".zip" else _untar
            unpack(path, file, folder)
    except BaseException as error:
        shutil.rmtree(temporary)
        if isinstance(error, tf.errors.OpError):
            raise OSError(f"cannot read {path}: {error.message}") from error
        if isinstance(error, _DAMAGE):
            reason = str(error) or "it is incomplete"
            advice = "download or copy it again"
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                advice = "set TMPDIR to a folder with more room"
            raise OSError(f"cannot extract {path} ({reason}): {advice}") from error
        raise
    names = [name for name in os.listdir(folder) if not name.startswith((".", "__MACOSX"))]
    inner = os.path.join(folder, *names[:1])
    return inner if len(names) == 1 and os.path.isdir(inner) else folder


def _check_member(path: str, name: str, regular: bool) -> None:
    """Raises a ValueError for a member that is not a file or folder inside the archive's folder."""
    if not regular or not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{path} is unsafe: {name!r} is not a file inside its folder")


def _unzip(path: str, file: io.IOBase, folder: str) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        archive.extractall(folder)


def _untar(path: str, file: io.IOBase, folder: str) -> None:
    stream = gzip.GzipFile(fileobj=file)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            regular = member.isreg() and not member.issparse()
            _check_member(path, member.name, regular or member.isdir())
            archive.extract(member, folder, set_attrs=False, **_FILTER)
    # The checksum is at the end.
    while stream.read(2**20):
        pass
