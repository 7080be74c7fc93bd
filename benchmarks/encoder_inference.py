"""Compares how long encoders take on the CPU: bert_tf, its ONNX model, and three other programs.

  python -m venv garden && garden/bin/pip install tf-models-official
  python -m venv hf && hf/bin/pip install transformers torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/encoder_inference.py --garden=garden/bin/python --huggingface=hf/bin/python

All compute the outputs of every layer (ONNX: of the last one) and the pooled output, for ids
without padding and without dropout. All have the same random weights, converted with
convert_checkpoint, except the Model Garden, which makes random weights of its own.

  bert_tf       the SavedModel of export.encoder, loaded with tf.saved_model.load
  bert_tf, frozen weights
                the same, with TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1 in the environment
  ONNX Runtime  the model of export.onnx, in onnxruntime; not in bfloat16
  Model Garden  the SavedModel of its export_tfhub_lib, loaded with tf.saved_model.load
  KerasHub      BertBackbone in a tf.function; its dtype is the precision
  Hugging Face  BertModel with scaled_dot_product_attention in inference mode; its dtype is the
                precision

Each contender is a process of its own, and they take turns; see turns.py. In each round, a ratio
says how many times as fast as the contender bert_tf is, without and with frozen weights. The table
shows the medians of the ratios.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

from pretraining_step import garden_encoder
from turns import (
    GARDEN,
    HUGGING_FACE,
    Contender,
    argument_parser,
    calls,
    compare,
    parse,
    times_as_fast,
    versions,
)

OURS = ("bert_tf", "bert_tf, frozen weights")
ONNX = "ONNX Runtime"


def main() -> None:
    """Compares all contenders."""
    parser = argument_parser(__doc__, 6, "garden", "huggingface")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--preset", default="base")
    parser.add_argument("--seq_length", type=int, default=128)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    options = parse(parser, lambda name, options: CONTENDERS[name](options))

    def cells(name: str, rounds: list[dict]) -> list[str]:
        milliseconds = 1e3 * statistics.median(times[name] for times in rounds)
        return [f"{milliseconds:.4g}", *(times_as_fast(ours, name, rounds) for ours in OURS)]

    factors = [f"{name} is faster by a factor of (min, max)" for name in OURS]
    with tempfile.TemporaryDirectory() as folder:
        sizes = _write_models(options, pathlib.Path(folder))
        for precision in options.precisions:
            for batch_size in options.batch_sizes:
                compare(
                    options,
                    options.contenders,
                    sizes | {"batch_size": batch_size, "precision": precision},
                    f"{options.preset}, {precision}: batch {batch_size}, "
                    f"length {options.seq_length}",
                    ["milliseconds per batch", *factors],
                    cells,
                )


def _write_models(options: argparse.Namespace, folder: pathlib.Path) -> dict:
    """Writes random weights in the formats of all contenders; returns what they need to know."""
    from bert_tf.base import command

    command.import_tensorflow()
    import tensorflow as tf

    from bert_tf.config import ModelSpec, preset_config
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.runs.run import Run
    from bert_tf.training.checkpoints import Checkpointer
    from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

    config = preset_config(options.preset)
    words = (f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))
    run = folder / "run"
    Run(str(run)).write(ModelSpec(config, Vocabulary((*SPECIAL_TOKENS, *words)), True))
    Checkpointer(str(run), BertPretrainer(config), {"step": tf.Variable(0, dtype=tf.int64)}).save()
    convert = f"bert_tf.convert_checkpoint --from={run}"
    commands = [
        f"{convert} --to=huggingface --output_dir={folder}/huggingface",
        # With the only form of GELU that KerasHub has.
        f"{convert} --to=kerashub --allow_extra=pretrainer/* --hidden_act=gelu_new "
        f"--output_dir={folder}/kerashub",
    ]
    for precision in options.precisions:
        output = f"--precision={precision} --output_dir={folder}/bert_tf-{precision}"
        commands.append(f"export.encoder --checkpoint={run} {output}")
        if ONNX in options.contenders and precision != "bfloat16":
            quantize = "int8" if precision == "int8" else "none"
            output = f"--quantize={quantize} --output_file={folder}/{precision}.onnx"
            commands.append(f"export.onnx --checkpoint={run} {output}")
    for line in commands:
        command_line = [sys.executable, "-m", *line.split()]
        subprocess.run(command_line, check=True, stdout=subprocess.DEVNULL)
    return config.to_dict() | {"folder": str(folder)}


def _inputs(options: argparse.Namespace) -> dict:
    """Returns ids without padding, in NumPy."""
    import numpy as np

    shape = [options.batch_size, options.seq_length]
    ids = np.random.default_rng(0).integers(5, options.vocab_size, shape)
    ones = np.ones(shape)
    inputs = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": 0 * ones}
    return {name: values.astype("int32") for name, values in inputs.items()}


def _calls(step: Callable, result: Callable, *packages: str) -> Contender:
    """Returns a contender whose result is the mean of |pooled output|."""
    take_steps = calls(step, lambda outputs: float(abs(result(outputs)).mean()))
    return take_steps, f"{versions(*packages)}; mean absolute pooled output"


def _saved_model(folder: str, options: argparse.Namespace, package: str) -> Contender:
    import tensorflow as tf

    encoder = tf.saved_model.load(folder)
    inputs = {name: tf.constant(values) for name, values in _inputs(options).items()}
    return _calls(
        lambda: encoder(inputs, training=False),
        lambda outputs: outputs["pooled_output"].numpy().astype("float32"),
        package,
        "tensorflow",
    )


def _bert_tf(options: argparse.Namespace) -> Contender:
    return _saved_model(f"{options.folder}/bert_tf-{options.precision}", options, "bert-tf")


def _bert_tf_frozen(options: argparse.Namespace) -> Contender:
    os.environ["TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"] = "1"  # TensorFlow reads it when first needed
    return _bert_tf(options)


def _onnx(options: argparse.Namespace) -> Contender:
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{options.folder}/{options.precision}.onnx")
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = zip(names, _inputs(options).values(), strict=True)
    inputs = {name: values.astype(np.int64) for name, values in inputs}
    return _calls(lambda: session.run(None, inputs), lambda outputs: outputs[1], "onnxruntime")


def _garden(options: argparse.Namespace) -> Contender:
    import tensorflow as tf
    import tf_keras
    from official.nlp.configs.encoders import build_encoder
    from official.nlp.modeling import models
    from official.nlp.tools import export_tfhub_lib

    if options.precision != "float32":
        tf_keras.mixed_precision.set_global_policy(f"mixed_{options.precision}")
    config = garden_encoder(options)
    folder = f"{options.folder}/garden-{options.precision}"
    if not tf.io.gfile.exists(folder):
        pretrainer = models.BertPretrainerV2(build_encoder(config))
        pretrainer(pretrainer.inputs)
        path = tf.train.Checkpoint(**pretrainer.checkpoint_items).save(f"{folder}-ckpt")
        export_tfhub_lib.export_model(
            folder,
            encoder_config=config,
            model_checkpoint_path=path,
            with_mlm=True,
            vocab_file=f"{options.folder}/run/vocab.txt",
            do_lower_case=True,
        )
    return _saved_model(folder, options, "tf-models-official")


def _kerashub(options: argparse.Namespace) -> Contender:
    import keras_hub
    import tensorflow as tf

    backbone = keras_hub.models.BertBackbone.from_preset(
        f"{options.folder}/kerashub", dtype=options.precision
    )
    inputs = {name: tf.constant(values) for name, values in _inputs(options).items()}
    named = {
        "token_ids": inputs["input_word_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["input_type_ids"],
    }
    step = tf.function(lambda: backbone(named, training=False))
    return _calls(
        step,
        lambda outputs: outputs["pooled_output"].numpy().astype("float32"),
        "keras-hub",
        "tensorflow",
    )


def _huggingface(options: argparse.Namespace) -> Contender:
    import torch
    import transformers

    model = transformers.BertModel.from_pretrained(
        f"{options.folder}/huggingface",
        attn_implementation="sdpa",
        torch_dtype=getattr(torch, options.precision),
    ).eval()
    names = {
        "input_ids": "input_word_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "input_type_ids",
    }
    inputs = _inputs(options)
    tensors = {name: torch.tensor(inputs[ours]).long() for name, ours in names.items()}

    def step():
        with torch.inference_mode():
            return model(**tensors, output_hidden_states=True)

    return _calls(
        step, lambda outputs: outputs.pooler_output.float().numpy(), "transformers", "torch"
    )


CONTENDERS: dict[str, Callable[[argparse.Namespace], Contender]] = {
    OURS[0]: _bert_tf,
    OURS[1]: _bert_tf_frozen,
    ONNX: _onnx,
    GARDEN: _garden,
    "KerasHub": _kerashub,
    HUGGING_FACE: _huggingface,
}


if __name__ == "__main__":
    main()
