"""Without tensorflow-text, which installing TensorFlow for TPUs leaves out."""

import subprocess
import sys

import tensorflow as tf

_PROGRAM = """
import importlib, sys
sys.modules["tensorflow_text"] = None
for name in sys.argv[1].split(","):
    try:
        importlib.import_module(name).run(None)
    except ValueError as error:
        print(name, error)
from bert_tf import run_finetuning
sys.argv = ["run_finetuning", "--task=sst2", "--do_train", "--output_dir=x"]
run_finetuning.command.run("bert_tf.run_finetuning")
"""
_COMMANDS = """bert_tf.build_vocab bert_tf.create_pretraining_data bert_tf.run_finetuning
bert_tf.predict bert_tf.fill_mask bert_tf.compress export.lite""".split()


def test_commands_that_read_text_say_what_to_install():
    """Oracle: the message. tests/pretraining/test_resume.py runs run_pretraining without it."""
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, ",".join(_COMMANDS)], capture_output=True, text=True
    )
    version = ".".join(tf.__version__.split(".")[:2])
    line = (
        "text needs tensorflow-text, which also works beside tensorflow-tpu: pip install "
        f"--no-deps 'tensorflow-text=={version}.*'"
    )
    assert process.stdout.splitlines() == [f"{name} {line}" for name in _COMMANDS]
    assert process.stderr.splitlines()[-1] == f"run_finetuning: error: {line}"
    assert process.returncode == 1
