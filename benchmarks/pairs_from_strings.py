"""Fine-tunes an exported encoder on MRPC's raw strings, in tf_keras and in Keras 3.

  python -m export.encoder --checkpoint=all-MiniLM-L6-v2 --output_dir=encoder
  python -m export.preprocessor --checkpoint=all-MiniLM-L6-v2 --output_dir=preprocessor
  python benchmarks/pairs_from_strings.py --data_dir=MRPC

Both models are a preprocessor, an encoder, and a dense layer on the pooled output.

  hub.KerasLayer  the SavedModels in tf_keras; bert_pack_inputs packs the pairs
  bert_tf.load    the same folders as layers of Keras 3

The table shows accuracy and F1 on the dev set, and whether the model gives the same
predictions after saving and loading.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

LENGTH, BATCH_SIZE, EPOCHS, LEARNING_RATE = 64, 32, 2, 1e-4


def main() -> None:
    """Fine-tunes both models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data_dir", required=True, help="MRPC's official files")
    parser.add_argument("--encoder", default="encoder")
    parser.add_argument("--preprocessor", default="preprocessor")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    import keras
    import tensorflow_hub as hub
    import tf_keras

    from bert_tf.finetuning.registry import TASKS
    from bert_tf.finetuning.task import DataFiles

    data = TASKS["mrpc"].read_splits(("train", "dev"), DataFiles(options.data_dir), seed=0)
    loaders = (
        ("hub.KerasLayer", tf_keras, _hub_model, {"KerasLayer": hub.KerasLayer}),
        ("bert_tf.load", keras, _keras_model, {}),
    )
    print("| | accuracy | F1 | minutes | saved and loaded |\n|---|---|---|---|---|")
    for name, library, make, custom_objects in loaders:
        library.utils.set_random_seed(12345)
        started = time.monotonic()
        model = _fit(make(options.encoder, options.preprocessor), library, data["train"])
        minutes = (time.monotonic() - started) / 60
        print(f"| {name} | {_scores(model, data['dev'])} | {minutes:.1f} | ", end="", flush=True)
        print(f"{_reload(model, library, custom_objects, data['dev'])} |")


def _hub_model(encoder: str, preprocessor: str) -> Any:
    import tensorflow as tf
    import tensorflow_hub as hub
    import tf_keras

    parts = hub.load(preprocessor)
    texts = [tf_keras.Input([], dtype=tf.string) for _ in range(2)]
    tokenize = hub.KerasLayer(parts.tokenize)
    pack = hub.KerasLayer(parts.bert_pack_inputs, arguments={"seq_length": LENGTH})
    outputs = hub.KerasLayer(encoder, trainable=True)(pack([tokenize(text) for text in texts]))
    x = tf_keras.layers.Dropout(0.1)(outputs["pooled_output"])
    return tf_keras.Model(texts, tf_keras.layers.Dense(1)(x))


def _keras_model(encoder: str, preprocessor: str) -> Any:
    import keras

    import bert_tf

    texts = [keras.Input([], dtype="string") for _ in range(2)]
    outputs = bert_tf.load(encoder).encoder(bert_tf.load_preprocessor(preprocessor, LENGTH)(*texts))
    x = keras.layers.Dropout(0.1)(outputs["pooled_output"])
    return keras.Model(texts, keras.layers.Dense(1)(x))


def _pairs(examples: Any) -> tuple:
    import tensorflow as tf

    texts = tf.constant(examples.texts_a), tf.constant(examples.texts_b)
    return texts, examples.targets["labels"].astype("float32")[:, None]


def _fit(model: Any, library: ModuleType, examples: Any) -> Any:
    import tensorflow as tf

    steps = EPOCHS * (len(examples) // BATCH_SIZE)
    schedule = library.optimizers.schedules.PolynomialDecay(LEARNING_RATE, steps, 0.0)
    loss = library.losses.BinaryCrossentropy(from_logits=True)
    model.compile(library.optimizers.AdamW(schedule, weight_decay=0.01), loss)
    batches = tf.data.Dataset.from_tensor_slices(_pairs(examples)).shuffle(10_000, seed=0)
    model.fit(batches.batch(BATCH_SIZE, drop_remainder=True), epochs=EPOCHS, verbose=0)
    return model


def _logits(model: Any, examples: Any) -> Any:
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensors(_pairs(examples)).unbatch().batch(BATCH_SIZE)
    return model.predict(batches, verbose=0)[:, 0]


def _scores(model: Any, examples: Any) -> str:
    from bert_tf.finetuning.metrics import accuracy, f1

    predictions = (_logits(model, examples) > 0).astype(int)
    scores = (metric(examples.targets["labels"], predictions) for metric in (accuracy, f1))
    return " | ".join(f"{score:.4f}" for score in scores)


def _reload(
    model: Any, library: ModuleType, custom_objects: dict[str, Callable], examples: Any
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        # hub.KerasLayer of a part of a SavedModel can only be saved in TensorFlow's format.
        path, flags = (
            (f"{folder}/model", {"save_format": "tf"})
            if custom_objects
            else (f"{folder}/model.keras", {})
        )
        model.save(path, **flags)
        loaded = library.models.load_model(path, custom_objects=custom_objects)
        same = (_logits(loaded, examples) == _logits(model, examples)).all()
    return "the same predictions" if same else "OTHER predictions"


if __name__ == "__main__":
    main()
