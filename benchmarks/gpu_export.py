"""Writes the training step, as TensorFlow compiles it, as a program that jax runs on a GPU.

  pip install 'jax>=0.10.2'
  python benchmarks/gpu_export.py --preset=base --batch_sizes=64,128 --output_dir=programs

The program is XLA's, before its passes for a device: TensorFlow on a GPU gives the same one to the
same compiler. So gpu_training.py can measure the step on a machine that has no TensorFlow.

For each batch size, it writes `<preset>-<batch>x<length>.step`, which masks rows of tokens and
trains on them (`Trainer.replica_step`, bfloat16, AdamW), and `.json`, which names its arguments.
"""

import argparse
import dataclasses
import json
import pathlib
import re

from bert_tf.base import command

command.import_tensorflow()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from jax import export  # noqa: E402
from jax._src.export._export import _module_to_bytecode  # noqa: E402
from jax.interpreters.mlir import make_ir_context  # noqa: E402
from jaxlib._hlo import XlaComputation  # noqa: E402
from jaxlib._jax.mlir import xla_computation_to_mlir_module  # noqa: E402
from jaxlib.mlir.ir import Module  # noqa: E402

from bert_tf.base.tensorflow_ops import compiling_for_gpu  # noqa: E402
from bert_tf.config import preset_config  # noqa: E402
from bert_tf.devices.compiler import step_to_hlo  # noqa: E402
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective  # noqa: E402
from bert_tf.training.optimizers import AdamW  # noqa: E402
from bert_tf.training.strategy import set_precision  # noqa: E402
from bert_tf.training.trainer import Trainer  # noqa: E402
from bert_tf.weights.names import training_flops  # noqa: E402
from tfrecords.dynamic_masking import TRAINING, DynamicMasking, mask_batch  # noqa: E402

# Of bert-base-uncased.
MASKING = DynamicMasking(mask_id=103, cls_id=101, sep_id=102, vocab_size=30522)


def main() -> None:
    """Writes the programs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--rematerialize", default="none")
    parser.add_argument("--batch_sizes", default="64")
    parser.add_argument("--seq_length", type=int, default=128)
    parser.add_argument("--platform", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    set_precision("bfloat16")
    config = preset_config(options.preset)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = BertPretrainer(config, rematerialize=options.rematerialize)
        optimizer = AdamW(model.trainable_weights)
        # An argument of the program, so that whoever runs it chooses the schedule.
        rate = tf.Variable(0.0, trainable=False)
    trainer = Trainer(strategy, model, PretrainingObjective(), optimizer, lambda _: rate)
    variables = {"learning_rate": rate, "step": trainer.step} | optimizer.slots
    variables |= {variable.path: variable.value for variable in model.variables}
    names = {id(variable.handle): name for name, variable in variables.items()}
    predictions = round(0.15 * options.seq_length) + options.seq_length // 128

    def step(rows):
        number = tf.cast(rows["number"], tf.int64)
        rows = {name: value for name, value in rows.items() if name != "number"}
        batch = mask_batch(rows, predictions, MASKING, TRAINING, number, 0)
        batch["next_sentence_labels"] = tf.reshape(batch["next_sentence_labels"], [-1])
        batch["example_weights"] = tf.ones(batch["next_sentence_labels"].shape)
        with compiling_for_gpu():
            return strategy.run(trainer.replica_step, (batch, None))

    for size in map(int, options.batch_sizes.split(",")):
        tokens = tf.zeros([size, options.seq_length], tf.int32)
        rows = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tokens)
        rows |= {"next_sentence_labels": tokens[:, :1], "number": tf.constant(0)}
        stem = options.output_dir / f"{options.preset}-{size}x{options.seq_length}"
        exported, arguments = export_program(step, rows, names, options.platform)
        stem.with_suffix(".step").write_bytes(exported.serialize())
        flops = size * training_flops(config, options.seq_length, predictions)
        sizes = {"flops": flops, "batch": size, "length": options.seq_length}
        stem.with_suffix(".json").write_text(json.dumps(sizes | {"arguments": arguments}))
        print(f"wrote {stem}.step", flush=True)


def export_program(function, rows, names, platform):
    """Returns a program of jax, and the name, shape, type and new value of each argument.

    The outputs of the program are what `function` returns, then the new values of variables;
    `update` is the index of that of an argument, or None.
    """
    traced = tf.function(function, autograph=False)
    concrete = traced.get_concrete_function(rows)
    hlo = step_to_hlo(function, rows)
    text = xla_computation_to_mlir_module(XlaComputation(hlo))
    pattern = r"parameter_number = (\d+) : i64}, output_index = array<i64(?:: (\d+))?>"
    updates = {int(p): int(o or 0) for p, o in re.findall(pattern, text)}
    text = text.replace("mhlo.copy ", "stablehlo.optimization_barrier ")
    text = re.sub(r"mhlo\.erf (%\w+) : (tensor<[^>]*>)", r"chlo.erf \1 : \2 -> \2", text)
    text = re.sub(r"\{mhlo.frontend_attributes = \{[^}]*\}\}", "", text)
    text = re.sub(r"attributes \{mhlo.*?\} \{\n", "{\n", text, count=1)
    with make_ir_context():
        module = Module.parse(text)
        functions = {op.attributes["sym_name"].value: op for op in module.body.operations}
        types = functions["main"].type
        inputs = [_shape(str(x)) for x in types.inputs]
        outputs = [_shape(str(x)) for x in types.results]
        code = _module_to_bytecode(module)
    template = export.export(
        jax.jit(lambda *_: [jax.numpy.zeros(x.shape, x.dtype) for x in outputs], keep_unused=True),
        platforms=[platform],
    )(*inputs)
    captured = [names[id(handle)] for handle in concrete.captured_inputs]
    arguments = [
        {"name": name, "shape": x.shape, "dtype": str(np.dtype(x.dtype)), "update": updates.get(i)}
        for i, (name, x) in enumerate(zip([*sorted(rows), *captured], inputs, strict=True))
    ]
    return dataclasses.replace(template, mlir_module_serialized=code), arguments


def _shape(text: str) -> jax.ShapeDtypeStruct:
    *sizes, kind = text.removeprefix("tensor<").removesuffix(">").split("x")
    kinds = {"f32": "float32", "i32": "int32", "i64": "int64"}
    return jax.ShapeDtypeStruct(tuple(map(int, sizes)), kinds[kind])


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    main()
