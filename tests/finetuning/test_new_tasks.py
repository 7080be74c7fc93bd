"""A task of another kind is an addition: one with a model of its own runs through the driver."""

import dataclasses

import keras
import numpy as np
import pytest
from support import tuning_options

from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.features import Features, encode_texts
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.objectives import TaggingObjective
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.reports import read_results
from tfrecords.vocabulary import load_vocab


class _Tagger(keras.Model):
    def __init__(self, config):
        super().__init__(name="tagger")
        self.encoder = BertEncoder(config)
        self.kernel = self.add_weight(name="kernel", shape=(config.hidden_size, 2))

    def call(self, inputs, training=None):
        return self.encoder(inputs, training=training)["sequence_output"] @ self.kernel


class IdParityTask(Task):
    """Tagging: whether the id of each token is odd; an output per token."""

    name, metric, token_outputs = "parity", "token_accuracy", ("logits",)
    objective = TaggingObjective()

    def __init__(self, sentences):
        self._sentences = sentences

    def read(self, files, split):
        seed, count = {"train": (0, 192), "dev": (1, 21), "test": (2, 7)}[split]
        return TextExamples([text.encode() for text, _ in self._sentences(count, seed)], None, {})

    def featurize(self, examples, tokenizer, max_seq_length) -> Features:
        features = encode_texts(examples, tokenizer, max_seq_length)
        return dataclasses.replace(features, targets={"tags": features.ids % 2})

    def build_model(self, config):
        return _Tagger(config)

    def score(self, outputs, features):
        tags = np.concatenate(features.targets["tags"].to_list())
        predictions = np.concatenate(outputs["logits"]).argmax(axis=-1)
        return {"token_accuracy": float(np.mean(predictions == tags))}

    def write_predictions(self, folder, split, outputs, features):
        return []


def test_another_kind_of_task_is_one_object(sentences, files, config, load_best, tmp_path, capsys):
    """Oracle: the best weights in the plain model, one example at a time."""
    task = IdParityTask(sentences)
    flags = dict(learning_rate=1e-2, train_batch_size=4, eval_batch_size=6, num_train_epochs=1)
    options = tuning_options(files, tmp_path / "run", task=task.name, **flags)
    results = fine_tune(options, task)
    assert set(results) == {"global_step", "test_token_accuracy", "eval_token_accuracy"}
    assert results == read_results(f"{options.output_dir}/eval_results.txt")
    found = results["test_token_accuracy"]
    assert found > 0.6
    assert f"Token_accuracy {found:.4f} on the test" in capsys.readouterr().out
    model = load_best(task.build_model(config), options.output_dir)
    tokenizer = WordPieceTokenizer(load_vocab(options.vocab_file))
    features = task.featurize(task.read_splits(["test"], DataFiles(), 0)["test"], tokenizer, 24)
    predictions = {
        int(batch["example_index"][0]): model(batch).numpy()[0][: batch["input_mask"].sum()]
        for batch in eval_batches(features, 1).as_numpy_iterator()
    }
    outputs = {"logits": [predictions[index] for index in range(len(features))]}
    assert found == pytest.approx(task.score(outputs, features)["token_accuracy"], rel=1e-4)
