"""Defines the pre-training steps of bert_tf and its peers, for the benchmarks in this folder.

Each contender runs in an environment of its own, so it imports its libraries only when it is made.
"""

from collections.abc import Callable

LEARNING_RATE = 1e-4
MATMUL = "matmul"
MATMUL_SIZE = 4096
# A function that takes a number of steps and returns the last loss; the number of parameters; the
# versions of the libraries.
Contender = tuple[Callable[[int], float], int, str]


def random_batch(sizes: dict) -> dict:
    """Returns a batch as `training_batches` yields it, in NumPy, of random ids without padding."""
    import numpy as np

    random = np.random.default_rng(0)
    B, S, P = sizes["B"], sizes["S"], sizes["P"]
    places = np.tile(np.arange(S), [B, 1])
    batch = {
        "input_word_ids": random.integers(1000, sizes["vocab_size"], [B, S]),
        "input_mask": np.ones([B, S]),
        "input_type_ids": places >= S // 2,
        "masked_lm_positions": np.sort(
            random.permuted(np.tile(np.arange(S), [B, 1]), axis=1)[:, :P]
        ),
        "masked_lm_ids": random.integers(1000, sizes["vocab_size"], [B, P]),
        "next_sentence_labels": random.integers(0, 2, [B]),
    }
    weights = {"masked_lm_weights": np.ones([B, P]), "example_weights": np.ones([B])}
    return {name: values.astype("int32") for name, values in batch.items()} | {
        name: values.astype("float32") for name, values in weights.items()
    }


def make_trainer(preset: str, precision: str):
    """Creates the `Trainer` of a preset on the CPU, as run_pretraining does."""
    from bert_tf.flags import DeviceOptions
    from bert_tf.models.encoder import skip_padding
    from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
    from bert_tf.presets import preset_config
    from bert_tf.training import optimizers, strategy
    from bert_tf.training.trainer import Trainer

    strategy.set_precision(precision)
    device = strategy.make_strategy(DeviceOptions(strategy="cpu"))
    with device.scope():
        model = BertPretrainer(preset_config(preset))
        skip_padding(model)
        optimizer = optimizers.AdamW(model.trainable_weights)
    schedule = optimizers.make_schedule("linear", LEARNING_RATE, 1_000_000, 0)
    return Trainer(device, model, PretrainingObjective(), optimizer, schedule)


def _bert_tf(sizes: dict) -> Contender:
    import keras
    import tensorflow as tf

    trainer = make_trainer(sizes["preset"], sizes["precision"])
    iterator = iter(tf.data.Dataset.from_tensors(random_batch(sizes)).repeat())

    def take_steps(steps: int) -> float:
        trainer.restart_means()
        trainer.train(iterator, steps)
        return trainer.training_means()["loss"]

    versions = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    return take_steps, trainer.model.count_params(), versions


def _kerashub(sizes: dict) -> Contender:
    import keras
    import keras_hub
    import tensorflow as tf

    keras.config.set_dtype_policy(_policy(sizes))
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=sizes["vocab_size"],
        num_layers=sizes["num_hidden_layers"],
        num_heads=sizes["num_attention_heads"],
        hidden_dim=sizes["hidden_size"],
        intermediate_dim=sizes["intermediate_size"],
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
    batch = {name: tf.constant(values) for name, values in random_batch(sizes).items()}
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

    versions = f"KerasHub {keras_hub.__version__}, Keras {keras.__version__}"
    return _calls(step), model.count_params(), f"{versions}, TensorFlow {tf.__version__}"


def _garden(sizes: dict) -> Contender:
    import importlib.metadata

    import tensorflow as tf
    import tf_keras
    from official.nlp.configs import bert, encoders
    from official.nlp.data.pretrain_dataloader import BertPretrainDataConfig
    from official.nlp.optimization import create_optimizer
    from official.nlp.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    tf_keras.mixed_precision.set_global_policy(_policy(sizes))
    encoder = encoders.BertEncoderConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        intermediate_size=sizes["intermediate_size"],
    )
    head = bert.ClsHeadConfig(
        inner_dim=sizes["hidden_size"], dropout_rate=0.1, name="next_sentence"
    )
    pretrainer = bert.PretrainerConfig(
        encoder=encoders.EncoderConfig(bert=encoder), cls_heads=[head]
    )
    data = BertPretrainDataConfig(use_next_sentence_label=True)
    task = MaskedLMTask(MaskedLMConfig(model=pretrainer, train_data=data))
    model, metrics = task.build_model(), task.build_metrics()
    optimizer = create_optimizer(LEARNING_RATE, 1_000_000, 0)
    batch = {name: tf.constant(values) for name, values in random_batch(sizes).items()}
    step = tf.function(lambda: task.train_step(batch, model, optimizer, metrics)[task.loss])
    model(batch)  # creates the remaining weights
    versions = f"tf-models-official {importlib.metadata.version('tf-models-official')}"
    return _calls(step), model.count_params(), f"{versions}, TensorFlow {tf.__version__}"


def _huggingface(sizes: dict) -> Contender:
    import torch
    import transformers

    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    config = transformers.BertConfig(
        **{name: sizes[name] for name in (*names, "intermediate_size")},
        attn_implementation="sdpa",
    )
    model = transformers.BertForPreTraining(config).train()
    weights = list(model.named_parameters())
    decays = [not (name.endswith("bias") or "LayerNorm" in name) for name, _ in weights]
    groups = [
        {
            "params": [w for (_, w), d in zip(weights, decays, strict=True) if d == decay],
            "weight_decay": 0.01 * decay,
        }
        for decay in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, LEARNING_RATE, eps=1e-6, fused=True)
    batch = {name: torch.tensor(values).long() for name, values in random_batch(sizes).items()}
    labels = torch.full_like(batch["input_word_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=sizes["precision"] == "bfloat16"):
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

    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    return _calls(step), sum(weight.numel() for _, weight in weights), versions


def _matmul(sizes: dict) -> Contender:
    import tensorflow as tf

    a, b = (tf.cast(tf.random.normal([MATMUL_SIZE] * 2), sizes["precision"]) for _ in range(2))
    step = tf.function(lambda: tf.matmul(a, b)[0, 0])
    return _calls(step), 2 * MATMUL_SIZE**2, f"TensorFlow {tf.__version__}"


def _policy(sizes: dict) -> str:
    return "mixed_bfloat16" if sizes["precision"] == "bfloat16" else "float32"


def _calls(step: Callable) -> Callable[[int], float]:
    """Returns a function that calls `step` repeatedly and waits for the last result."""

    def take_steps(steps: int) -> float:
        for _ in range(steps):
            loss = step()
        return float(loss)

    return take_steps


CONTENDERS: dict[str, Callable[[dict], Contender]] = {
    "bert_tf": _bert_tf,
    "Model Garden": _garden,
    "KerasHub": _kerashub,
    "Hugging Face": _huggingface,
    MATMUL: _matmul,
}
