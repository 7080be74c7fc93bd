# %% [markdown]
# # Look inside BERT
#
# Introductions to BERT draw pictures of what it does. Here you compute them from a real model: what it reads,
# how words are hidden from it, what it predicts in their places, how it tells the two meanings of *apple*
# apart, and which words attend to which. You also ask it whether one sentence follows another.

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md) that still has the heads of its
# pre-training: a published BERT, or a run of your own whose vocabulary has the words *apple*, *cat* and *it*.
# `TAGGED` is a CoNLL file for the last section; without it, tensorflow-datasets downloads CoNLL-2003.
#
# The stored outputs come from a small model: all-MiniLM-L6-v2, which was published without heads, after 40
# minutes of pre-training on Wikipedia (2,200 batches of 32 pairs). To see the answers of a published BERT, the
# default, run the notebook.

# %% tags=["parameters"]
MODEL = "hf:google-bert/bert-base-uncased"  # @param {type:"string"}
TAGGED = ""  # @param {type:"string"}
SENTENCES = 500  # @param {type:"integer"}

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # hides messages about hardware

import keras
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import plots

model, tokenizer, config = bert_tf.load(MODEL)
encoder, vocab = model.encoder, tokenizer.vocab
print(
    f"{config.num_hidden_layers} layers of width {config.hidden_size} with "
    f"{config.num_attention_heads} heads, {len(vocab):,} tokens, {encoder.count_params():,} weights"
)


def pack(*texts):
    """Returns the encoder's inputs for a text or a pair, and their tokens."""
    segments = [tokenizer.tokenize([text]) for text in texts]
    length = 1 + sum(segment.flat_values.shape[0] + 1 for segment in segments)
    inputs = bert_tf.pack_segments(segments, length, vocab)
    return inputs, [vocab.tokens[id] for id in inputs["input_word_ids"][0]]


# %% [markdown]
# ## What it reads
#
# Figure 2 of the paper: the input of the first layer is the sum of three vectors for each token. One stands for the
# token, one for its segment, and one for its position. The cells show the first numbers of each vector: blue
# above zero, red below.

# %%
inputs, tokens = pack("my dog is cute", "he likes playing")
segments = inputs["input_type_ids"][0].numpy()
table = encoder.embeddings
vectors = [
    keras.ops.take(table.word_embeddings, inputs["input_word_ids"][0], axis=0),
    keras.ops.take(table.type_embeddings, segments, axis=0),
    table.position_embeddings[: len(tokens)],
]
plots.embedding_sum(tokens, segments, np.array(vectors))

# %% [markdown]
# ## How words are hidden
#
# Pre-training chooses 15% of the tokens. It replaces 80% of those with `[MASK]` and 10% with a random token,
# and leaves 10% unchanged. The model must predict all of them, so it can never be sure that the word it sees
# is the right one. Here, 40% are chosen, so that one sentence shows all three cases.

# %%
from tfrecords.dynamic_masking import TRAINING, DynamicMasking, mask_batch

inputs, tokens = pack(
    "the man went to the store, bought a gallon of milk and carried it home through the rain"
)
masking = DynamicMasking(
    vocab.mask_id, vocab.cls_id, vocab.sep_id, len(vocab), masked_lm_prob=0.4, seed=8
)
row = {**inputs, "next_sentence_labels": tf.zeros([1, 1], tf.int32)}
masked = mask_batch(row, len(tokens), masking, TRAINING, number=0, first_row=0)
chosen = masked["masked_lm_weights"] > 0
plots.masked_example(
    tokens,
    [vocab.tokens[id] for id in masked["input_word_ids"][0]],
    masked["masked_lm_positions"][chosen].numpy(),
)

# %% [markdown]
# ## Predicting the hidden word
#
# For a hidden word, the model returns a probability for every token of the vocabulary. These are the ten most
# probable ones.

# %%
fill = bert_tf.load_mask_filler(MODEL, top_k=10)
text = "She won the Nobel [MASK] in physics."
guesses = fill(text)["masks"][0]
words = [guess["token"] for guess in guesses]
plots.word_probabilities(words, [guess["probability"] for guess in guesses], title=text)

# %% [markdown]
# ## Does this sentence come next?
#
# The second task of pre-training: does the second sentence follow the first, or does it come from another
# document?

# %%
first = "the man went to the store"
seconds = ["he bought a gallon of milk", "penguins are flightless birds"]
probabilities = []
for second in seconds:
    inputs, tokens = pack(first, second)
    inputs["masked_lm_positions"] = tf.zeros([1, 1], tf.int32)
    logits = model(inputs)["next_sentence_logits"]
    probabilities.append(float(tf.nn.softmax(logits)[0, 0]))
plots.word_probabilities(seconds, probabilities, title=f'Does it follow "{first}"?')

# %% [markdown]
# ## Two meanings of a word
#
# Before the first layer, the vectors of *apple* differ only because of its position. Each layer mixes in the
# words around it, until the fruit and the company lie apart.

# %%
FRUIT, COMPANY = "fruit", "company"
sentences = {
    "she peeled an apple": FRUIT,
    "he ate an apple and a pear": FRUIT,
    "the apple fell from the tree": FRUIT,
    "a pie with apple and cinnamon": FRUIT,
    "apple released a new phone": COMPANY,
    "apple and samsung sell phones": COMPANY,
    "shares of apple rose": COMPANY,
    "an engineer at apple": COMPANY,
}
vectors = []  # of "apple" in each sentence: the input of the first layer, and the output of each
for sentence in sentences:
    inputs, tokens = pack(sentence)
    place = tokens.index("apple")
    layers = [encoder.embeddings(inputs["input_word_ids"], inputs["input_type_ids"])]
    layers += encoder(inputs, training=False)["encoder_outputs"]
    vectors.append([np.array(layer)[0, place] for layer in layers])
vectors = np.array(vectors).swapaxes(0, 1)  # [layers + 1, sentences, H]

senses = list(sentences.values())
plots.embedding_map(vectors[-1], list(sentences), senses, title='"apple" after the last layer')

# %% [markdown]
# The cosine of the angle between two vectors says how alike they are. The table has the mean cosine of two
# sentences with the same meaning and of two with different meanings, before the first layer (*input*) and
# after each layer. The gap between them shows in which layers the model tells the meanings apart. Layers and
# heads are numbered from 0, as in the code.

# %%
unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
cosines = unit @ unit.swapaxes(1, 2)  # [layers + 1, sentences, sentences]
alike = np.equal.outer(senses, senses)
print("layer   same meaning   different   gap")
for layer, values in enumerate(cosines):
    same = values[alike & ~np.eye(len(senses), dtype=bool)].mean()
    different = values[~alike].mean()
    name = layer - 1 if layer else "input"
    print(f"{name:5} {same:14.3f} {different:11.3f} {same - different:+.3f}")

# %% [markdown]
# ## Which words attend to which
#
# In every layer, each head lets a token attend to the others. Some heads attend to the word before or after,
# many to `[CLS]` or `[SEP]`, and some have learned something about grammar. In each square, a row is the
# attending token, and a column the token that it attends to.

# %%
inputs, tokens = pack("the cat sat on the mat because it was tired", "the cat slept")
attention = np.array(bert_tf.attention_probabilities(encoder, inputs))[:, 0]
plots.attention_heads(attention)

# %% [markdown]
# In which head does *it* attend to *cat* the most? (Another sentence may give another head.)

# %%
to_cat = attention[:, :, tokens.index("it"), tokens.index("cat")]
layer, head = np.unravel_index(to_cat.argmax(), to_cat.shape)
plots.attention(
    attention[layer, head],
    tokens,
    title=f'layer {layer}, head {head}: "it" attends to "cat" with {to_cat.max():.0%}',
)

# %% [markdown]
# ## Which layers know a word's tag?
#
# A linear classifier on the vectors of one layer shows how much that layer says about named entities. The
# bars are not probabilities but the shares of words that get the right tag. The majority class, `O`, has
# 79% of the words. The input knows little more than the word itself, the first layers add its context, and
# the last ones specialize in predicting hidden words.

# %%
from sklearn.linear_model import LogisticRegression

from bert_tf.finetuning.tagging.conll import read_conll, read_tfds

text = read_conll(TAGGED) if TAGGED else read_tfds("train")
layers, tags = [[] for _ in range(config.num_hidden_layers + 1)], []
for sentence in text.sentences[:SENTENCES]:
    pieces = [tokenizer.tokenize([word]).flat_values.numpy() for word in sentence.words]
    starts = 1 + np.cumsum([0, *map(len, pieces)])[:-1]  # the first piece of each word
    known = [i for i, piece in enumerate(pieces) if len(piece) and starts[i] < 126]
    ids = tf.ragged.constant([np.concatenate(pieces)], dtype=tf.int32)
    inputs = bert_tf.pack_segments([ids], min(128, ids.flat_values.shape[0] + 2), vocab)
    outputs = [encoder.embeddings(inputs["input_word_ids"], inputs["input_type_ids"])]
    outputs += encoder(inputs, training=False)["encoder_outputs"]
    for layer, output in zip(layers, outputs):
        layer.append(np.array(output)[0, starts[known]])
    tags += [sentence.tags[i] for i in known]

half = len(tags) // 2
scores = []
for layer in map(np.concatenate, layers):
    probe = LogisticRegression(max_iter=200).fit(layer[:half], tags[:half])
    scores.append(probe.score(layer[half:], tags[half:]))
names = ["input", *(f"layer {i}" for i in range(config.num_hidden_layers))]
figure = plots.word_probabilities(names, scores, title="Words with the right tag")
figure.axes[0].set_xlabel("share of the words")
figure
