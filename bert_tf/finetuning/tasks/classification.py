"""Classification of texts or pairs of texts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.examples import TextExamples, TfdsSource, hold_out
from bert_tf.finetuning.features import Features, encode_texts
from bert_tf.finetuning.task import Task
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.packing import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer

# From this share of the examples on, predictions of one class count as constant.
_NEARLY_ALL = 0.99


class ClassificationObjective:
    """Cross-entropy and accuracy of a `BertTaskModel` for the target `labels`, int [B].

    Source: google-research/bert run_classifier.py `create_model`, `metric_fn`.
    """

    measures = ("loss", "accuracy")
    losses = ("loss",)

    def counts(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the number of examples for each measure."""
        examples = tf.reduce_sum(batch["example_weights"])
        return {"loss": examples, "accuracy": examples}

    def sums(
        self, model: keras.Model, batch: Mapping[str, tf.Tensor], training: bool
    ) -> dict[str, tf.Tensor]:
        """Returns the sum of the losses and the number of correct predictions."""
        logits, weights = model(batch, training=training), batch["example_weights"]
        losses = keras.losses.sparse_categorical_crossentropy(
            batch["labels"], logits, from_logits=True
        )
        correct = keras.ops.equal(keras.ops.argmax(logits, axis=-1), batch["labels"])
        return {
            "loss": tf.reduce_sum(losses * weights),
            "accuracy": tf.reduce_sum(tf.cast(correct, tf.float32) * weights),
        }

    def outputs(self, model: keras.Model, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns `logits` [B, C]."""
        return {"logits": model(batch, training=False)}


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(Task):
    """Assigns one of several classes to a text or a pair of texts.

    Attributes:
        name: the value of --task.
        labels: the names of the classes, in the order of the model's outputs.
        read_files: maps a folder and a split to the examples of the split in the official files;
            None for a task that is only served.
        tfds: the source if no folder is given; None if there is none.
        pairs: whether an example is two texts.
        has_dev: whether there is a "dev" split; otherwise a tenth of "train" is held out.
        has_test: whether there is a "test" split with labels.
    """

    name: str
    labels: tuple[str, ...]
    read_files: Callable[[str, str], TextExamples] | None = None
    tfds: TfdsSource | None = None
    pairs: bool = False
    has_dev: bool = True
    has_test: bool = False

    metric = "accuracy"
    objective = ClassificationObjective()

    @property
    def dev_set(self) -> str:
        return "the dev set" if self.has_dev else "the held-out tenth of the training set"

    @property
    def head(self) -> Head:
        return Head("classifier", self.labels)

    def read_splits(self, data_dir: str | None, seed: int) -> dict[str, TextExamples]:
        splits = {"train": self._read(data_dir, "train")}
        if self.has_dev:
            splits["dev"] = self._read(data_dir, "dev")
        else:
            train = splits["train"]
            splits["train"], splits["dev"] = hold_out(train, train.targets["labels"], seed)
        if self.has_test:
            splits["test"] = self._read(data_dir, "test")
        return splits

    def _read(self, data_dir: str | None, split: str) -> TextExamples:
        if data_dir:
            examples, source = self.read_files(data_dir, split), data_dir
        elif self.tfds:
            examples, source = self.tfds.read(split), self.tfds.name
        else:
            raise ValueError(f"--task={self.name} needs --data_dir, the folder of its files")
        if not len(examples):
            raise ValueError(f"{source}: no examples in {split} of {self.name}")
        return examples

    def featurize(
        self, examples: TextExamples, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        return encode_texts(examples, tokenizer, max_seq_length)

    def build_model(self, config: BertConfig) -> BertTaskModel:
        return BertTaskModel(config, len(self.labels))

    def score(self, outputs: Mapping[str, np.ndarray], features: Features) -> dict[str, float]:
        """Returns the mean cross-entropy, `loss`, and the `accuracy`."""
        logits, labels = outputs["logits"].astype(np.float64), features.targets["labels"]
        log_sums = np.logaddexp.reduce(logits, axis=-1)
        losses = log_sums - np.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        correct = logits.argmax(axis=-1) == labels
        return {"loss": float(losses.mean()), "accuracy": float(correct.mean())}

    def problem(self, outputs: Mapping[str, np.ndarray], features: Features) -> str | None:
        """Reports (nearly) constant predictions, unless most labels are that class."""
        predicted = outputs["logits"].argmax(axis=-1)
        label = np.bincount(predicted).argmax()
        count, true = (int(np.sum(x == label)) for x in (predicted, features.targets["labels"]))
        if count < _NEARLY_ALL * len(predicted) or true >= count:
            return None
        return (
            f'the model predicts "{self.labels[label]}" for {count:,} of {len(predicted):,} '
            f"examples, but {true:,} are: it ignores its input. Try another --learning_rate "
            "(3e-4 for an encoder as small as tiny, 2e-5 for base), more epochs, or an "
            "--init_checkpoint that was trained for longer."
        )

    def serving(
        self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> "TextClassifier":
        return TextClassifier(model, tokenizer, self.labels, max_seq_length, pairs=self.pairs)

    def example_call(self) -> str:
        arguments = '["a text"], ["another"]' if self.pairs else '["a text"]'
        return (
            f"({arguments})  # a dict: the probabilities of {', '.join(self.labels)}, and the label"
        )


class TextClassifier(tf.Module):
    """Maps strings `text` [B], and `text_b` [B] for pairs, to `probabilities` and `label`.

    A call, and the signature `serving`, return a dict of `probabilities`, float32 [B, C], whose
    columns are in the order of the variable `labels`, and `label`, strings [B], the most likely.
    A call also takes a single string, or strings of any other shape, in place of [B].

    Args:
        model: a float32 model with the classes `labels`.
        max_seq_length: longer texts are truncated.
        pairs: whether an example is two texts.
    """

    def __init__(
        self,
        model: BertTaskModel,
        tokenizer: WordPieceTokenizer,
        labels: tuple[str, ...],
        max_seq_length: int,
        *,
        pairs: bool,
    ):
        super().__init__()
        self.labels = tf.Variable(labels, trainable=False, name="labels")
        # Only the variables: Keras layers would be saved together with functions nobody calls.
        self._weights = [variable.value for variable in model.variables]
        self._tokenizer = tokenizer
        names = ("text", "text_b") if pairs else ("text",)

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec([None], tf.string, n) for n in names]
        )
        def classify(*texts):
            segments = [tokenizer.tokenize_flat(text) for text in texts]
            inputs = pack_segments(segments, max_seq_length, tokenizer.vocab)
            # Padding that all rows share costs time and changes nothing.
            longest = tf.maximum(1, tf.reduce_max(tf.reduce_sum(inputs["input_mask"], axis=1)))
            inputs = {name: values[:, :longest] for name, values in inputs.items()}
            probabilities = tf.nn.softmax(model(inputs, training=False))
            label = tf.gather(self.labels, tf.argmax(probabilities, axis=-1))
            return {"probabilities": probabilities, "label": label}

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec(None, tf.string, n) for n in names]
        )
        def call(*texts):
            shape = tf.shape(texts[0])
            outputs = classify(*[tf.reshape(text, [-1]) for text in texts])
            return {
                name: tf.reshape(values, tf.concat([shape, tf.shape(values)[1:]], axis=0))
                for name, values in outputs.items()
            }

        self.__call__ = call
        self.serving = classify
