"""Draws the pictures of the pages on pictures, compression and ablations.

  python docs/gallery.py QUICKSTART ENCODER SST2 MRPC SQUAD NER

QUICKSTART is the folder that `make quickstart` fills; ENCODER a trained encoder, such as
hf:sentence-transformers/all-MiniLM-L6-v2; the others are runs fine-tuned on these tasks.
"""

import dataclasses
import json
import pathlib
import re
import sys

import keras
import matplotlib
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import plots
from bert_tf.compression.recipes import RECIPES
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.masking import mask_rows
from bert_tf.examples.rows import Rows
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.masks import MaskFiller
from bert_tf.inference.predictor import open_predictor
from bert_tf.plots import style
from bert_tf.plots.compression import Compressed, compressed_models
from bert_tf.text.tokenizer import WordPieceTokenizer

DOCS = pathlib.Path(__file__).parent
SENTENCES = {
    "she ate an apple": "fruit",
    "a basket of apple and plum": "fruit",
    "the apple fell from the tree": "fruit",
    "apple juice": "fruit",
    "apple and samsung": "company",
    "the new phone from apple": "company",
    "apple opened a store": "company",
    "shares of apple rose": "company",
}
FIRST = "returns the sum of array elements over a given axis."
SECOND = (
    "if axis is none, the sum of all elements is returned.",
    "the shape of the output is the same as that of the input.",
    "the server closes the connection when the client sends a request.",
    "this program is free software.",
)


def main(quickstart: str, encoder: str, sst2: str, mrpc: str, squad: str, ner: str) -> None:
    draw_encoder(encoder)
    draw_pretrained(quickstart)
    draw_fine_tuned(sst2, mrpc, squad, ner)
    draw_compression()
    rows = [json.loads(line) for line in open(f"{quickstart}/pretraining/metrics.jsonl")]
    held_out = [json.loads(line) for line in open(f"{quickstart}/pretraining/eval_metrics.jsonl")]
    save("learning_curves", plots.learning_curves(rows, held_out))
    rows = [line.split("\t")[1:3] for line in open(f"{mrpc}/predictions_dev.tsv")][1:]
    names, ids = np.unique(rows, return_inverse=True)
    save("confusion_matrix", plots.confusion_matrix(*ids.reshape(-1, 2).T, names))


def draw_encoder(path: str) -> None:
    """Draws what an encoder computes of some sentences."""
    model, tokenizer, config = bert_tf.load(path)
    tokens, inputs = pack(tokenizer, ["my dog is cute", "he likes playing"])
    probabilities = bert_tf.attention_probabilities(model, inputs).numpy()[:, 0]
    save("attention", plots.attention(probabilities[1, 8], tokens, "Layer 1, head 8"))
    save("attention_heads", plots.attention_heads(probabilities))
    tables, segments = model.embeddings, inputs["input_type_ids"][0].numpy()
    vectors = [
        tf.gather(tables.word_embeddings, inputs["input_word_ids"][0]),
        tf.gather(tables.type_embeddings, segments),
        tables.position_embeddings[: len(tokens)],
    ]
    save("embedding_sum", plots.embedding_sum(tokens, segments, np.stack(vectors)))
    apples = []
    for sentence in SENTENCES:
        tokens, inputs = pack(tokenizer, [sentence])
        layers = [tables(inputs["input_word_ids"], inputs["input_type_ids"])]
        layers += model(inputs)["encoder_outputs"]
        apples.append([layer[0, tokens.index("apple")] for layer in layers])
    apples, meanings = np.array(apples).swapaxes(0, 1), list(SENTENCES.values())
    title = 'The vectors of "apple" after the last layer'
    save("embedding_map", plots.embedding_map(apples[-1], list(SENTENCES), meanings, title))
    draw_meanings(apples, meanings)
    draw_directions(model, tokenizer, config)
    draw_masking(tokenizer)


def draw_masking(tokenizer) -> None:
    """Draws a text of which more is masked than usual, so that all three cases show."""
    tokens, inputs = pack(tokenizer, ["the man bought a gallon of milk and carried it home"])
    ids, vocab = inputs["input_word_ids"].numpy(), tokenizer.vocab
    words = np.isin(ids, [vocab.cls_id, vocab.sep_id], invert=True)
    row = Rows(ids, np.array([ids.size]), np.zeros_like(ids), words, words)
    files = dict.fromkeys(("input_file", "output_file", "vocab_file"), "unused")
    options = DataOptions(**files, masking="wordpiece", masked_lm_prob=1, max_predictions_per_seq=4)
    masked = mask_rows(row, options, vocab, np.random.default_rng(18))
    positions = masked["masked_lm_positions"][0]
    after = [vocab.tokens[index] for index in masked["input_word_ids"][0]]
    save("masked_example", plots.masked_example(tokens, after, positions))


def draw_meanings(vectors: np.ndarray, meanings: list[str]) -> None:
    """Draws the mean cosines of vectors with the same meaning and with different ones."""
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = unit @ unit.swapaxes(1, 2)
    same = np.equal.outer(meanings, meanings)
    axes = style.new_axes(6.4, 3.6)
    pairs = {"same meaning": same & ~np.eye(len(same), dtype=bool), "different meanings": ~same}
    for (label, chosen), color in zip(pairs.items(), style.COLORS, strict=False):
        axes.plot(cosines[:, chosen].mean(axis=1), "o-", color=color, label=label)
    axes.set_xticks(range(len(cosines)), ["input", *range(len(cosines) - 1)])
    axes.set(xlabel="output of layer", ylabel="mean cosine")
    style.set_title(axes, 'How alike the vectors of "apple" are')
    style.draw_grid(axes)
    style.draw_legend(axes)
    save("meaning_by_layer", axes.figure)


def draw_directions(model, tokenizer, config) -> None:
    """Draws which tokens the outputs of BERT, a left-to-right encoder and ELMo depend on."""
    left_to_right = bert_tf.BertEncoder(dataclasses.replace(config, is_decoder=True))
    left_to_right.set_weights(model.get_weights())
    keras.utils.set_random_seed(0)
    lstm = keras.layers.LSTM(config.hidden_size, return_sequences=True)
    lstm = keras.layers.Bidirectional(lstm, merge_mode=None)
    tokens, inputs = pack(tokenizer, ["the man went to the bank of the river"])
    # The first row is the text, and each of the others has [MASK] in one place.
    inputs = {name: tf.repeat(ids, len(tokens) + 1, axis=0) for name, ids in inputs.items()}
    masks = tf.pad(tf.eye(len(tokens), dtype=bool), [[1, 0], [0, 0]])
    ids = tf.where(masks, tokenizer.vocab.mask_id, inputs["input_word_ids"])
    inputs["input_word_ids"] = ids
    outputs = [encoder(inputs)["sequence_output"] for encoder in (model, left_to_right)]
    outputs += lstm(tf.gather(model.embeddings.word_embeddings, ids))
    names = "BERT", "Left to right", "ELMo, forward", "ELMo, backward"
    figure = style.new_figure(10.5, 9)
    for axes, name, vectors in zip(figure.subplots(2, 2).flat, names, outputs, strict=True):
        changes = np.linalg.norm(vectors[1:] - vectors[0], axis=-1).T
        plots.attention(changes / changes.sum(axis=1, keepdims=True), tokens, name, axes)
        axes.set(xlabel="token", ylabel="output")
    save("directions", figure)


def draw_pretrained(quickstart: str) -> None:
    """Draws what a pre-trained model predicts."""
    model, tokenizer, _ = bert_tf.load(f"{quickstart}/pretraining")
    vocab = tokenizer.vocab
    tokenizer = WordPieceTokenizer(vocab, tokenizer.lower_case, special_tokens_in_text=True)
    text = "returns the sum of the elements along the given [MASK]."
    [guesses] = MaskFiller(model, tokenizer, top_k=10).fill([text.encode()])[0]
    save("word_probabilities", plots.word_probabilities(*zip(*guesses, strict=True), text))
    follows = []
    for second in SECOND:
        _, inputs = pack(tokenizer, [FIRST, second])
        inputs["masked_lm_positions"] = tf.zeros([1, 1], tf.int32)
        follows.append(tf.nn.softmax(model(inputs)["next_sentence_logits"])[0, 0])
    save("next_sentence", plots.word_probabilities(SECOND, follows, f"What follows? {FIRST}"))


def pack(tokenizer: WordPieceTokenizer, texts: list[str]) -> tuple[list[str], dict]:
    """Returns the tokens of a text or a pair, and the inputs of an encoder."""
    segments = [tokenizer.tokenize([text]) for text in texts]
    length = 1 + sum(len(segment.flat_values) + 1 for segment in segments)
    inputs = bert_tf.pack_segments(segments, length, tokenizer.vocab)
    return [tokenizer.vocab.tokens[index] for index in inputs["input_word_ids"][0]], inputs


def draw_fine_tuned(sst2: str, mrpc: str, squad: str, ner: str) -> None:
    """Draws what four fine-tuned models predict of a text, a pair, a question and words."""
    figure = style.new_figure(9, 7.6)
    one, pair, question, words = figure.subplots(4)
    tokens, answer = predict(sst2, text="a moving film about two brothers")
    draw_task(one, "A text: SST-2", tokens, {0: answer["label"]})
    texts = dict(text="he bought the house in may", text_b="in may he bought the house")
    tokens, answer = predict(mrpc, **texts)
    draw_task(pair, "A pair: MRPC", tokens, {0: answer["label"]})
    texts = dict(question="who wrote it?", context="the book was written by jane austen.")
    tokens, answer = predict(squad, **texts)
    first, *_, last = answer["text"].lower().split()
    spans = {tokens.index(first): "start", tokens.index(last): "end"}
    draw_task(question, "An answer: SQuAD", tokens, spans)
    tokens, answer = predict(ner, text="Angela Merkel met Siemens in Berlin .")
    starts = [i for i, token in enumerate(tokens[:-1]) if not token.startswith("##")][1:]
    tags = [word["tag"] for word in answer["words"]]
    draw_task(words, "Tags: CoNLL-2003", tokens, dict(zip(starts, tags, strict=True)))
    save("fine_tuning", figure)


def predict(path: str, **inputs: str) -> tuple[list[str], dict]:
    """Returns the tokens of a text or a pair, and what a fine-tuned model predicts."""
    tokens, _ = pack(bert_tf.load(path).tokenizer, list(inputs.values()))
    [answer] = open_predictor(PredictOptions(checkpoint=path)).predict([inputs])
    return tokens, answer


def draw_task(axes, title: str, tokens: list[str], predictions: dict[int, str]) -> None:
    """Draws tokens, the encoder that reads them, and what a head predicts from its outputs."""
    axes.set(xlim=(-1, 15.6), ylim=(-0.4, 2.4), xticks=[])
    axes.set_yticks(range(3), ["token", "encoder", "prediction"])
    style.finish_axes(axes, title)
    axes.barh(1, len(tokens), 0.4, -0.5, color="#0072b2")
    text = dict(ha="center", va="center", fontsize=8, color="#000000")
    rows = (0, "->", "#cfe3f5", dict(enumerate(tokens))), (2, "<-", "#b5e3d3", predictions)
    for row, arrow, color, words in rows:
        box, line = dict(boxstyle="round", lw=0, fc=color), dict(arrowstyle=arrow, lw=0.8)
        for i, word in words.items():
            end = i, 0.65 + 0.35 * row
            axes.annotate(word, end, (i, row), **text, bbox=box, arrowprops=line)


def draw_compression() -> None:
    """Draws the figures of docs/compression.md and docs/results.md."""
    published = [
        Compressed(row.name, row.compression, row.quality, faster=row.speed_up)
        for recipe in RECIPES.values()
        for row in recipe.published
    ]
    title = "Published: size and quality; the area is the speed"
    save("compression_published", compressed_models([], published, title))
    text = (DOCS / "results.md").read_text()
    rows = re.findall(r"^\| `(.+?)`(.*?) \| ([\d.]+) \| [\d.]+ \| ([\d.]+)% \|", text, re.M)
    models = [
        Compressed(name, 90.9 / float(size), float(kept) / 100, None, faster)
        for name, note, size, kept in rows
        for faster in [2.0 if "3 layers" in note else 11.6 if name == "bilstm" else None]
    ]
    save("compression", compressed_models(models, title="Students of MiniLM on SST-2"))


def save(name: str, figure) -> None:
    """Writes a picture whose colors follow the light or dark theme of the page around it."""
    path = DOCS / f"images/plots/{name}.svg"
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(path, metadata={"Date": None})
    dark = "@media (prefers-color-scheme: dark) {svg > g {filter: invert(.92) hue-rotate(180deg)}}"
    # A hundredth of a point is fine enough, and one line is small.
    text = re.sub(r"(\d\d\.\d\d)\d+", r"\1", " ".join(path.read_text().split()))
    path.write_text(text.replace("</style>", f"{dark}</style>", 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
