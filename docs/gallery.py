"""Draws the pictures of the documentation, of what it is given.

  python docs/gallery.py --quickstart=quickstart --encoder=all-MiniLM-L6-v2 --sst2=run-sst2 \
    --mrpc=run-mrpc --squad=run-squad --ner=run-ner --chinese=bert-base-chinese \
    --reviews=reviews --spam=spam --ablations=ablation

Without any of these flags, it draws what needs no model: diagrams and published figures.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Iterator

import keras
import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

import bert_tf
from bert_tf import plots
from bert_tf.ablations.running import draw_ablation
from bert_tf.comparison.students import PUBLISHED
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.documents import Lexicon
from bert_tf.examples.masking import mask_rows
from bert_tf.examples.segments import Rows
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.masks import MaskFiller
from bert_tf.inference.predictor import open_predictor
from bert_tf.plots import style
from bert_tf.plots.compression import Compressed, compressed_models
from bert_tf.text.tokenizer import WordPieceTokenizer

MILK = "the man bought a gallon of milk and carried it home"
# The usual example of ERNIE's masking, and names in it.
HARBIN = "哈尔滨是黑龙江的省会，国际冰雪文化名城"
NAMES = "哈尔滨", "黑龙江", "冰雪"
TASKS = "sst2", "mrpc", "squad", "ner"
# One of the sentences of bert_tf.REVIEWS that are held out.
REVIEW = "A moving film about two brothers who learn to forgive."
DOCS = pathlib.Path(__file__).parent
SENTENCES = {
    "she ate an apple": "fruit",
    "a basket of apple and plum": "fruit",
    "the apple fell from the tree": "fruit",
    "apple juice": "fruit",
    "apple and samsung": "company",
    "the new phone from apple": "company",
    "apple opened a store": "company",
    "apple sued google": "company",
}
FIRST = "returns the sum of array elements over a given axis."
SECOND = (
    "if axis is none, the sum of all elements is returned.",
    "the shape of the output is the same as that of the input.",
    "the server closes the connection when the client sends a request.",
    "this program is free software.",
)


Pictures = Iterator[tuple[str, Figure]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    drawings = {
        "quickstart": (draw_quickstart, "The folder that `make quickstart` fills"),
        "encoder": (draw_encoder, "A trained encoder, such as all-MiniLM-L6-v2"),
        "reviews": (draw_review, "The run of README's first example"),
        "spam": (draw_spam, "The run of docs/finetuning.md"),
        "chinese": (draw_chinese, "A Chinese vocab.txt, or a checkpoint that has one"),
        "ablations": (draw_grids, "The --output_dir of ablation"),
    }
    for name, (_, text) in drawings.items():
        parser.add_argument(f"--{name}", help=text)
    for task in TASKS:
        parser.add_argument(f"--{task}", help="A run fine-tuned on this task; needs all four")
    parser.add_argument("--output_dir", type=pathlib.Path, default=DOCS / "images/plots")
    parser.add_argument(
        "--slides", type=pathlib.Path, help="Write PNG files for slides into this folder instead"
    )
    flags = parser.parse_args(arguments)
    pictures = [draw_architecture(), draw_compression()]
    given = {name: path for name, path in vars(flags).items() if path}
    pictures += [draw(given[name]) for name, (draw, _) in drawings.items() if name in given]
    if given.keys() >= {*TASKS}:
        pictures.append(draw_fine_tuned(*(given[task] for task in TASKS)))
    pictures = itertools.chain(*pictures)
    if flags.slides:
        save_for_slides(flags.slides, pictures)
    else:
        save(flags.output_dir, pictures)


def draw_architecture() -> Pictures:
    """Draws the encoder, its layers, and what it is trained for."""
    configs = {name: bert_tf.preset_config(name) for name in ("base", "large")}
    yield "pretraining_and_finetuning", plots.pretraining_and_finetuning(configs["base"])
    yield "encoder_layers", plots.encoder_layers(configs)


def draw_encoder(path: str) -> Pictures:
    """Draws what an encoder computes of some sentences."""
    model, tokenizer, config = bert_tf.load(path)
    tokens, inputs = pack(tokenizer, ["my dog is cute", "he likes playing"])
    probabilities = bert_tf.attention_probabilities(model, inputs).numpy()[:, 0]
    head = min(8, config.num_attention_heads - 1)
    yield "attention", plots.attention(probabilities[1, head], tokens, f"Layer 1, head {head}")
    yield "attention_heads", plots.attention_heads(probabilities)
    tables, segments = model.embeddings, inputs["input_type_ids"][0].numpy()
    vectors = [
        tf.gather(tables.word_embeddings, inputs["input_word_ids"][0]),
        tf.gather(tables.type_embeddings, segments),
        tables.position_embeddings[: len(tokens)],
    ]
    yield "embedding_sum", plots.embedding_sum(tokens, segments, np.stack(vectors))
    apples = []
    for sentence in SENTENCES:
        tokens, inputs = pack(tokenizer, [sentence])
        layers = [tables(inputs["input_word_ids"], inputs["input_type_ids"])]
        layers += model(inputs)["encoder_outputs"]
        apples.append([layer[0, tokens.index("apple")] for layer in layers])
    apples, meanings = np.array(apples).swapaxes(0, 1), list(SENTENCES.values())
    title = 'The vectors of "apple" after the last layer'
    yield "embedding_map", plots.embedding_map(apples[-1], list(SENTENCES), meanings, title)
    yield "meaning_by_layer", draw_meanings(apples, meanings)
    yield "directions", draw_directions(model, tokenizer, config)
    # More is masked than usual, so that all three cases show.
    before, after, positions = mask(tokenizer, MILK, 18, most=4)
    yield "masked_example", plots.masked_example(before, after, positions)


def draw_review(path: str) -> Pictures:
    """Draws what a classifier answers, and what [CLS] attends to in its last layer."""
    model, tokenizer, _ = bert_tf.load(path)
    tokens, inputs = pack(tokenizer, [REVIEW])
    shares = bert_tf.attention_probabilities(model, inputs).numpy()[-1, 0].mean(axis=0)
    figure = style.new_figure(9, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=(1, 2))
    answer = bert_tf.load_predictor(path)(REVIEW)["probabilities"]
    plots.word_probabilities(list(answer), list(answer.values()), "The answer", left)
    left.margins(y=1)
    # The output for [CLS] gives the answer.
    for i, row in enumerate(shares):
        color, most = (style.COLORS[1], 9) if i == 0 else (style.COLORS[0], 3)
        for j, share in enumerate(row):
            right.plot([0, 1], [i, j], color=color, linewidth=most * share, alpha=0.8)
        right.text(-0.03, i, tokens[i], ha="right", va="center", color=style.INK)
        right.text(1.03, i, f"{tokens[i]}  {shares[0, i]:.0%}", va="center", color=style.INK)
    right.set(xlim=(-0.4, 1.6), xticks=[], yticks=[])
    right.invert_yaxis()
    style.finish_axes(right, "What [CLS] reads in the last layer (mean of its heads)")
    yield "review", figure


def draw_spam(path: str) -> Pictures:
    """Draws which text messages a classifier mistakes."""
    yield "spam", bert_tf.TrainedRun(path, {}).plot("confusion")


def draw_chinese(path: str) -> Pictures:
    """Draws a text masked by characters and by names; a checkpoint also predicts them."""
    if path.endswith(".txt"):
        model, tokenizer = None, WordPieceTokenizer(bert_tf.load_vocab(path))
    else:
        model, tokenizer, _ = bert_tf.load(path)
    figure = style.new_figure(9, 3.6 if model else 2.8)
    top, bottom = figure.subplots(2)
    for axes, title, seed, lexicon in (
        (top, "Masked by characters, as in BERT", 39, ()),
        (bottom, "Masked by names of a lexicon, as in ERNIE", 36, NAMES),
    ):
        before, after, positions = mask(tokenizer, HARBIN, seed, lexicon)
        guesses = predict_tokens(model, tokenizer, after, positions) if model else {}
        guesses = {i - 1: token for i, token in guesses.items()}
        # The characters alone, without [CLS] and [SEP].
        plots.masked_example(before[1:-1], after[1:-1], positions - 1, title, axes, guesses)
    yield "masked_names", figure


def mask(
    tokenizer: WordPieceTokenizer, text: str, seed: int, lexicon: tuple[str, ...] = (), most=5
) -> tuple[list[str], list[str], np.ndarray]:
    """Returns the tokens of a text before and after masking, and the indices to predict."""
    tokens, inputs = pack(tokenizer, [text])
    ids, vocab = inputs["input_word_ids"].numpy(), tokenizer.vocab
    words = np.isin(ids, [vocab.cls_id, vocab.sep_id], invert=True)
    starts = words & tokenizer.starts_word[ids]
    limits = np.array([0, ids.size])
    starts[0] = Lexicon(lexicon, tokenizer).join_units(ids[0], starts[0], limits)
    files = dict.fromkeys(("input_file", "output_file", "vocab_file"), "unused")
    masking = "entity" if lexicon else "wordpiece"
    options = DataOptions(**files, masking=masking, masked_lm_prob=1, max_predictions_per_seq=most)
    rows = Rows(ids, limits[1:], np.zeros_like(ids), words, starts)
    masked = mask_rows(rows, options, vocab, np.random.default_rng(seed))
    chosen = masked["masked_lm_positions"][0, masked["masked_lm_weights"][0] > 0]
    return tokens, [vocab.tokens[index] for index in masked["input_word_ids"][0]], chosen


def predict_tokens(model, tokenizer, tokens: list[str], positions: np.ndarray) -> dict[int, str]:
    """Returns the likeliest token at each position."""
    ids = np.array([tokenizer.vocab.ids[token] for token in tokens])
    [guesses] = MaskFiller(model, tokenizer, 1).guess([(ids, np.zeros_like(ids), positions)])
    return {int(i): token for i, [(token, _)] in zip(positions, guesses, strict=True)}


def draw_meanings(vectors: np.ndarray, meanings: list[str]) -> Figure:
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
    return axes.figure


def draw_directions(model, tokenizer, config) -> Figure:
    """Draws which tokens the outputs of BERT, a left-to-right encoder and LSTMs depend on."""
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
    names = "BERT", "Left to right", "LSTM, forward (random)", "LSTM, backward (random)"
    figure = style.new_figure(10.5, 9)
    for axes, name, vectors in zip(figure.subplots(2, 2).flat, names, outputs, strict=True):
        changes = np.linalg.norm(vectors[1:] - vectors[0], axis=-1).T
        plots.attention(changes / changes.sum(axis=1, keepdims=True), tokens, name, axes)
        axes.set(xlabel="token", ylabel="output")
        # One scale for all; roots, so that small shares show, too.
        axes.images[0].set_norm(PowerNorm(0.5, 0, 1))
        axes.images[0].colorbar.ax.yaxis.set_major_formatter("{x:.0%}")
    return figure


def draw_quickstart(folder: str) -> Pictures:
    """Draws what a pre-trained model predicts, and how it learned."""
    model, tokenizer, _ = bert_tf.load(f"{folder}/pretraining")
    vocab = tokenizer.vocab
    reader = WordPieceTokenizer(vocab, tokenizer.lower_case, special_tokens_in_text=True)
    text = "returns the sum of the elements along the given [MASK]."
    [[guesses]] = MaskFiller(model, reader, top_k=10).fill([text])
    yield "word_probabilities", plots.word_probabilities(*zip(*guesses, strict=True), text)
    follows = []
    for second in SECOND:
        _, inputs = pack(tokenizer, [FIRST, second])
        inputs["masked_lm_positions"] = tf.zeros([1, 1], tf.int32)
        follows.append(tf.nn.softmax(model(inputs)["next_sentence_logits"])[0, 0])
    title = f"What follows? {FIRST}"
    yield "next_sentence", plots.word_probabilities(SECOND, follows, title)
    files = (f"{folder}/pretraining/{name}.jsonl" for name in ("metrics", "eval_metrics"))
    lines = (pathlib.Path(file).read_text().splitlines() for file in files)
    yield "learning_curves", plots.learning_curves(*(list(map(json.loads, x)) for x in lines))


def pack(tokenizer: WordPieceTokenizer, texts: list[str]) -> tuple[list[str], dict]:
    """Returns the tokens of a text or a pair, and the inputs of an encoder."""
    segments = [tokenizer.tokenize([text]) for text in texts]
    length = 1 + sum(len(segment.flat_values) + 1 for segment in segments)
    inputs = bert_tf.pack_segments(segments, length, tokenizer.vocab)
    return [tokenizer.vocab.tokens[index] for index in inputs["input_word_ids"][0]], inputs


def draw_fine_tuned(sst2: str, mrpc: str, squad: str, ner: str) -> Pictures:
    """Draws what four fine-tuned models predict of a text, a pair, a question and words."""
    tokens, answer = predict(sst2, text="a moving film about two brothers")
    panels = [("A text: SST-2", tokens, {0: answer["label"]})]
    texts = dict(text="he bought the house in may", text_b="in may he bought the house")
    tokens, answer = predict(mrpc, **texts)
    panels.append(("A pair: MRPC", tokens, {0: answer["label"]}))
    texts = dict(question="who wrote it?", context="the book was written by jane austen.")
    tokens, answer = predict(squad, **texts)
    words = re.findall(r"\w+|\S", answer["text"].lower())
    spans = {tokens.index(words[0]): "start"} | {tokens.index(words[-1]): "end"}
    panels.append(("An answer: SQuAD", tokens, spans))
    tokens, answer = predict(ner, text="Angela Merkel met Siemens in Berlin .")
    starts = [i for i, token in enumerate(tokens[:-1]) if not token.startswith("##")][1:]
    tags = [word["tag"] for word in answer["words"]]
    panels.append(("Tags: CoNLL-2003", tokens, dict(zip(starts, tags, strict=True))))
    figure = style.new_figure(9, 7.6)
    for axes, (title, tokens, predictions) in zip(figure.subplots(4), panels, strict=True):
        plots.task_example(tokens, predictions, title, axes)
        axes.set_xlim(-1, 15.6)
    yield "fine_tuning", figure
    rows = pathlib.Path(f"{mrpc}/predictions_dev.tsv").read_text().splitlines()[1:]
    names, ids = np.unique([row.split("\t")[1:3] for row in rows], return_inverse=True)
    yield "confusion_matrix", plots.confusion_matrix(*ids.reshape(-1, 2).T, names)


def predict(path: str, **inputs: str) -> tuple[list[str], dict]:
    """Returns the tokens of a text or a pair, and what a fine-tuned model predicts."""
    tokens, _ = pack(bert_tf.load(path).tokenizer, list(inputs.values()))
    [answer], _ = open_predictor(PredictOptions(checkpoint=path)).predict([inputs])
    return tokens, answer


def draw_compression() -> Pictures:
    """Draws the figures of docs/compression.md and docs/recipes.md."""
    published = [
        Compressed(row.name, row.compression, row.quality, faster=row.speed_up)
        for row in itertools.chain(*PUBLISHED.values())
    ]
    title = "Published: size and quality; the area is the speed"
    yield "compression_published", compressed_models([], published, title)
    text = (DOCS / "results.md").read_text()
    row = r"^\| `(.+?)`.*? \| ([\d.]+) \| ([\d.]*) ?\| [\d.]+ \| ([\d.]+)% \|"
    models = [
        Compressed(name, 90.9 / float(size), float(kept) / 100, faster=float(faster or 0) or None)
        for name, size, faster, kept in re.findall(row, text, re.M)
    ]
    yield "compression", compressed_models(models, title="Students of MiniLM on SST-2")


def draw_grids(folder: str) -> Pictures:
    """Draws tables of ablations, measured and the paper's."""
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        yield path.stem, draw_ablation(json.loads(path.read_text()))


def save(folder: pathlib.Path, pictures: Pictures) -> None:
    """Writes pictures for light and dark pages, whose background shows through."""
    dark = "@media (prefers-color-scheme: dark) {svg > g {filter: invert(.88) hue-rotate(180deg)}}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures:
        path = folder / f"{name}.svg"
        with matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(path, metadata={"Date": None}, transparent=True)
        # A hundredth of a point is fine enough, and one line is small.
        text = re.sub(r"(\d\d\.\d\d)\d+", r"\1", " ".join(path.read_text().split()))
        path.write_text(text.replace("</style>", f"{dark}</style>", 1))


def save_for_slides(folder: pathlib.Path, pictures: Pictures) -> None:
    """Writes pictures that fill a slide of 1920 by 1080 pixels in width or in height."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures:
        width, height = figure.get_size_inches()
        figure.savefig(folder / f"{name}.png", dpi=min(1920 / width, 1080 / height))


if __name__ == "__main__":
    main()
