"""What a model does with a text: its answer or vector, tokens, words for [MASK], attention."""

import base64
import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.files import read_file
from bert_tf.base.finite import check_computed
from bert_tf.config import EMBEDDING
from bert_tf.inference.encoding import NOWHERE, EncodedLine, Line, encode_lines, padded_inputs
from bert_tf.inference.inference_options import PageOptions, PredictorOptions
from bert_tf.inference.masks import MaskFiller
from bert_tf.inference.models import load_model, load_tokenizer
from bert_tf.inference.predictor import open_predictor
from bert_tf.inference.presenting import drawing_of
from bert_tf.inference.text_embedder import build_embedder, embedding_settings
from bert_tf.inference.texts import PAIR, parse_line
from bert_tf.models.bert_encoder import attention_probabilities
from bert_tf.models.inputs import POSITIONS
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.runs.run import SOME_TEXTS, Run
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings
from bert_tf.weights.names import HEAD_BIAS
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import check_length, fitting_length

Exploration = dict[str, Any]
# Texts for models whose run has none, by the last input of the model.
_EXAMPLES = {
    "text": [
        "Tom Hanks is wonderful in this moving film about Paris.",
        "Two dull hours in London, and not even Julia Roberts saves them.",
    ],
    "text_b": [
        "The man went to the store. ||| He bought a gallon of milk.",
        "The man went to the store. ||| Penguins cannot fly.",
    ],
    "context": [
        "Where is Chawton? ||| Chawton is a village in Hampshire, where Jane Austen lived.",
        "Who lived in Chawton? ||| Chawton is a village in Hampshire, where Jane Austen lived.",
    ],
    "choices": [
        "The man went to the store and\tbought a gallon of milk.\twas a penguin.",
        "She opened the book and\tbegan to read.\tdrank it.",
    ],
    "masks": [
        "The capital of France is [MASK].",
        "The man went to the store. ||| He bought a gallon of [MASK].",
        "A bank lends [MASK], and ducks rest on the bank of a river.",
        "Unbelievable: a naïve 🦆 plays the [MASK] ♫",
    ],
    "vectors": [
        "A cat sleeps on the sofa.",
        "The kitten naps on the couch.",
        "A bank lends money, and ducks rest on the bank of a river.",
    ],
}


class Explorer:
    """Computes what a page shows of a text, truncated to `max_seq_length` of `most_tokens`.

    `examples` are texts of the kind that it takes, from the data of its run if that has some.
    """

    def __init__(self, options: PageOptions):
        checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
        config = checkpoint.spec.config
        self.max_seq_length = options.max_seq_length or fitting_length(config, 64)
        self.most_tokens = config.max_position_embeddings
        check_length(config, self.max_seq_length)
        self._tokenizer = load_tokenizer(checkpoint, options, pretrained=not checkpoint.head)
        self._vocab = self._tokenizer.vocab
        self._heads = checkpoint.parts & {"masked_lm", "next_sentence"}
        if self._heads:
            parts = {"encoder", "projection"} | checkpoint.parts & {"pooler"} | self._heads
            self._model = load_model(checkpoint, BertPretrainer, parts)
        else:
            settings, self._has_vector = self._vector_settings(checkpoint)
            self._model = build_embedder(checkpoint, settings)
        self._predictor, kind = None, "masks" if self._heads else "vectors"
        if _is_fine_tuned(checkpoint):
            names = ("checkpoint", "max_seq_length", "vocab_file", "do_lower_case")
            settings = {name: getattr(options, name) for name in names}
            self._predictor = open_predictor(PredictorOptions(**settings))
            kind = self._predictor.signature[-1].name
        texts = (checkpoint.run and _texts_of(checkpoint.run)) or _EXAMPLES[kind]
        if kind == "vectors":
            # An encoder reads each text of a pair alone.
            texts = [part for text in texts for part in text.split(PAIR)]
        self.examples = texts
        self._filler = None
        if "masked_lm" in self._heads:
            self._filler = MaskFiller(self._model, self._tokenizer, options.top_k)

    def _vector_settings(self, checkpoint: Checkpoint) -> tuple[EmbeddingSettings, bool]:
        """Returns how to compute vectors, and whether it is as the folder says."""
        try:
            return embedding_settings(checkpoint, None, None, self.max_seq_length), True
        except ValueError as error:
            print(f"WARNING: the page shows no vectors: {error}.")
            return EmbeddingSettings(), False

    def explore(self, text: bytes) -> Exploration:
        """Returns what the model does with a text, or with a pair as "a ||| b", for JSON.

        Returns:
            text: the text.
            answer: that of a fine-tuned model, explained if it has classes or answers questions, as
                `drawing_of` returns it; None for other models.
            tokens, segments, sources: its tokens; for each, its segment, 0 or 1, and the part of
                the text that it stands for.
            truncated: whether tokens at the end were left out.
            words: for each token, the likeliest words if it is masked, with their probabilities;
                no words for [CLS] and [SEP]. None without a masked-LM head.
            next_sentence: the probability that b follows a; None for a single text or without a
                next-sentence head.
            vector: that of an encoder, of length 1; None for models that predict, and if it is
                computed in a way that is not supported.
            attention: the probabilities [L, N + 1, S, S] as uint16 with 65535 for 1, in base64; the
                last head is the mean of the others.
            layers, heads: L and N.
        """
        (line,) = encode_lines(
            [self._read(text)], self._tokenizer, self.max_seq_length, whole=False
        )
        inputs = padded_inputs([line.ids], [line.types], self._vocab.pad_id)
        attention = attention_probabilities(self._model.encoder, inputs).numpy()[:, 0]
        check_computed({"attention": attention})
        total = attention.sum(axis=1, keepdims=True)
        mean = total / total.sum(axis=-1, keepdims=True)  # Removed heads do not count.
        shares = np.rint(np.concatenate([attention, mean], axis=1) * 65535)
        return {
            "text": text.decode("utf-8", "replace"),
            "answer": self._answer(text),
            "tokens": [self._vocab.tokens[token] for token in line.ids],
            "segments": line.types.tolist(),
            "sources": [
                "" if start == NOWHERE else line.text[start:limit].decode("utf-8", "replace")
                for start, limit in zip(line.starts, line.limits, strict=True)
            ],
            "truncated": line.truncated,
            "words": self._words(line),
            "next_sentence": self._next_sentence(inputs),
            "vector": self._vector(inputs),
            "attention": base64.b64encode(shares.astype("<u2")).decode(),
            "layers": attention.shape[0],
            "heads": attention.shape[1],
        }

    def _read(self, text: bytes) -> Line:
        """Returns one or two texts as the model reads them."""
        with contextlib.suppress(ValueError):  # `_answer` reports it.
            if self._predictor and self._predictor.signature[-1].shape.rank == 1:
                return parse_line(text, self._predictor.signature)
        return text

    def _answer(self, text: bytes) -> dict[str, Any] | None:
        if not self._predictor:
            return None
        try:
            string = text.decode("utf-8", "replace")
            answer = self._predictor(string)
            if "context" in answer or isinstance(answer.get("probabilities"), dict):
                answer = self._predictor.explain(string)
            return drawing_of(answer)
        except ValueError as error:  # A text is not a pair, as the model needs.
            return {"texts": [], "bars": [], "note": str(error)}

    def _words(self, line: EncodedLine) -> list[list[dict]] | None:
        """Masks one token at a time; each [MASK] of the text stays masked."""
        if not self._filler:
            return None
        words = [[] for _ in line.ids]
        places = np.flatnonzero(line.starts != NOWHERE)
        masked = np.tile(line.ids, [len(places), 1])
        masked[np.arange(len(places)), places] = self._vocab.mask_id
        rows = [(ids, line.types, [place]) for ids, place in zip(masked, places, strict=True)]
        for place, (found,) in zip(places, self._filler.guess(rows), strict=True):
            words[place] = [{"token": word, "probability": round(p, 6)} for word, p in found]
        return words

    def _next_sentence(self, inputs: dict[str, np.ndarray]) -> float | None:
        if "next_sentence" not in self._heads or not inputs["input_type_ids"].any():
            return None
        inputs = inputs | {POSITIONS: np.zeros([1, 1], np.int32)}
        logits = self._model(inputs, training=False)["next_sentence_logits"]
        return round(float(tf.nn.softmax(logits)[0, 0]), 6)

    def _vector(self, inputs: dict[str, np.ndarray]) -> list[float] | None:
        if self._heads or self._predictor or not self._has_vector:
            return None
        (vector,) = self._model(inputs, training=False).numpy()
        return (vector / np.linalg.norm(vector)).round(6).tolist()


def _is_fine_tuned(checkpoint: Checkpoint) -> bool:
    """Returns whether a checkpoint has a head that was trained to predict more than vectors."""
    run, head = checkpoint.run, checkpoint.head
    if head and head.kind == EMBEDDING:
        return False
    if run and "task" in run.flags:
        # An unfinished run may have no evaluated weights yet.
        return run.finished is not False
    return bool(head) and HEAD_BIAS in checkpoint.tensors


def _texts_of(run: Run) -> list[str]:
    file = run.file("predictions_dev.tsv")
    if not tf.io.gfile.exists(file):
        return run.flags.get(SOME_TEXTS, [])
    header, *rows = (line.split("\t") for line in read_file(file).decode().split("\n")[:-1][:5])
    places = [header.index(name) for name in ("text", "text_a", "text_b") if name in header]
    return [" ||| ".join(row[place].strip() for place in places) for row in rows if places]
