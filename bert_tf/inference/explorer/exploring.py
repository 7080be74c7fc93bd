"""What a model does with a text: tokens, words for each [MASK], attention."""

import base64
from typing import Any

import numpy as np

from bert_tf.checkpoint import open_checkpoint
from bert_tf.finite import check_computed
from bert_tf.inference.encoding import NOWHERE, EncodedLine, encode_lines, padded_inputs
from bert_tf.inference.inference_options import ExplorerOptions
from bert_tf.inference.masks import guesses, likeliest_tokens
from bert_tf.inference.models import load_model, load_tokenizer
from bert_tf.models.attention_probabilities import attention_probabilities
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.resolution import check_length, fitting_length
from bert_tf.text.tokenizer import WordPieceTokenizer

Exploration = dict[str, Any]


class Explorer:
    """Computes what a page shows of a text.

    Args:
        model: the trained model; a `BertEncoder` predicts no words.
        tokenizer: a tokenizer that recognizes special tokens in the text.
        max_seq_length: tokens per text, [CLS] and [SEP] included; further ones are left out.
        top_k: number of words per [MASK].

    Attributes:
        max_seq_length: as given.
        most_tokens: the most that it may be.
    """

    def __init__(
        self,
        model: BertPretrainer | BertEncoder,
        tokenizer: WordPieceTokenizer,
        max_seq_length: int,
        top_k: int,
    ):
        self.max_seq_length = max_seq_length
        self._encoder = getattr(model, "encoder", model)
        self.most_tokens = self._encoder.config.max_position_embeddings
        self._pretrainer = model if isinstance(model, BertPretrainer) else None
        self._tokenizer, self._vocab = tokenizer, tokenizer.vocab
        self._top_k = min(top_k, len(self._vocab))

    def explore(self, text: bytes) -> Exploration:
        """Returns what the model does with a text, or with a pair as "a ||| b", for JSON.

        Returns:
            text: the text.
            tokens, segments, sources: its tokens; for each, its segment, 0 or 1, and the part of
                the text that it stands for.
            truncated: whether tokens at the end were left out.
            masks: for each [MASK], its position among the tokens and the likeliest words with their
                probabilities; None without a masked-LM head.
            attention: the probabilities [L, N, S, S] as uint16 with 65535 for 1, in base64.
            layers, heads: L and N.
        """
        (line,) = encode_lines([text], self._tokenizer, self.max_seq_length, whole=False)
        inputs = padded_inputs([line.ids], [line.types], self._vocab.pad_id)
        attention = attention_probabilities(self._encoder, inputs).numpy()[:, 0]
        check_computed({"attention": attention})
        return {
            "text": text.decode("utf-8", "replace"),
            "tokens": [self._vocab.tokens[token] for token in line.ids],
            "segments": line.types.tolist(),
            "sources": [
                "" if start == NOWHERE else line.text[start:limit].decode("utf-8", "replace")
                for start, limit in zip(line.starts, line.limits, strict=True)
            ],
            "truncated": line.truncated,
            "masks": self._masks(line, inputs),
            "attention": base64.b64encode(np.rint(attention * 65535).astype("<u2")).decode(),
            "layers": attention.shape[0],
            "heads": attention.shape[1],
        }

    def _masks(self, line: EncodedLine, inputs: dict[str, np.ndarray]) -> list[dict] | None:
        if self._pretrainer is None:
            return None
        positions = np.flatnonzero(line.ids == self._vocab.mask_id)
        if not len(positions):
            return []
        inputs = inputs | {"masked_lm_positions": positions[None].astype(np.int32)}
        best = likeliest_tokens(self._pretrainer, inputs, len(self._vocab), self._top_k)
        (masks,) = guesses(best, self._vocab)
        return [
            {
                "position": int(position),
                "words": [{"token": token, "probability": round(p, 6)} for token, p in words],
            }
            for position, words in zip(positions, masks, strict=True)
        ]


def load_explorer(options: ExplorerOptions) -> Explorer:
    """Loads the model and its tokenizer."""
    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    length = options.max_seq_length or fitting_length(checkpoint.spec.config, 64)
    check_length(checkpoint.spec.config, length)
    tokenizer = load_tokenizer(checkpoint, options, special_tokens_in_text=True)
    head = "masked_lm" in checkpoint.parts
    parts = ["encoder", "projection", *["masked_lm"] * head]
    model = load_model(checkpoint, BertPretrainer if head else BertEncoder, parts)
    return Explorer(model, tokenizer, length, options.top_k)
