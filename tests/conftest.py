"""Fixtures shared by all tests."""

import dataclasses
import functools
import gc
import importlib
import os
import pathlib
import random
import shlex
import sys
import tempfile
from collections.abc import Callable

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Several workers share the cores; threads of small operations would wait for each other.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
AS_IN_PRODUCTION = os.environ.get("BERT_TF_TEST_AS_IN_PRODUCTION") == "1"
if not AS_IN_PRODUCTION:
    # XLA's own passes are as always; LLVM's would take longer than the small programs run.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


@functools.cache
def make_two_devices() -> None:
    """Makes two devices of the CPU, so that a test can share a batch between replicas."""
    with pytest.MonkeyPatch.context() as patch:
        # Keras would import them for parts of it that nothing here uses.
        for name in ("matplotlib", "sklearn"):
            patch.setitem(sys.modules, name, None)
        import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


def pytest_collectstart() -> None:
    """Runs in every process that collects tests, so not in the one that starts parallel workers."""
    gc.disable()
    make_two_devices()


def pytest_collection_finish() -> None:
    """Saves the garbage collector from visiting all modules and new graphs again and again.

    The same goes for TensorFlow's passes over graphs and for XLA in the update of each variable,
    which take longer than the small programs run. Processes that tests start use them, and tests
    with `optimized_graphs`, and all tests with BERT_TF_TEST_AS_IN_PRODUCTION=1.
    """
    if not AS_IN_PRODUCTION:
        optimize_graphs(False)
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def freed_graphs():
    """Frees the graphs of a module, which TensorFlow keeps: it registers their custom gradients."""
    yield
    gradients = sys.modules["tensorflow.python.framework.ops"].gradient_registry._registry
    for name in [name for name in gradients if name.startswith("CustomGradient-")]:
        del gradients[name]
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory):
    """Puts what TensorFlow and Beam leave behind among pytest's files, the older of which go."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


def optimize_graphs(wanted: bool) -> None:
    """Turns TensorFlow's passes over graphs and the compiled update of variables on or off."""
    import tensorflow as tf

    from bert_tf.training import optimizers

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not wanted})
    update = optimizers._compiled_update.python_function
    optimizers._compiled_update = _make_update(update, wanted)


@functools.cache
def _make_update(update: Callable, compiled: bool) -> Callable:
    import tensorflow as tf

    return tf.function(update, jit_compile=compiled or None, autograph=False)


@pytest.fixture
def optimized_graphs():
    optimize_graphs(True)
    yield
    optimize_graphs(AS_IN_PRODUCTION)


@pytest.fixture
def eagerly():
    """Runs the steps without tracing them, which takes longer than a few steps."""
    from support import without_tracing

    with without_tracing():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts modules with slow tests first, so that parallel workers end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Gives a model that a test or a fixture makes the same weights every time.

    Keras draws the seeds of initializers from Python's generator. `keras.utils.set_random_seed`
    would also clear TensorFlow's caches, which takes time.
    """
    random.seed(0)


@pytest.fixture(autouse=True)
def float32():
    import keras

    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def no_learning(monkeypatch):
    """Steps that read their batch and change no weight, which saves tracing the model's gradients.

    The loss is the mean id of the batches.
    """
    import tensorflow as tf

    from bert_tf.training.trainer import Trainer

    def train(trainer, iterator, steps, shortcut=None):
        for _ in range(steps):
            loss = tf.reduce_mean(tf.cast(next(iterator)["input_word_ids"], tf.float32))
            trainer.totals.assign_add([loss] + [0.0] * (trainer.totals.shape[0] - 2) + [1.0])
            trainer.step.assign_add(1)

    monkeypatch.setattr(Trainer, "train", train)


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real corpora, vocabularies and weights; without them, tests that need them are skipped."""
    beside = pathlib.Path(__file__).parents[2] / "shared" / "data"
    path = pathlib.Path(os.environ.get("BERT_TF_TEST_DATA", beside))
    if not path.is_dir():
        pytest.skip("needs real data: name their folder in BERT_TF_TEST_DATA")
    return path


@pytest.fixture(scope="session")
def run_printed():
    """A function that runs a command as printed.

    Args: a line, and flags that make its work smaller. Returns the value of the command's `run`.
    """

    def run(line: str, **smaller):
        _, _, module, *arguments = shlex.split(line[line.index("python -m ") :])
        command = importlib.import_module(module)
        kinds = {field.name: field.type for field in dataclasses.fields(command.Options)}
        flags = dict(_flag(argument.removeprefix("--"), kinds) for argument in arguments)
        return command.run(command.Options(**flags | smaller))

    return run


def _flag(argument: str, kinds: dict) -> tuple:
    name, equals, value = argument.partition("=")
    if not equals:
        return (name, True) if name in kinds else (name.removeprefix("no"), False)
    kind = getattr(kinds[name], "__args__", (kinds[name],))[0]
    return name, kind(value)


@pytest.fixture
def write(tmp_path):
    """A function (name, text or bytes) -> the path of a file with it."""

    def write(name: str, data: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write
