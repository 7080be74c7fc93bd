"""Tasks of other kinds are additions: a regression and a tagging task run through the driver."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.features import Features, encode_texts
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.run import fine_tune
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import latest_checkpoint, saved_tensors
from bert_tf.training.reports import read_results
from bert_tf.weights.loading import load_weights
from tfrecords.vocabulary import load_vocab


class _Objective:
    """Minimizes the mean of a loss over examples or tokens, and predicts the model's output."""

    measures = losses = ("loss",)

    def __init__(self, loss_and_weights):
        self._loss_and_weights = loss_and_weights

    def counts(self, batch):
        return {"loss": tf.reduce_sum(self._loss_and_weights(None, batch)[1])}

    def sums(self, model, batch, training):
        losses, weights = self._loss_and_weights(model(batch, training=training), batch)
        return {"loss": tf.reduce_sum(losses * weights)}

    def outputs(self, model, batch):
        return {"predictions": model(batch, training=False)}


class _ToyTask(Task):
    """Reads sentences; the subclasses say what to predict for them."""

    def __init__(self, sentences):
        self._sentences = sentences

    test_has_targets = True

    def read(self, files, split):
        seed, count = {"train": (0, 192), "dev": (1, 21), "test": (2, 7)}[split]
        return TextExamples([text.encode() for text, _ in self._sentences(count, seed)], None, {})

    def write_predictions(self, folder, split, outputs, features):
        return []

    def serving(self, model, tokenizer, max_seq_length):
        raise NotImplementedError

    def example_call(self):
        raise NotImplementedError


class ShareTask(_ToyTask):
    """Regression: which share of the tokens has the id 5."""

    name, metric = "share", "negative_mse"

    @staticmethod
    def _loss_and_weights(values, batch):
        losses = None if values is None else tf.square(values - batch["share"])
        return losses, batch["example_weights"]

    objective = _Objective(_loss_and_weights)

    def featurize(self, examples, tokenizer, max_seq_length) -> Features:
        features = encode_texts(examples, tokenizer, max_seq_length)
        share = np.array([np.mean(np.equal(ids, 5)) for ids in features.ids], np.float32)
        return dataclasses.replace(features, targets={"share": share})

    def build_model(self, config):
        return BertTaskModel(config, 1)

    def score(self, outputs, features):
        errors = outputs["predictions"] - features.targets["share"]
        return {"negative_mse": -float(np.mean(errors**2))}


class _Tagger(keras.Model):
    def __init__(self, config):
        super().__init__(name="tagger")
        self.encoder = BertEncoder(config)
        self.kernel = self.add_weight(name="kernel", shape=(config.hidden_size, 2))

    def call(self, inputs, training=None):
        return self.encoder(inputs, training=training)["sequence_output"] @ self.kernel


class IdParityTask(_ToyTask):
    """Tagging: whether the id of each token is odd; an output per token."""

    name, metric, token_outputs = "parity", "token_accuracy", ("predictions",)

    @staticmethod
    def _loss_and_weights(logits, batch):
        weights = tf.cast(batch["tags"] >= 0, tf.float32) * batch["example_weights"][:, None]
        if logits is None:
            return None, weights
        tags = tf.maximum(batch["tags"], 0)
        return keras.losses.sparse_categorical_crossentropy(tags, logits, True), weights

    objective = _Objective(_loss_and_weights)

    def featurize(self, examples, tokenizer, max_seq_length) -> Features:
        features = encode_texts(examples, tokenizer, max_seq_length)
        return dataclasses.replace(features, targets={"tags": features.ids % 2})

    def build_model(self, config):
        return _Tagger(config)

    def score(self, outputs, features):
        tags = np.concatenate(features.targets["tags"].to_list())
        predictions = np.concatenate(outputs["predictions"]).argmax(axis=-1)
        return {"token_accuracy": float(np.mean(predictions == tags))}


@pytest.mark.parametrize(("task_type", "chance"), [(ShareTask, -0.03), (IdParityTask, 0.6)])
def test_another_kind_of_task_is_one_object(
    task_type, chance, sentences, files, config, tmp_path, capsys
):
    """Oracle: the best weights in the plain model, one example at a time."""
    task = task_type(sentences)
    options = FineTuningOptions(
        task=task.name,
        vocab_file=str(files / "vocab.txt"),
        bert_config_file=str(files / "bert_config.json"),
        output_dir=str(tmp_path / "run"),
        do_train=True,
        do_eval=True,
        max_seq_length=24,
        train_batch_size=4,
        eval_batch_size=6,
        learning_rate=1e-2,
        num_train_epochs=1,
    )
    results = fine_tune(options, task)
    metric = f"test_{task.metric}"
    expected = {"global_step", metric, f"eval_{task.metric}"}
    assert set(results) == expected
    assert results == read_results(f"{options.output_dir}/eval_results.txt")
    assert results[metric] > chance
    assert (
        f"{task.metric.capitalize()} {results[metric]:.4f} on the test" in capsys.readouterr().out
    )

    model = task.build_model(config)
    load_weights(
        path := latest_checkpoint(f"{options.output_dir}/best"), saved_tensors(path), model.weights
    )
    tokenizer = WordPieceTokenizer(load_vocab(options.vocab_file))
    features = task.featurize(task.read_splits(["test"], DataFiles(), 0)["test"], tokenizer, 24)
    batches = [*eval_batches(features, 1).as_numpy_iterator()]
    predictions = {
        int(batch["example_index"][0]): model(batch).numpy()[0][: batch["input_mask"].sum()]
        if task.token_outputs
        else model(batch).numpy()[0]
        for batch in batches
    }
    ordered = [predictions[index] for index in range(len(features))]
    outputs = {"predictions": ordered if task.token_outputs else np.array(ordered)}
    assert results[metric] == pytest.approx(task.score(outputs, features)[task.metric], rel=1e-4)
