"""Predicts the tokens behind [MASK]."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.calling import called_options, in_python, showing_settings
from bert_tf.base.finite import check_computed
from bert_tf.base.process import check_not_forked
from bert_tf.base.progress import counted, say
from bert_tf.inference.encoding import EncodedLine, encode_lines, padded_inputs
from bert_tf.inference.inference_options import FillerOptions, FillMaskOptions
from bert_tf.inference.models import Loaded, load_model, load_tokenizer
from bert_tf.inference.presenting import Prediction, Predictions
from bert_tf.inference.texts import Example, given_examples, in_chunks, read_examples
from bert_tf.models.inputs import POSITIONS
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.coverage import CoverageCheck
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.opening import anchored_path, open_checkpoint

_BATCH_SIZE = 32
_INPUTS = [tf.TensorSpec([None], tf.string, "text")]
# The logits of a batch take this many times its size and that of the vocabulary.
_MASKS_PER_ROW = 16

# A token, and its probability in its place.
Guess = tuple[str, float]
# The token and segment ids of a row with [CLS] and [SEP], and its places to guess.
MaskedRow = tuple[np.ndarray, np.ndarray, np.ndarray]


def target_ids(tokenizer: WordPieceTokenizer, words: Sequence[str]) -> list[int]:
    """Returns the distinct ids of words that are tokens, as written or after normalization."""
    vocab, ids, problems = tokenizer.vocab, [], []
    for word in words:
        if word in vocab.ids:
            ids.append(vocab.ids[word])
            continue
        found = tokenizer.tokenize_flat(tf.constant([word]))[0].numpy()
        if len(found) == 1 and found[0] != vocab.unk_id:
            ids += found.tolist()
        else:
            tokens = " ".join(vocab.tokens[i] for i in found) or "no token"
            problems.append(f"{word!r} ({tokens})")
    if problems:
        raise ValueError(
            f"--targets must be single tokens of the vocabulary, but {', '.join(problems)} "
            f"{'are' if len(problems) > 1 else 'is'} not"
        )
    return list(dict.fromkeys(ids))


class MaskFiller(Loaded):
    """Predicts the most likely tokens for every [MASK] in a text, each independently of the others.

    If a text is longer than the encoder takes, the tokens around each [MASK] decide.

    Args:
        model: the trained model.
        tokenizer: a tokenizer that recognizes special tokens in the text.
        top_k: number of tokens per [MASK]; None for 5, or for all `targets`.
        targets: ids of the tokens to choose from (see `target_ids`); all if empty. Probabilities
            are always those among all tokens.
    """

    def __init__(
        self,
        model: BertPretrainer,
        tokenizer: WordPieceTokenizer,
        top_k: int | None = None,
        targets: Sequence[int] = (),
    ):
        self._vocab, self._tokenizer = tokenizer.vocab, tokenizer
        self._check = CoverageCheck(tokenizer)
        self._room = model.config.max_position_embeddings - 2
        top_k = min(top_k or len(targets) or 5, len(targets) or len(self._vocab))

        @tf.function(autograph=False, reduce_retracing=True)
        def predict(inputs):
            # Rows of the table may go beyond the vocabulary.
            logits = model(inputs, training=False)["mlm_logits"][:, :, : len(self._vocab)]
            probabilities = tf.nn.softmax(logits)
            if not targets:
                return tf.math.top_k(probabilities, top_k)
            best = tf.math.top_k(tf.gather(probabilities, targets, axis=-1), top_k)
            return best._replace(indices=tf.gather(targets, best.indices))

        self._predict = predict

    def __call__(self, texts: Any) -> Any:
        """Returns a text, or each of several, with its `masks`, as `fill_mask --json` prints it.

        `texts` is a string, a dict of `text` and an optional `id`, several of these, or a data
        frame.

        `masks` has a list for each [MASK] in the text: its most likely tokens, each a dict of
        `token` and `probability`, the best first. Notebooks draw them.

        Raises:
            ValueError: a text is missing or not text; the message names its row, counted from 1.
        """
        with in_python(FillMaskOptions):
            examples, single = given_examples(texts, _INPUTS)
            found = zip(examples, self.fill([x["text"] for x in examples]), strict=True)
            answers = Predictions(_answer(example, masks) for example, masks in found)
            without = [x["text"] for x in answers if x["text"] and not x["masks"]]
            _warn_without_mask(len(without), len(answers), "".join(without[:1]))
        return answers[0] if single else answers

    def fill(self, texts: Sequence[bytes | str]) -> list[list[list[Guess]]]:
        """Returns for each text and each [MASK] in it the most likely tokens, the best first.

        A text may be a pair, "a ||| b" or "[CLS] a [SEP] b [SEP]".
        """
        texts = [text.encode() if isinstance(text, str) else text for text in texts]
        self._check(texts)
        lines = encode_lines(texts, self._tokenizer, None)
        owned = [(i, row) for i, line in enumerate(lines) for row in self._rows(line)]
        filled = [[] for _ in texts]
        guesses = self.guess([row for _, row in owned])
        for (owner, _), masks in zip(owned, guesses, strict=True):
            filled[owner] += masks
        return filled

    def guess(self, rows: Sequence[MaskedRow]) -> list[list[list[Guess]]]:
        """Returns for each row and each place to guess in it the most likely tokens."""
        check_not_forked()
        guesses = []
        for batch in in_chunks(rows, _BATCH_SIZE):
            ids, types, places = zip(*batch, strict=True)
            inputs = padded_inputs(ids, types, self._vocab.pad_id)
            inputs[POSITIONS] = tf.ragged.constant(places, tf.int32).to_tensor().numpy()
            best = self._predict(inputs)
            tokens, shares = best.indices.numpy(), best.values.numpy()
            check_computed({"probabilities": shares})
            for row, own in enumerate(places):
                pairs = [zip(tokens[row, i], shares[row, i], strict=True) for i in range(len(own))]
                names = self._vocab.tokens
                guesses.append([[(names[i], float(p)) for i, p in mask] for mask in pairs])
        return guesses

    def _rows(self, line: EncodedLine) -> Iterator[MaskedRow]:
        """Yields windows of a text with all the context possible, which show every [MASK] once."""
        ids, types = line.ids[1:-1], line.types[1:-1]
        masks = np.flatnonzero(ids == self._vocab.mask_id)
        per_window = _MASKS_PER_ROW if len(ids) <= self._room else 1
        for group in in_chunks(masks, per_window):
            first = max(0, min(group[0] - self._room // 2, len(ids) - self._room))
            window = ids[first : first + self._room]
            window = np.concatenate([[self._vocab.cls_id], window, [self._vocab.sep_id]])
            shown = types[first : first + self._room]
            segments = np.pad(shown - shown[0], 1, "edge")
            yield window, segments, np.array(group) - first + 1


def fill_mask(options: FillMaskOptions) -> None:
    """Prints the answers; everything else goes to standard error."""
    out, total, without, first = sys.stdout, 0, 0, ""
    with contextlib.redirect_stdout(sys.stderr):
        filler = load_filler(options)
        for examples in read_examples(options, _INPUTS):
            texts = [example["text"] for example in examples]
            for example, masks in zip(examples, filler.fill(texts), strict=True):
                json_line = json.dumps(_answer(example, masks), ensure_ascii=False)
                print(json_line if options.json else _lines(example, masks), file=out)
                if example["text"] and not masks:
                    without, first = without + 1, first or example["text"]
            out.flush()
            total += len(texts)
        _warn_without_mask(without, total, first)


def _warn_without_mask(count: int, total: int, first: str) -> None:
    if count:
        where = f"{count:,} of {counted(total, 'text')}, such as {first!r:.60}"
        say(f"WARNING: no [MASK] in {where}: write it with brackets and in capital letters.")


def load_filler(options: FillerOptions) -> MaskFiller:
    """Loads the model and its tokenizer."""
    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    if "masked_lm" not in checkpoint.parts:
        raise ValueError(
            f"{options.checkpoint} has no masked-LM head, which predicts the words: give a run of "
            "run_pretraining, or another checkpoint with such a head"
        )
    tokenizer = load_tokenizer(checkpoint, options, pretrained=True)
    ids = tokenizer.vocab.ids  # A comma may be a token itself.
    words = [w for x in options.targets for w in ([x] if x in ids else x.split(","))]
    targets = target_ids(tokenizer, words)
    model = load_model(checkpoint, BertPretrainer, ("encoder", "projection", "masked_lm"))
    filler = MaskFiller(model, tokenizer, options.top_k, targets)
    return filler.loaded_by(load_filler, options, checkpoint=anchored_path(options.checkpoint))


@showing_settings(FillerOptions)
def load_mask_filler(checkpoint: str, **settings: Any) -> MaskFiller:
    """Loads a pre-trained model to predict the words behind [MASK], as `fill_mask` does.

    Args:
        checkpoint: a run of `pretrain`, or another checkpoint with a masked-LM head.
        settings: the flags of `fill_mask` that say what to show and how to read: `top_k`,
            `targets` (a list of words), `vocab_file` and `do_lower_case`.

    Example:
        fill = bert_tf.load_mask_filler("hf:google-bert/bert-base-uncased", top_k=3)
        fill("She won the Nobel [MASK] in physics.")

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it has no masked-LM head, or a setting does not fit it.
    """
    given = settings | {"checkpoint": checkpoint}
    with in_python(FillMaskOptions):
        return load_filler(called_options("load_mask_filler", FillerOptions, given))


def _answer(example: Example, masks: list[list[Guess]]) -> Prediction:
    answers = [[{"token": x, "probability": float(f"{p:.6g}")} for x, p in mask] for mask in masks]
    return Prediction(example | {"masks": answers})


def _lines(example: Example, masks: list[list[Guess]]) -> str:
    lines = [" ".join(example["text"].splitlines())]
    for number, guesses in enumerate(masks, 1):
        label = f"[MASK] {number}: " if len(masks) > 1 else ""
        words = (
            f"{token} {value:.1%}" if value > 0.0005 else f"{token} {100 * value:.2g}%"
            for token, value in guesses
        )
        lines.append(f"  {label}{', '.join(words)}")
    return "\n".join(lines)
