"""Draws the pictures of docs/plots.md from real models.

  python docs/gallery.py QUICKSTART ENCODER FINETUNED

QUICKSTART is the folder that `make quickstart` fills; ENCODER a trained encoder, such as
hf:sentence-transformers/all-MiniLM-L6-v2; FINETUNED a run of a classification task.
"""

import csv
import io
import json
import sys

import numpy as np
import tensorflow as tf
from PIL import Image

import bert_tf
from bert_tf import plots
from bert_tf.text.tokenizer import WordPieceTokenizer

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


def main(quickstart: str, encoder: str, finetuned: str) -> None:
    draw_encoder(encoder)
    draw_pretrained(quickstart)
    rows = [json.loads(line) for line in open(f"{quickstart}/pretraining/metrics.jsonl")]
    held_out = [json.loads(line) for line in open(f"{quickstart}/pretraining/eval_metrics.jsonl")]
    save("learning_curves", plots.learning_curves(rows, held_out))
    with open(f"{finetuned}/predictions_dev.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    names = sorted({row["label"] for row in rows})
    labels, predictions = (
        [names.index(row[column]) for row in rows] for column in ("label", "prediction")
    )
    save("confusion_matrix", plots.confusion_matrix(labels, predictions, names))


def draw_encoder(path: str) -> None:
    """Draws what an encoder computes of some sentences."""
    model, tokenizer, _ = bert_tf.load(path)
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
        apples.append(model(inputs)["sequence_output"][0, tokens.index("apple")])
    title = 'The vectors of "apple" after the last layer'
    groups = list(SENTENCES.values())
    save("embedding_map", plots.embedding_map(np.stack(apples), list(SENTENCES), groups, title))


def draw_pretrained(quickstart: str) -> None:
    """Draws what a pre-trained model predicts, and a record that it learned from."""
    model, tokenizer, _ = bert_tf.load(f"{quickstart}/pretraining")
    vocab = tokenizer.vocab
    tokenizer = WordPieceTokenizer(vocab, tokenizer.lower_case, special_tokens_in_text=True)
    text = "returns the sum of the elements along the given [MASK]."
    tokens, inputs = pack(tokenizer, [text])
    position = tokens.index("[MASK]")
    logits = model(inputs | {"masked_lm_positions": tf.constant([[position]])})["mlm_logits"]
    best = tf.math.top_k(tf.nn.softmax(logits[0, 0, : len(vocab)]), 10)
    words = [vocab.tokens[index] for index in best.indices]
    save("word_probabilities", plots.word_probabilities(words, best.values, text))
    examples = (
        masked_example(record, vocab)
        for record in tf.data.TFRecordDataset(f"{quickstart}/heldout.tfrecord").take(2000)
    )
    with_random = (
        example
        for example in examples
        if any(example[1][i] not in ("[MASK]", example[0][i]) for i in example[2])
    )
    save("masked_example", plots.masked_example(*min(with_random, key=lambda e: len(e[0]))))


def masked_example(record: tf.Tensor, vocab: bert_tf.Vocabulary) -> tuple:
    """Returns the tokens of a record before and after masking, and which are to be predicted."""
    feature = tf.train.Example.FromString(record.numpy()).features.feature
    ids, positions, labels = (
        np.array(feature[name].int64_list.value)
        for name in ("input_ids", "masked_lm_positions", "masked_lm_ids")
    )
    ids, positions, labels = (x[x.nonzero()] for x in (ids, positions, labels))
    before = ids.copy()
    before[positions] = labels
    return *([vocab.tokens[index] for index in x] for x in (before, ids)), positions


def pack(tokenizer: WordPieceTokenizer, texts: list[str]) -> tuple[list[str], dict]:
    """Returns the tokens of a text or a pair, and the inputs of an encoder."""
    segments = [tokenizer.tokenize([text]) for text in texts]
    length = 1 + sum(len(segment.flat_values) + 1 for segment in segments)
    inputs = bert_tf.pack_segments(segments, length, tokenizer.vocab)
    return [tokenizer.vocab.tokens[index] for index in inputs["input_word_ids"][0]], inputs


def save(name: str, figure) -> None:
    file = io.BytesIO()
    figure.savefig(file, dpi=90)
    # 128 colors look the same and take half the space.
    picture = Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(f"docs/images/plots/{name}.png", optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
