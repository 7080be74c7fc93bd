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

from turns import Process, argument_parser, serve, take_turns

Contender = tuple[Callable[[int], float], str]
OURS = ("bert_tf", "bert_tf, frozen weights")
GARDEN = "Model Garden"
HUGGING_FACE = "Hugging Face"
ONNX = "ONNX Runtime"


def main() -> None:
    """Compares all contenders, or with --serve computes the outputs of one."""
    parser = argument_parser(__doc__)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()
    if options.serve:
        serve(lambda: CONTENDERS[options.serve](options.sizes))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        sizes = _write_models(options, path)
        for precision in options.precisions:
            for batch_size in options.batch_sizes:
                _compare(options, sizes | {"B": batch_size, "precision": precision}, path)


def _write_models(options: argparse.Namespace, folder: pathlib.Path) -> dict:
    """Writes random weights in the formats of all contenders; returns what they need to know."""
    from tfrecords import command

    command.import_tensorflow()
    from bert_tf.config import ModelSpec
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.presets import preset_config
    from bert_tf.runs.run import Run
    from bert_tf.training.checkpoints import Tensor, save_tensors
    from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

    config = preset_config(options.preset)
    words = (f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))
    run = folder / "run"
    Run(str(run)).write(ModelSpec(config, Vocabulary((*SPECIAL_TOKENS, *words)), True))
    save_tensors(
        str(run / "ckpt-0"),
        {
            weight.path: Tensor(tuple(weight.shape), weight.numpy)
            for weight in BertPretrainer(config).weights
        },
    )
    convert = ["bert_tf.convert_checkpoint", f"--from={run}"]
    _run(*convert, "--to=huggingface", f"--output_dir={folder}/huggingface")
    _run(
        *convert,
        "--to=kerashub",
        "--allow_extra=pretrainer/*",
        # The only form that KerasHub has.
        "--hidden_act=gelu_new",
        f"--output_dir={folder}/kerashub",
    )
    for precision in options.precisions:
        _run(
            "export.encoder",
            f"--checkpoint={run}",
            f"--precision={precision}",
            f"--output_dir={folder}/bert_tf-{precision}",
        )
        if ONNX in options.contenders and precision != "bfloat16":
            _run(
                "export.onnx",
                f"--checkpoint={run}",
                f"--quantize={'int8' if precision == 'int8' else 'none'}",
                f"--output_file={folder}/{precision}.onnx",
            )
    return config.to_dict() | {"folder": str(folder), "S": options.seq_length}


def _run(module: str, *flags: str) -> None:
    subprocess.run([sys.executable, "-m", module, *flags], check=True, stdout=subprocess.DEVNULL)


def _compare(options: argparse.Namespace, sizes: dict, folder: pathlib.Path) -> None:
    pythons = {GARDEN: options.garden, HUGGING_FACE: options.huggingface}
    processes = {
        name: Process(__file__, name, pythons.get(name, sys.executable), sizes, folder)
        for name in options.contenders
    }
    rounds = take_turns(processes, options.rounds)
    print(
        f"\n{options.preset}, {sizes['precision']}: batch {sizes['B']}, length {sizes['S']}, "
        f"{options.rounds} rounds\n"
    )
    factors = [f"{name} is faster by a factor of (min, max)" for name in OURS]
    print(f"| | milliseconds per batch | {' | '.join(factors)} |")
    print("|---|---|---|---|")
    for name, process in processes.items():
        print(f"| {name} | {process.failure or _figures(name, rounds)} |")
    for name, process in processes.items():
        if not process.failure:
            print(f"\n{name}: {process.description}")


def _figures(name: str, rounds: list[dict[str, float]]) -> str:
    """Returns the cells of a row."""
    milliseconds = 1e3 * statistics.median(times[name] for times in rounds)
    return " | ".join([f"{milliseconds:.4g}", *(_factor(ours, name, rounds) for ours in OURS)])


def _factor(ours: str, name: str, rounds: list[dict[str, float]]) -> str:
    ratios = [times[name] / times[ours] for times in rounds if times.get(ours)]
    if name == ours or not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})"


def _inputs(sizes: dict) -> dict:
    """Returns ids without padding, in NumPy."""
    import numpy as np

    shape = [sizes["B"], sizes["S"]]
    ids = np.random.default_rng(0).integers(5, sizes["vocab_size"], shape)
    ones = np.ones(shape)
    inputs = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": 0 * ones}
    return {name: values.astype("int32") for name, values in inputs.items()}


def _calls(step: Callable, result: Callable, versions: str) -> Contender:
    """Returns a function that calls `step` repeatedly and returns the mean of |pooled output|."""

    def take_steps(steps: int) -> float:
        for _ in range(steps):
            outputs = step()
        return float(abs(result(outputs)).mean())

    return take_steps, f"{versions}; mean absolute pooled output"


def _saved_model(folder: str, sizes: dict, versions: str) -> Contender:
    import tensorflow as tf

    encoder = tf.saved_model.load(folder)
    inputs = {name: tf.constant(values) for name, values in _inputs(sizes).items()}
    return _calls(
        lambda: encoder(inputs, training=False),
        lambda outputs: outputs["pooled_output"].numpy().astype("float32"),
        f"{versions}, TensorFlow {tf.__version__}",
    )


def _bert_tf(sizes: dict) -> Contender:
    import bert_tf

    folder = f"{sizes['folder']}/bert_tf-{sizes['precision']}"
    return _saved_model(folder, sizes, f"bert_tf {bert_tf.__version__}")


def _bert_tf_frozen(sizes: dict) -> Contender:
    os.environ["TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"] = "1"  # TensorFlow reads it when first needed
    return _bert_tf(sizes)


def _onnx(sizes: dict) -> Contender:
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{sizes['folder']}/{sizes['precision']}.onnx")
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = zip(names, _inputs(sizes).values(), strict=True)
    inputs = {name: values.astype(np.int64) for name, values in inputs}
    return _calls(
        lambda: session.run(None, inputs),
        lambda outputs: outputs[1],
        f"onnxruntime {onnxruntime.__version__}",
    )


def _garden(sizes: dict) -> Contender:
    import importlib.metadata

    import tensorflow as tf
    import tf_keras
    from official.nlp.configs import encoders
    from official.nlp.modeling import models
    from official.nlp.tools import export_tfhub_lib

    if sizes["precision"] != "float32":
        tf_keras.mixed_precision.set_global_policy(f"mixed_{sizes['precision']}")
    config = encoders.BertEncoderConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        intermediate_size=sizes["intermediate_size"],
    )
    config = encoders.EncoderConfig(bert=config)
    folder = f"{sizes['folder']}/garden-{sizes['precision']}"
    if not tf.io.gfile.exists(folder):
        pretrainer = models.BertPretrainerV2(encoders.build_encoder(config))
        pretrainer(pretrainer.inputs)
        path = tf.train.Checkpoint(**pretrainer.checkpoint_items).save(f"{folder}-ckpt")
        export_tfhub_lib.export_model(
            folder,
            encoder_config=config,
            model_checkpoint_path=path,
            with_mlm=True,
            vocab_file=f"{sizes['folder']}/run/vocab.txt",
            do_lower_case=True,
        )
    versions = f"tf-models-official {importlib.metadata.version('tf-models-official')}"
    return _saved_model(folder, sizes, versions)


def _kerashub(sizes: dict) -> Contender:
    import keras_hub
    import tensorflow as tf

    backbone = keras_hub.models.BertBackbone.from_preset(
        f"{sizes['folder']}/kerashub", dtype=sizes["precision"]
    )
    inputs = {name: tf.constant(values) for name, values in _inputs(sizes).items()}
    named = {
        "token_ids": inputs["input_word_ids"],
        "padding_mask": inputs["input_mask"],
        "segment_ids": inputs["input_type_ids"],
    }
    step = tf.function(lambda: backbone(named, training=False))
    return _calls(
        step,
        lambda outputs: outputs["pooled_output"].numpy().astype("float32"),
        f"KerasHub {keras_hub.__version__}, TensorFlow {tf.__version__}",
    )


def _huggingface(sizes: dict) -> Contender:
    import torch
    import transformers

    model = transformers.BertModel.from_pretrained(
        f"{sizes['folder']}/huggingface",
        attn_implementation="sdpa",
        torch_dtype=getattr(torch, sizes["precision"]),
    ).eval()
    names = {
        "input_ids": "input_word_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "input_type_ids",
    }
    inputs = _inputs(sizes)
    tensors = {name: torch.tensor(inputs[ours]).long() for name, ours in names.items()}

    def step():
        with torch.inference_mode():
            return model(**tensors, output_hidden_states=True)

    return _calls(
        step,
        lambda outputs: outputs.pooler_output.float().numpy(),
        f"transformers {transformers.__version__}, torch {torch.__version__}",
    )


CONTENDERS: dict[str, Callable[[dict], Contender]] = {
    OURS[0]: _bert_tf,
    OURS[1]: _bert_tf_frozen,
    ONNX: _onnx,
    GARDEN: _garden,
    "KerasHub": _kerashub,
    HUGGING_FACE: _huggingface,
}


if __name__ == "__main__":
    main()
