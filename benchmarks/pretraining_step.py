"""Compares the speed of a BERT pre-training step on the CPU: bert_tf, KerasHub and two others.

  python -m venv garden && garden/bin/pip install tf-models-official
  python -m venv hf && hf/bin/pip install transformers torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/pretraining_step.py --garden=garden/bin/python --huggingface=hf/bin/python
  python benchmarks/pretraining_step.py --garden=garden/bin/python --precision=float32

A step is the forward pass, the backward pass, clipping and AdamW over one batch in memory of random
ids without padding: 30522 tokens, dropout 0.1, masked-LM and next-sentence loss. Every contender is
what its own library trains with:

  bert_tf       Trainer
  KerasHub      BertBackbone, MaskedLMHead, a dense layer and Keras' AdamW in a tf.function
  Model Garden  MaskedLMTask (BertPretrainerV2, the original's AdamW, tf_keras)
  Hugging Face  BertForPreTraining with scaled_dot_product_attention, autocast and torch's fused
                AdamW

Hugging Face computes the logits of all positions, the others only those of the predictions. bert_tf
and the Garden also count accuracies.

Each contender is a process of its own, which stays alive and takes steps in turn with the others,
so that other load on the machine affects all alike. Keep the machine idle nevertheless: torch's
threads wait for each other so often that other work slows it down far more than the rest. Ratios
are taken within a round; the table shows their medians. Utilization compares the step's matrix
products (`bert_tf.weights.names`) with a large matmul of TensorFlow in the same round. Contenders
without an interpreter are left out. For base, the four contenders of the first command need 20 GB
of memory together.
"""

import argparse
import statistics
from collections.abc import Callable

from turns import (
    GARDEN,
    HUGGING_FACE,
    Contender,
    argument_parser,
    calls,
    compare,
    decay_groups,
    parse,
    times_as_fast,
    versions,
)

LEARNING_RATE = 1e-4
MATMUL, MATMUL_SIZE = "matmul", 4096


def main() -> None:
    """Compares all contenders."""
    parser = argument_parser(__doc__, 6, "garden", "huggingface")
    peers = [name for name in CONTENDERS if name != MATMUL]
    parser.add_argument("--contenders", nargs="+", choices=peers, default=peers)
    add_sizes(parser)
    options = parse(parser, lambda name, options: CONTENDERS[name](options))
    from bert_tf.base import command

    command.import_tensorflow()
    from bert_tf.config import preset_config
    from bert_tf.weights.names import training_flops

    config = preset_config(options.preset)
    batch, length, predictions = options.batch_size, options.seq_length, options.predictions
    flops = batch * training_flops(config, length, predictions)

    def cells(name: str, rounds: list[dict]) -> list[str]:
        seconds = statistics.median(times[name] for times in rounds)
        if name == MATMUL:
            return [f"{seconds:.4g}", "", "", f"{2e-9 * MATMUL_SIZE**3 / seconds:.0f} GFLOP/s"]
        work = flops / (2 * MATMUL_SIZE**3)  # as a number of matmuls
        used = statistics.median(work * times[MATMUL] / times[name] for times in rounds)
        ratio = times_as_fast(name, GARDEN, rounds)
        return [f"{seconds:.4g}", f"{batch / seconds:.3g}", ratio, f"{used:.0%}"]

    compare(
        options,
        [*options.contenders, MATMUL],
        config.to_dict(),
        f"{options.preset}, {options.precision}: batch {batch}, length {length}, "
        f"{predictions} predictions, {flops / 1e12:.3g} TFLOP per step",
        ["seconds per step", "sequences/s", "relative to the Garden (min, max)", "utilization"],
        cells,
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a step: what it trains, and on how much."""
    parser.add_argument("--preset", default="base")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--seq_length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)


def random_batch(batch_size: int, length: int, predictions: int, vocab_size: int) -> dict:
    """Returns a batch as `training_batches` yields it, in NumPy, of random ids without padding."""
    import numpy as np

    random = np.random.default_rng(0)
    B, S, P = batch_size, length, predictions
    places = np.tile(np.arange(S), [B, 1])
    batch = {
        "input_word_ids": random.integers(1000, vocab_size, [B, S]),
        "input_mask": np.ones([B, S]),
        "input_type_ids": places >= S // 2,
        "masked_lm_positions": np.sort(random.permuted(places, axis=1)[:, :P]),
        "masked_lm_ids": random.integers(1000, vocab_size, [B, P]),
        "next_sentence_labels": random.integers(0, 2, [B]),
    }
    weights = {"masked_lm_weights": np.ones([B, P]), "example_weights": np.ones([B])}
    return {name: values.astype("int32") for name, values in batch.items()} | {
        name: values.astype("float32") for name, values in weights.items()
    }


def make_trainer(preset: str, precision: str):
    """Creates the `Trainer` of a preset on the CPU, as run_pretraining does."""
    from bert_tf.base.common_options import DeviceOptions
    from bert_tf.config import preset_config
    from bert_tf.models.bert_encoder import skip_padding
    from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
    from bert_tf.training import optimizers, strategy
    from bert_tf.training.trainer import Trainer

    strategy.set_precision(precision)
    device = strategy.make_strategy(DeviceOptions(strategy="cpu"))
    with device.scope():
        model = BertPretrainer(preset_config(preset))
        skip_padding(model)
        optimizer = optimizers.AdamW(model.trainable_weights)
    schedule = optimizers.make_schedule(LEARNING_RATE, 1_000_000, 0)
    return Trainer(device, model, PretrainingObjective(), optimizer, schedule)


def _batch(options: argparse.Namespace) -> dict:
    sizes = options.batch_size, options.seq_length, options.predictions
    return random_batch(*sizes, options.vocab_size)


def _description(parameters: int, *packages: str) -> str:
    return f"{versions(*packages)}; {parameters:,} parameters; loss of the first step"


def _bert_tf(options: argparse.Namespace) -> Contender:
    import tensorflow as tf

    trainer = make_trainer(options.preset, options.precision)
    iterator = iter(tf.data.Dataset.from_tensors(_batch(options)).repeat())

    def take_steps(steps: int) -> float:
        trainer.restart_means()
        trainer.train(iterator, steps)
        return trainer.training_means()["loss"]

    return take_steps, _description(trainer.model.count_params(), "tensorflow", "keras")


def _kerashub(options: argparse.Namespace) -> Contender:
    import keras
    import keras_hub
    import tensorflow as tf

    keras.config.set_dtype_policy(_policy(options))
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=options.vocab_size,
        num_layers=options.num_hidden_layers,
        num_heads=options.num_attention_heads,
        hidden_dim=options.hidden_size,
        intermediate_dim=options.intermediate_size,
        dropout=0.1,
    )
    positions = keras.Input([None], dtype="int32", name="masked_lm_positions")
    head = keras_hub.layers.MaskedLMHead(
        token_embedding=backbone.token_embedding, intermediate_activation="gelu"
    )
    words = head(backbone.output["sequence_output"], positions)
    pairs = keras.layers.Dense(2)(backbone.output["pooled_output"])
    model = keras.Model(backbone.input | {"masked_lm_positions": positions}, [words, pairs])
    optimizer = keras.optimizers.AdamW(LEARNING_RATE, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    weights = model.trainable_variables
    optimizer.build(weights)
    batch = {name: tf.constant(values) for name, values in _batch(options).items()}
    batch["token_ids"], batch["segment_ids"] = batch["input_word_ids"], batch["input_type_ids"]
    batch["padding_mask"] = batch["input_mask"]
    inputs = {name: batch[name] for name in model.input}

    def mean_loss(labels, logits):
        logits = tf.cast(logits, tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            words, pairs = model(inputs, training=True)
            loss = mean_loss(batch["masked_lm_ids"], words)
            loss += mean_loss(batch["next_sentence_labels"], pairs)
        optimizer.apply(tape.gradient(loss, [weight.value for weight in weights]), weights)
        return loss

    packages = ("keras-hub", "keras", "tensorflow")
    return calls(step), _description(model.count_params(), *packages)


def garden_encoder(options: argparse.Namespace):
    """Returns the Model Garden's configuration of an encoder."""
    from official.nlp.configs import encoders

    config = encoders.BertEncoderConfig(
        vocab_size=options.vocab_size,
        hidden_size=options.hidden_size,
        num_layers=options.num_hidden_layers,
        num_attention_heads=options.num_attention_heads,
        intermediate_size=options.intermediate_size,
    )
    return encoders.EncoderConfig(bert=config)


def _garden(options: argparse.Namespace) -> Contender:
    import tensorflow as tf
    import tf_keras
    from official.nlp.configs import bert
    from official.nlp.data.pretrain_dataloader import BertPretrainDataConfig
    from official.nlp.optimization import create_optimizer
    from official.nlp.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    tf_keras.mixed_precision.set_global_policy(_policy(options))
    head = bert.ClsHeadConfig(inner_dim=options.hidden_size, dropout_rate=0.1, name="next_sentence")
    pretrainer = bert.PretrainerConfig(encoder=garden_encoder(options), cls_heads=[head])
    data = BertPretrainDataConfig(use_next_sentence_label=True)
    task = MaskedLMTask(MaskedLMConfig(model=pretrainer, train_data=data))
    model, metrics = task.build_model(), task.build_metrics()
    optimizer = create_optimizer(LEARNING_RATE, 1_000_000, 0)
    batch = {name: tf.constant(values) for name, values in _batch(options).items()}
    step = tf.function(lambda: task.train_step(batch, model, optimizer, metrics)[task.loss])
    model(batch)  # creates the remaining weights
    packages = ("tf-models-official", "tensorflow")
    return calls(step), _description(model.count_params(), *packages)


def _huggingface(options: argparse.Namespace) -> Contender:
    import torch
    import transformers

    names = """vocab_size hidden_size num_hidden_layers num_attention_heads
    intermediate_size""".split()
    config = transformers.BertConfig(
        **{name: getattr(options, name) for name in names}, attn_implementation="sdpa"
    )
    model = transformers.BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(decay_groups(model), LEARNING_RATE, eps=1e-6, fused=True)
    batch = {name: torch.tensor(values).long() for name, values in _batch(options).items()}
    labels = torch.full_like(batch["input_word_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            loss = model(
                input_ids=batch["input_word_ids"],
                attention_mask=batch["input_mask"],
                token_type_ids=batch["input_type_ids"],
                labels=labels,
                next_sentence_label=batch["next_sentence_labels"],
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    parameters = sum(weight.numel() for weight in model.parameters())
    return calls(step), _description(parameters, "transformers", "torch")


def _matmul(options: argparse.Namespace) -> Contender:
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal([MATMUL_SIZE] * 2), options.precision) for _ in range(2))
    step = tf.function(lambda: tf.matmul(a, b)[0, 0])
    return calls(step), f"{versions('tensorflow')}; an element of the product"


def _policy(options: argparse.Namespace) -> str:
    return "mixed_bfloat16" if options.precision == "bfloat16" else "float32"


CONTENDERS: dict[str, Callable[[argparse.Namespace], Contender]] = {
    "bert_tf": _bert_tf,
    GARDEN: _garden,
    "KerasHub": _kerashub,
    HUGGING_FACE: _huggingface,
    MATMUL: _matmul,
}


if __name__ == "__main__":
    main()
