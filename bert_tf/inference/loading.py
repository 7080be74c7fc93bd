"""Loads models and preprocessors for use in Python."""

import os
from typing import NamedTuple

import keras

from bert_tf.base.calling import checked, in_python
from bert_tf.base.command import Options
from bert_tf.base.progress import say
from bert_tf.config import BertConfig
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.bert_preprocessor import BertPreprocessor
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import load_or_warn
from bert_tf.weights.formats.saved_model import read_preprocessor
from bert_tf.weights.opening import local_folder, open_checkpoint
from bert_tf.weights.resolving import check_length, fitting_length
from tfrecords.vocabulary import Vocabulary, warn_about_casing


class LoadedRun(NamedTuple):
    """The result of `load`.

    Attributes:
        model: a `BertPretrainer` if the checkpoint has a masked-LM head; otherwise a `BertEncoder`,
            for a fine-tuning run without the task's head.
        tokenizer: the tokenizer; None if the vocabulary is unknown.
        config: the encoder's configuration.
    """

    model: keras.Model
    tokenizer: WordPieceTokenizer | None
    config: BertConfig

    def __repr__(self) -> str:
        layers, size = self.config.num_hidden_layers, self.config.hidden_size
        model = f"{type(self.model).__name__} with {layers} layers of {size}"
        return f"LoadedRun({model}, {self.tokenizer or 'no tokenizer'})"

    @property
    def encoder(self) -> BertEncoder:
        """The trained `BertEncoder`, of either kind of run."""
        return getattr(self.model, "encoder", self.model)


@checked
def load(path: str | os.PathLike) -> LoadedRun:
    """Loads the model, tokenizer and configuration of a run or another checkpoint.

    Args:
        path: a run folder of run_pretraining or run_finetuning, or a checkpoint in one. For a
            folder, loads the best weights if there are any, otherwise the newest. Also a checkpoint
            of another program; see https://bert-tf.github.io/bert_tf/checkpoints.html.

    Example:
        model, tokenizer, config = bert_tf.load("run")
        inputs = bert_tf.pack_segments([tokenizer.tokenize(["a text"])], 128, tokenizer.vocab)
        model.encoder(inputs)["pooled_output"]
        encoder = bert_tf.load("run").encoder

    Raises:
        FileNotFoundError: there is no checkpoint, or no bert_config.json beside it.
        ValueError: the checkpoint does not match the configuration.
    """
    checkpoint = open_checkpoint(path)
    spec = checkpoint.spec
    if "head" in checkpoint.parts:
        print(f"The head of {path} was not loaded: use load_predictor or load_embedder for it.")
    model = (BertPretrainer if "masked_lm" in checkpoint.parts else BertEncoder)(spec.config)
    load_or_warn(checkpoint, model.weights)
    _warn_about_casing(spec.vocab, spec.lower_case, path)
    tokenizer = make_tokenizer(spec.vocab, spec.lower_case) if spec.vocab else None
    return LoadedRun(model, tokenizer, spec.config)


@checked
def load_preprocessor(path: str | os.PathLike, seq_length: int | None = None) -> BertPreprocessor:
    """Loads the Keras layer that turns text into the inputs of an encoder.

    The SavedModel of a preprocessor is not run: the layer has its vocabulary and casing, and
    produces the tokens of google-research/bert. For text that is not plain ASCII, the Model
    Garden's preprocessors sometimes produce other tokens.

    Args:
        path: the SavedModel of a preprocessor, a run folder, or any other checkpoint that comes
            with its vocabulary; "tfhub:URL" and the like are downloaded as in `load`.
        seq_length: length of the inputs. Default: that of the SavedModel; for a checkpoint, 128 or
            the most that the encoder takes.

    Example:
        preprocessor = bert_tf.load_preprocessor("run", seq_length=64)
        inputs = preprocessor(["a text", "another one"])

    Raises:
        FileNotFoundError: there is neither a SavedModel nor a checkpoint.
        ValueError: the vocabulary is unknown, or `seq_length` is more than the encoder takes.
    """
    with local_folder(path) as folder:
        if saved := read_preprocessor(folder):
            vocab, lower_case, length = saved
        else:
            spec = open_checkpoint(folder).spec
            vocab, lower_case = spec.vocab, spec.lower_case
            length = fitting_length(spec.config)
            check_length(spec.config, seq_length or length)
    if vocab is None:
        raise ValueError(
            f"the vocabulary of {path} is unknown: use "
            "bert_tf.BertPreprocessor(VOCAB_FILE, lower_case=True or False)"
        )
    _warn_about_casing(vocab, lower_case, path)
    return BertPreprocessor(vocab, lower_case, length if seq_length is None else seq_length)


def _warn_about_casing(vocab: Vocabulary | None, lower_case: bool | None, source: str) -> None:
    with in_python(Options, {"do_lower_case": "do_lower_case"}):
        warn_about_casing(vocab, lower_case, source, say)
