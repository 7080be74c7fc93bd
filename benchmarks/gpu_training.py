"""Compares the training step on a GPU with Hugging Face's, without TensorFlow.

  python benchmarks/gpu_training.py --programs=programs --steps=base-64x128,base-32x512 \\
    --output_dir=traces

Runs the programs of gpu_export.py through jax, in turns with BertForPreTraining as a PyTorch user
would train it: autocast to bfloat16, scaled_dot_product_attention, torch.compile, fused AdamW and
clipping. Tokens are random, without padding. Hugging Face scores the words of all positions,
bert_tf only those of the predictions. Utilization is the arithmetic of bert_tf's step
(`bert_tf.weights.names`), over the time and the peak rate of an H100. `--output_dir` gets the times
of the kernels, for https://ui.perfetto.dev.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

PEAK = 989e12  # bfloat16 products of an H100 or H200, per second
ROUNDS, STEPS = 5, 20


def main() -> None:
    """Prints a line of JSON for each step and contender."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--steps", required=True)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(jax.devices()[0].device_kind, "jax", jax.__version__, flush=True)
    programs = {stem: Program(options.programs, stem) for stem in options.steps.split(",")}
    with concurrent.futures.ThreadPoolExecutor(len(programs)) as pool:
        compiling = {stem: pool.submit(_compile, program) for stem, program in programs.items()}
        for stem, program in programs.items():
            contenders = {}
            try:
                contenders["Hugging Face"] = _huggingface(stem, program)
            except Exception as error:  # such as too little memory: the others go on
                print(f"{stem}: Hugging Face fails: {error!r:.300}", flush=True)
            # Compiling tries kernels on the GPU, which must be idle for the measurement.
            concurrent.futures.wait(compiling.values())
            contenders["bert_tf"] = compiling[stem].result()
            _compare(stem, program, contenders)
            with jax.profiler.trace(str(options.output_dir / stem), create_perfetto_trace=True):
                contenders["bert_tf"](3)


class Program:
    """A program of gpu_export.py, with the sizes of its batch and the arithmetic of a step."""

    def __init__(self, folder: pathlib.Path, stem: str):
        described = json.loads((folder / f"{stem}.json").read_text())
        self.batch, self.length, self.flops = (described[x] for x in ("batch", "length", "flops"))
        self._arguments = described["arguments"]
        self._call = jax.export.deserialize(bytearray((folder / f"{stem}.step").read_bytes())).call

    def state(self) -> dict[str, jax.Array]:
        """Returns the variables before the first step, initialized as in BERT."""
        state = {}
        for number, argument in enumerate(self._arguments):
            name, shape, dtype = (argument[x] for x in ("name", "shape", "dtype"))
            if re.search("(kernel|embeddings)$", name):
                key = jax.random.key(number)
                state[name] = 0.02 * jax.random.truncated_normal(key, -2, 2, shape, dtype)
            elif name not in _ROWS:
                state[name] = jnp.full(shape, float(name.endswith("/gamma")), dtype)
        return state

    def step(self, state, rows):
        """Returns the next state, and the sums and counts [2, measures]."""
        known = state | rows
        outputs = self._call(*[known[argument["name"]] for argument in self._arguments])
        updates = {x["name"]: x["update"] for x in self._arguments if x["update"] is not None}
        return state | {name: outputs[index] for name, index in updates.items()}, outputs[0]


_ROWS = ("input_word_ids", "input_mask", "input_type_ids", "next_sentence_labels", "number")


def _random_rows(batch, length):
    generator = np.random.default_rng(0)
    ids = generator.integers(1000, 30522, (batch, length), np.int32)
    rows = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids % 2}
    rows |= {"next_sentence_labels": ids[:, :1] % 2, "number": np.int32(0)}
    return jax.tree.map(jnp.asarray, rows)


def _compare(stem, program, contenders):
    """Prints a line of JSON per contender."""
    times = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run(STEPS)
            if number:  # The first round warms up.
                times[name].append((time.perf_counter() - started) / STEPS)
    for name, values in times.items():
        seconds = statistics.median(values)
        row = {"step": stem, "name": name, "ms": 1e3 * seconds, "min": 1e3 * min(values)}
        row |= {"max": 1e3 * max(values), "sequences/s": program.batch / seconds}
        row |= {"utilization": program.flops / seconds / PEAK}
        print(json.dumps(row), flush=True)


def _compile(program):
    """Returns a function that takes steps; prints the compiler's figures."""
    state = jax.eval_shape(program.state)
    rows = _random_rows(program.batch, program.length)
    started = time.perf_counter()
    step = jax.jit(program.step, donate_argnums=0).lower(state, rows).compile()
    memory = step.memory_analysis()
    kernels = sum(step.as_text().count(f" {kind}(") for kind in ("fusion", "custom-call", "sort"))
    print(
        f"{program.batch}x{program.length}: compiled in {time.perf_counter() - started:.0f} s, "
        f"{kernels} kernels, {memory.temp_size_in_bytes / 1e9:.2f} GB temporaries, "
        f"{memory.argument_size_in_bytes / 1e9:.2f} GB arguments",
        flush=True,
    )
    state = program.state()

    def run(count):
        nonlocal state
        for _ in range(count):
            state, sums = step(state, rows)
        np.asarray(sums)

    return run


def _huggingface(stem, program):
    """Returns a function that takes steps; prints the time of the first one and the memory."""
    import torch
    import transformers

    torch.set_float32_matmul_precision("high")
    sizes = {"small": (512, 4), "base": (768, 12), "large": (1024, 24)}
    hidden, layers = sizes[stem.partition("-")[0]]
    shape = program.batch, program.length
    config = transformers.BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden, attn_implementation="sdpa",
    )  # fmt: skip
    torch.compiler.reset()
    torch.cuda.reset_peak_memory_stats()
    model = transformers.BertForPreTraining(config).cuda().train()
    ids = torch.randint(1000, 30522, shape, device="cuda")
    labels = torch.where(torch.rand(shape, device="cuda") < 0.15, ids, -100)
    inputs = {"input_ids": ids, "token_type_ids": ids % 2, "labels": labels}
    inputs |= {"attention_mask": torch.ones_like(ids), "next_sentence_label": ids[:, 0] % 2}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)
    compiled = torch.compile(model)

    def run(count):
        for _ in range(count):
            with torch.autocast("cuda", torch.bfloat16):
                loss = compiled(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()

    started = time.perf_counter()
    run(2)
    elapsed, peak = time.perf_counter() - started, torch.cuda.max_memory_allocated()
    print(f"{stem}: Hugging Face: compiled in {elapsed:.0f} s, {peak / 1e9:.2f} GB", flush=True)
    return run


if __name__ == "__main__":
    main()
