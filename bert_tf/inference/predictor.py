"""Predicts examples with the module of a fine-tuning task, from any form on disk."""

import dataclasses
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.base.calling import called_options, checked, in_python, showing_settings
from bert_tf.base.files import shortened
from bert_tf.base.process import check_not_forked
from bert_tf.base.progress import counted, say
from bert_tf.config import Head
from bert_tf.finetuning.evaluating import evaluate
from bert_tf.finetuning.fine_tuned import load_task_model, member_paths, open_members
from bert_tf.inference.engine import Engine
from bert_tf.inference.explaining import explained, located
from bert_tf.inference.inference_options import (
    LITE,
    ONNX,
    FineTunedOptions,
    PredictOptions,
    PredictorOptions,
)
from bert_tf.inference.models import Loaded, load_tokenizer
from bert_tf.inference.prediction_files import cells_of
from bert_tf.inference.presenting import JsonAnswer, Prediction, Predictions, answer_of
from bert_tf.inference.single_file import open_single_file
from bert_tf.inference.texts import Example, columns_of_run, given_examples, is_frame
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.tables.columns import Columns
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.saved_model import is_text_model
from bert_tf.weights.opening import anchored_path

# What a model without labels predicts, by its last input.
_OUTPUTS = {"context": "answer", "choices": "index"}


class _OfWords(tf.Module):
    """Serves texts whose words are known, strings [B, N], with the module of a tagger."""

    truncates = None

    def __init__(self, module: tf.Module):
        super().__init__()
        signature = [tf.TensorSpec([None, None], tf.string)]
        self.serving = tf.function(module.serve_words, signature, autograph=False)


class Predictor(Loaded):
    """Predicts texts with a fine-tuned model. A call takes strings, dicts, lists and data frames.

    Args:
        module: what `Task.serving` returns, or the same from a SavedModel.
        batch_size: the most examples per call of the model.
        path: where the model comes from.
        checkpoint: the model, also as an attribute; None for one that was exported.
        head: what the model predicts; None if that is unknown.

    Attributes:
        signature: the inputs of the model.
        truncates: what the module truncates, and the flag that sets how many tokens it reads; None
            if it reads everything, in windows, or does not count.
        tokenizer: that of the model; None if it was exported to a SavedModel.
        columns: the columns of the tables that the model was trained on.
        labels: the names of classes or tags; () if there are none.
    """

    def __init__(
        self,
        module: tf.Module,
        batch_size: int,
        path: str = "",
        checkpoint: Checkpoint | None = None,
        head: Head | None = None,
    ):
        self._engine, self._batch_size = Engine(module), batch_size
        takes_words = hasattr(module, "serve_words")
        self._engine_of_words = Engine(_OfWords(module)) if takes_words else None
        self._serve_tokens = None
        if hasattr(module, "serve_tokens"):
            inputs = module.serving.input_signature
            self._serve_tokens = tf.function(module.serve_tokens, inputs, autograph=False)
        self.signature, self.truncates = self._engine.signature, self._engine.truncates
        self.tokenizer = getattr(module, "tokenizer", None)
        # Whoever takes it warns: a server does not repeat itself, whatever its threads.
        self._warning = threading.Lock()
        self.columns = columns_of_run(checkpoint and checkpoint.run, takes_words)
        self.path, self.checkpoint = path, checkpoint
        self._head = head or Head("classifier")
        labels = getattr(module, "labels", None)
        self.labels = () if labels is None else tuple(x.decode() for x in labels.numpy())

    def __repr__(self) -> str:
        names = [spec.name for spec in self.signature]
        # Without labels, the last input says what the output is.
        outputs = self.labels or (_OUTPUTS.get(names[-1], "value"),)
        return f"Predictor({self.path!r}: {', '.join(names)} -> {shortened(outputs, 6)})"

    def evaluate(self, data: Any) -> dict[str, float]:
        """Returns the metrics on data with labels; see `TrainedRun.evaluate`.

        Raises:
            ValueError: the data have no labels, or other classes, or the model was exported.
        """
        if not self.checkpoint:
            raise ValueError(f"{self.path} was exported: evaluate the run that it was made from")
        return evaluate(tuple(member_paths(self.path)), data)

    @checked
    def __call__(
        self, texts: Any, *, text_column: str | None = None, text_b_column: str | None = None
    ) -> Any:
        """Returns the answers to texts, as `predict --json` prints them, with the inputs.

        Texts are computed in batches of similar length, so pass many at once.

        Args:
            texts: a string, or a dict of the model's inputs, such as `text`, `text` and `text_b`,
                or `question` and `context`, with an optional `id`. For a model of pairs, also a
                tuple of two strings, or a string as the command takes it, "a ||| b". For a tagger,
                a text may be a list of its words. Or several of these: a list, a pandas Series, a
                NumPy array, a generator. Or a pandas data frame.
            text_column, text_b_column: columns of a data frame, or keys of dicts. Default: as
                `predict` finds them in a table.

        Returns:
            for one example, a dict; for several, a list of dicts in the same order; for a data
            frame, the frame with added columns: `p(LABEL)` for the probability of a label, and
            `predicted_NAME` if it already has a column NAME. Labels are numbers, booleans or lists
            if those of the training data were. Notebooks draw dicts and lists.

        Raises:
            ValueError: an input is missing or not text; the message names its row, counted from 1.
                Or a data frame has a column NAME and a column `predicted_NAME`.
        """
        with in_python(PredictOptions):
            given = Columns(text_column, text_b_column)
            examples, single = given_examples(texts, self.signature, self.columns, given)
            added = self._names_in(texts) if is_frame(texts) else {}
            found, num_truncated = self.predict(examples, progress=True)
            pairs = zip(examples, found, strict=True)
            answers = Predictions(Prediction(example | answer) for example, answer in pairs)
            if num_truncated and self._warning.acquire(blocking=False):
                self.warn_about_length(num_truncated)
        if is_frame(texts):
            return _with_answers(texts, [*map(cells_of, found)], added)
        return answers[0] if single else answers

    @checked
    def explain(self, text: Any) -> Prediction:
        """Returns the answer to one example, and what speaks for it.

        For a classifier, that is the effect of each word: the probability of the likeliest class
        minus what it is for the text without the word, so words with positive effects speak for the
        class. A word stands between spaces, with its punctuation; a Chinese character is a word.
        The model reads the text once for each word. For an answer to a question, it is how probably
        the answer starts and ends at each token.

        Args:
            text: one example, in any form that a call takes.

        Returns:
            what a call returns, and more. For a class, `explained`, the likeliest class, as in
            `probabilities`, and `effects`, a list in the order of the text, and of a pair, with the
            `input` (`text` or `text_b`), the `word`, its `start` and `end` there, in bytes, and its
            `effect`; words after the 512th of a text are left out. For an answer, `tokens`, those
            of the context, each with its `start` and `end` in bytes, and the probabilities `starts`
            and `ends` that the first or the last token is this one. A notebook colors them.

        Example:
            predict.explain("a moving film")["effects"][1]["effect"]

        Raises:
            ValueError: the model predicts something else, or answers questions but was exported;
                or there is more than one example.

        Source: Visualizing and Understanding Convolutional Networks (arXiv:1311.2901) section 4.2,
        which covers parts of an image; Understanding Neural Networks through Representation Erasure
        (arXiv:1612.08220), which leaves out words.
        """
        with in_python(PredictOptions):
            examples, single = given_examples(text, self.signature, self.columns)
            if not single:
                raise ValueError("explain takes one text or pair: call it for each")
            if self._serve_tokens:
                found = self._serve_tokens(*([examples[0][x.name]] for x in self.signature))
                found = {name: values.numpy() for name, values in found.items()}
                return located(examples[0], self.predict(examples)[0][0], found)
            return explained(lambda rows: self.predict(rows, progress=True)[0], examples[0])

    def predict(
        self, examples: Sequence[Example], progress: bool = False
    ) -> tuple[list[JsonAnswer], int]:
        """Returns the answers to examples, in their order, and how many examples were truncated.

        Several threads may call it at once. It shows the `progress` if that takes some seconds.
        """
        answers: list[JsonAnswer | None] = [None] * len(examples)
        names, num_truncated = [spec.name for spec in self.signature], 0
        rows = [tuple(example[name] for name in names) for example in examples]
        bar = "Predicting" if progress else None
        for batch, outputs, truncated in self._run(rows, bar):
            num_truncated += truncated
            for row, index in enumerate(batch):
                own = {name: values[row] for name, values in outputs.items()}
                answers[index] = answer_of(own, self.labels, rows[index][0], self._head)
        return answers, num_truncated

    def _run(self, rows: Sequence[tuple], bar: str | None) -> Iterator[tuple]:
        """Yields what `Engine.run` does, of texts and of lists of words."""
        for engine, kind in ((self._engine, str), (self._engine_of_words, list)):
            own = [index for index, row in enumerate(rows) if isinstance(row[0], kind)]
            if own:
                found = engine.run([rows[index] for index in own], self._batch_size, bar)
                for batch, *others in found:
                    yield [own[index] for index in batch], *others

    def _names_in(self, frame: Any) -> dict[str, tuple[str, Any]]:
        """Returns the names of columns to add to a data frame, and a value of each, by its name."""
        example = {x.name: "a" if x.shape.rank == 1 else ["a"] for x in self.signature}
        found, known = cells_of(self.predict([example])[0][0]), {*frame.columns}
        names = {name: f"predicted_{name}" if name in known else name for name in found}
        if lost := next((name for name in names if names[name] in known), None):
            raise ValueError(
                f"the input has the columns {lost!r} and {names[lost]!r}: rename the second one, "
                "which the predictions would replace"
            )
        return {name: (names[name], value) for name, value in found.items()}

    def warn_about_length(self, num_truncated: int) -> None:
        """Prints how many examples were truncated, if any."""
        if num_truncated:
            noun, flag = self.truncates
            what = counted(num_truncated, noun)
            say(f"WARNING: truncated {what}: {flag} sets how many tokens the model reads.")


def _with_answers(
    frame: Any, rows: Sequence[dict[str, Any]], added: dict[str, tuple[str, Any]]
) -> Any:
    """Returns a data frame with the columns that `_names_in` names."""
    columns = {}
    for name, (new, value) in added.items():
        # An empty frame, too, has columns of the right types.
        columns[new] = [row[name] for row in rows] or [value]
    made = type(frame)(columns)
    return frame.assign(**{name: made[name].array[: len(rows)] for name in columns})


@showing_settings(PredictorOptions)
def load_predictor(
    checkpoint: str | os.PathLike | Sequence[str | os.PathLike], **settings: Any
) -> Predictor:
    """Loads a fine-tuned model to predict new texts, as the command `predict` does.

    Args:
        checkpoint: a run folder of run_finetuning, a fine-tuned model of another program, a
            file of export.lite or export.onnx, or a SavedModel of export.classifier; or a list of
            checkpoints, whose probabilities are averaged.
        settings: the flags of `predict` that say how to read: `batch_size`, `max_seq_length`,
            `pairs`, `null_score_diff_threshold`, `vocab_file` and `do_lower_case`. An exported
            model takes only the first.

    Example:
        predict = bert_tf.load_predictor("sst2")
        predict("a moving film")["label"]
        predict(["a moving film", "two hours of nothing"])
        frame = predict(pandas.read_csv("reviews.csv"), text_column="review")

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it is not a fine-tuned model, or a setting does not fit it.
    """
    given = settings | {"checkpoint": checkpoint}
    with in_python(PredictOptions):
        return open_predictor(called_options("load_predictor", PredictorOptions, given))


def open_predictor(options: PredictorOptions) -> Predictor:
    """Loads the best weights of one or several fine-tuned models, or an exported one."""
    check_not_forked()
    paths = member_paths(options.checkpoint)
    if alone := [path for path in paths if path.endswith((LITE, ONNX)) or is_text_model(path)]:
        path = alone[0]
        if len(paths) > 1:
            raise ValueError(f"{path} cannot be averaged: give it alone, or only checkpoints")
        flags = (field.name for field in dataclasses.fields(FineTunedOptions))
        options.refuse(flags, f"has no effect, as {path} states its own")
        open_ = open_single_file if path.endswith((LITE, ONNX)) else tf.saved_model.load
        predictor = Predictor(open_(path), options.batch_size, path)
    else:
        flags = options.max_seq_length, options.pairs, options.null_score_diff_threshold
        checkpoint, task, length = open_members(paths, *flags, options.vocab_file)
        tokenizer = load_tokenizer(checkpoint, options, task.is_pretrained)
        model = load_task_model(task, checkpoint)
        skip_padding(model)
        module = task.serving(model, tokenizer, length)
        path = ",".join(paths)
        predictor = Predictor(module, options.batch_size, path, checkpoint, task.head)
    again = tuple(map(anchored_path, paths))
    return predictor.loaded_by(open_predictor, options, checkpoint=again)
