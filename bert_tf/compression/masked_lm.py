"""Words that a masked LM expects in place of the words of a text."""

import numpy as np
import tensorflow as tf

from bert_tf.checkpoint import open_checkpoint
from bert_tf.compression.glove import CANDIDATES, Glove
from bert_tf.compression.precomputed import fingerprint
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.resolution import resolve_vocab
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.loading import load_weights
from bert_tf.weights.names import part_of


class MaskedLM:
    """Finds the 15 likeliest words for each word of a text that is one token.

    As in the code of TinyBERT's authors, each word is masked alone, in the unchanged text.

    Args:
        path: a checkpoint with a masked-LM head.
        max_seq_length: how many tokens of a text are read; later words have no candidates.

    Attributes:
        lower_case: whether its texts are lower-cased.
        fingerprint: a checksum of everything that determines the candidates.
    """

    def __init__(self, path: str, max_seq_length: int):
        checkpoint = open_checkpoint(path)
        if "masked_lm" not in {part_of(name) for name in checkpoint.tensors}:
            raise ValueError(
                f"--masked_lm={path} has no masked-LM head, which predicts the words: give a run "
                "of run_pretraining, or another checkpoint with such a head"
            )
        vocab, self.lower_case = resolve_vocab(checkpoint)
        self._tokenizer = WordPieceTokenizer(vocab, self.lower_case)
        positions = checkpoint.spec.config.max_position_embeddings
        self._room = min(max_seq_length, positions) - 2
        self.fingerprint = f"{fingerprint(checkpoint)}, {self._room} tokens"
        self._model = BertPretrainer(checkpoint.spec.config)
        optional = ("pooler", "next_sentence")
        load_weights(checkpoint.path, checkpoint.tensors, self._model.weights, None, optional)
        words = _words(self._tokenizer)
        self._predict = tf.function(
            lambda ids, positions: _likeliest(self._model, ids, positions, words),
            autograph=False,
            reduce_retracing=True,
        )

    def candidates(
        self, text: bytes, glove: Glove | None = None
    ) -> tuple[list[str], list[list[str]]]:
        """Returns the normalized words of a text, and the candidates of each word.

        Words that are several tokens or [UNK] have the candidates of `glove`, or none without it.
        """
        vocab = self._tokenizer.vocab
        words = [word.decode() for word in self._tokenizer.words([text])[0].numpy()]
        found: list[list[str]] = [[] for _ in words]
        pieces = self._tokenizer.tokenize([text])[0]
        ids, starts = pieces.values.numpy()[: self._room], pieces.row_starts().numpy()
        read = np.flatnonzero(starts < len(ids))
        known = ids[starts[read]] != vocab.unk_id
        is_single = (pieces.row_lengths().numpy()[read] == 1) & known
        if glove:
            for word in read[~is_single]:
                found[word] = glove.neighbors(words[word])
        single = read[is_single]
        if not len(single):
            return words, found
        masked = np.repeat([[vocab.cls_id, *ids, vocab.sep_id]], len(single), axis=0)
        positions = starts[single] + 1
        masked[np.arange(len(single)), positions] = vocab.mask_id
        best = self._predict(tf.constant(masked, tf.int32), tf.constant(positions, tf.int32))
        for word, chosen in zip(single, best.numpy(), strict=True):
            found[word] = [vocab.tokens[token] for token in chosen]
        return words, found


def _words(tokenizer: WordPieceTokenizer) -> np.ndarray:
    """Returns the ids of the tokens that are words, which special and unused tokens are not."""
    special = [len(token) > 1 and token.startswith("[") for token in tokenizer.vocab.tokens]
    return np.flatnonzero(tokenizer.starts_word & ~np.array(special)).astype(np.int32)


def _likeliest(
    model: BertPretrainer, ids: tf.Tensor, positions: tf.Tensor, words: np.ndarray
) -> tf.Tensor:
    """Returns the likeliest of the tokens `words` at one position of every row, int32 [N, 15]."""
    inputs = {
        "input_word_ids": ids,
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
        "masked_lm_positions": positions[:, tf.newaxis],
    }
    logits = tf.gather(model(inputs, training=False)["mlm_logits"][:, 0], words, axis=1)
    best = tf.math.top_k(logits, min(CANDIDATES, len(words))).indices
    return tf.gather(words, best)
