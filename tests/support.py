"""What tests of several folders do."""

import base64
import contextlib
import io
import json
import pathlib
import socket
import subprocess
import sys
import types
import warnings
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import create_pretraining_data
from bert_tf.base.common_options import DeviceOptions
from bert_tf.config import Head, ModelSpec
from bert_tf.examples.chunk import Chunk
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.runs.run import Run
from bert_tf.training.checkpoints import BEST, Checkpointer, latest_checkpoint
from bert_tf.training.strategy import make_strategy
from tfrecords.vocabulary import Vocabulary

# What learners read of a session on the CPU.
SESSION = types.SimpleNamespace(rematerialize="none")


@pytest.fixture(scope="module", autouse=True)
def quick_runs():
    """Saves the seconds that runs take to measure the CPU's peak and to draw, where imported."""
    from bert_tf.finetuning.tasks import classification, multiple_choice, tagging
    from bert_tf.pretraining import pretrain
    from bert_tf.training import reports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "peak_flops", lambda *_: 1e12)
        patch.setattr(reports, "draw_curves", lambda *_: None)
        for module in (classification, multiple_choice, tagging):
            patch.setattr(module, "draw_confusion", lambda *_: None)
        yield


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def one_device() -> tf.distribute.Strategy:
    return make_strategy(DeviceOptions(strategy="cpu"))


def two_replicas() -> tf.distribute.Strategy:
    """Two devices; the default collectives of several strategies in one process interfere."""
    return tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def calls_of(monkeypatch: pytest.MonkeyPatch, target: object, name: str) -> list:
    """Returns a list to which every later call of a function of a module or object is added."""
    function = mock.Mock(wraps=getattr(target, name))
    monkeypatch.setattr(target, name, function)
    return function.call_args_list


@contextlib.contextmanager
def one_line(match: str):
    """Expects an error in the user's input, which a single line that matches explains."""
    with pytest.raises((ValueError, OSError), match=match) as caught:
        yield
    assert "\n" not in str(caught.value)


@contextlib.contextmanager
def without_tracing():
    tf.config.run_functions_eagerly(True)
    try:
        with warnings.catch_warnings():
            # The functions of datasets are traced all the same, as this warning says.
            warnings.filterwarnings("ignore", "Even though the `tf.config")
            yield
    finally:
        tf.config.run_functions_eagerly(False)


@contextlib.contextmanager
def int32_only():
    """Saves the seconds in which an export of an encoder traces its functions for int64, too."""
    from export import encoder_module

    one = types.SimpleNamespace(product=lambda dtypes, repeat: [(dtypes[0],) * repeat])
    with mock.patch.object(encoder_module, "itertools", one):
        yield


def make_chunk(documents: list[list[int]]) -> Chunk:
    """Documents of sentences of these lengths; token i has id i, and even ones begin units."""
    starts = np.cumsum([0] + [length for sentences in documents for length in sentences])
    return Chunk(
        token_ids=np.arange(starts[-1], dtype=np.int32),
        unit_starts=np.arange(starts[-1]) % 2 == 0,
        sentence_starts=starts,
        document_starts=np.cumsum([0] + [len(sentences) for sentences in documents]),
    )


def assert_likely(found, runs: int, chance: float) -> None:
    """Asserts that counts are within five standard deviations of those that a chance leads to."""
    assert np.all(np.abs(found - runs * chance) < 5 * (runs * chance * (1 - chance)) ** 0.5)


def save_checkpoint(folder, model: keras.Model, step: int = 1) -> str:
    return Checkpointer(str(folder), model, {"step": tf.Variable(step, dtype=tf.int64)}).save()


def save_run(
    folder,
    model: keras.Model,
    vocab: Vocabulary | None,
    lower_case: bool = True,
    head: Head | None = None,
    step: int = 1,
) -> str:
    run = Run(str(folder))
    run.write(ModelSpec(model.config, vocab, lower_case))
    if head:
        run.write_head(head)
    save_checkpoint(run.path, model, step)
    return run.path


def save_fine_tuned(folder, task: str, head: Head, spec: ModelSpec, **flags):
    """Writes a fine-tuning run with random weights; returns its task and its model."""
    from bert_tf.finetuning.registry import task_of_run

    run = Run(str(folder))
    flags |= {"max_query_length": 4, "doc_stride": 4} if task == "squad" else {}
    run.write(spec, flags | {"task": task, "do_train": True, "output_dir": run.path})
    run.write_head(head)
    trained = task_of_run(run)
    model = trained.build_model(spec.config)
    save_run(run.file(BEST), model, spec.vocab, spec.lower_case, head)
    return trained, model


def create_records(folder: pathlib.Path, name: str, length: int, predictions: int, **flags) -> None:
    """Creates NAME.tfrecord from text.txt and vocab.txt in a folder."""
    files = dict(input_file="text.txt", vocab_file="vocab.txt", output_file=f"{name}.tfrecord")
    flags |= {flag: str(folder / file) for flag, file in files.items()}
    flags |= dict(max_seq_length=length, max_predictions_per_seq=predictions, num_workers=1)
    create_pretraining_data.run(create_pretraining_data.Options(**flags))


def tuning_options(files: pathlib.Path, output_dir, **changes) -> FineTuningOptions:
    """Flags of a small run on SST-2 with the vocabulary and the configuration in a folder."""
    values = dict(
        task="sst2",
        data_dir=str(files),
        vocab_file=str(files / "vocab.txt"),
        bert_config_file=str(files / "bert_config.json"),
        output_dir=str(output_dir),
        do_train=True,
        do_eval=True,
        max_seq_length=24,
        train_batch_size=16,
        learning_rate=3e-3,
    )
    return FineTuningOptions(**values | changes)


# A command, without measuring the peak of the CPU, drawing, and passes over graphs and XLA.
_WORKER = """
from bert_tf.base import command
command.import_tensorflow()
import tensorflow as tf
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
from bert_tf.finetuning.tasks import classification
from bert_tf.pretraining import pretrain
from bert_tf.training import optimizers, reports
import NAME
optimizers._compiled_update = tf.function(optimizers._compiled_update.python_function)
pretrain.peak_flops = lambda *_: 1e12
reports.draw_curves = classification.draw_confusion = lambda *_: None
command.run("NAME")
"""


def start_workers(command: str, flags: dict) -> list[subprocess.Popen]:
    """Starts two processes of this machine that train as one with a command of bert_tf."""
    program = _WORKER.replace("NAME", f"bert_tf.{command}")
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("localhost", 0))
        hosts = ",".join(f"localhost:{s.getsockname()[1]}" for s in (first, second))
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    return [
        subprocess.Popen(
            [
                *[sys.executable, "-c", program, *arguments],
                *[f"--worker_hosts={hosts}", f"--task_index={index}"],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(2)
    ]


def assert_same_state(*folders: str, **tolerance: float) -> None:
    """Compares all variables of the last checkpoints of two runs, also the optimizer's."""
    readers = [tf.train.load_checkpoint(latest_checkpoint(str(folder))) for folder in folders]
    for key in readers[0].get_variable_to_shape_map():
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
            values = (reader.get_tensor(key) for reader in readers)
            np.testing.assert_allclose(*values, **{"rtol": 0} | tolerance, err_msg=key)


def assert_same_tensors(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name].read(), tensor.read(), strict=True, err_msg=name)


def attention_of(exploration: dict) -> np.ndarray:
    """Returns what the page to explore a model holds, as an array [L, N + 1, S, S]."""
    size = len(exploration["tokens"])
    values = np.frombuffer(base64.b64decode(exploration["attention"]), "<u2") / 65535
    return values.reshape(exploration["layers"], exploration["heads"] + 1, size, size)


def edit_json(path, **changes) -> None:
    """Changes values of an object in a file; None removes one."""
    path = pathlib.Path(path)
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: x for key, x in content.items() if x is not None}))
