# %% [markdown]
# # BERT in Python: a tour
#
# What most people use of bert_tf, in about 30 cells: from a table of texts to predictions, exports and vectors.
# Run the cells in order, because later ones use earlier results. *first_classifier* is a gentler start.
#
# The tour takes about ten minutes on a CPU.

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md), such as
# `hf:google-bert/bert-base-uncased`.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
STEPS = 300  # @param {type:"integer"}

# %% [markdown]
# ## What there is
#
# Names complete as you type, and `help(bert_tf.finetune)` lists every argument. The arguments are the flags of
# the matching command.

# %%
import bert_tf

print(*bert_tf.__all__)

# %% [markdown]
# ## Fine-tune on a table
#
# `finetune` takes a data frame, a dict of lists, a file (CSV, TSV, JSON lines, Parquet) or a Hugging Face dataset.
# Here, the texts are sentences about food and about music.

# %%
import pandas as pd

FOOD = [
    "the soup is hot",
    "bread and butter",
    "she cooks rice",
    "a slice of cake",
    "fresh fish and lemon",
]
MUSIC = [
    "the band plays",
    "a song for piano",
    "he sings at night",
    "drums and bass",
    "an old violin",
]
rows = [
    (f"{text}, {i}", label)
    for i in range(20)
    for label, x in (("food", FOOD), ("music", MUSIC))
    for text in x
]
table = pd.DataFrame(rows, columns=["text", "label"])
table.sample(4, random_state=1)

# %%
run = bert_tf.finetune(
    MODEL,
    train=table,
    output_dir="topics",
    num_train_epochs=2,
    max_seq_length=16,
    learning_rate=1e-4,
)
run

# %%
run.metrics

# %%
run.plot("confusion")

# %% [markdown]
# The run is saved in a folder. The same call, run again, reports its results, or resumes it if it was
# interrupted.

# %%
bert_tf.open_run("topics").metrics["eval_accuracy"]

# %% [markdown]
# ## Predict
#
# One text, several texts, or a table.

# %%
predict = bert_tf.load_predictor("topics")
predict("a spoon of honey")

# %%
predict(["a choir in the church", {"id": 7, "text": "cheese from France"}])

# %%
predict(table.head(3))

# %% [markdown]
# ## Several models together
#
# An ensemble averages the probabilities of runs that differ in their random seed.

# %%
bert_tf.finetune(
    MODEL,
    train=table,
    output_dir="again",
    num_train_epochs=2,
    max_seq_length=16,
    random_seed=2,
    quiet=True,
)
bert_tf.load_predictor("topics,again")("a spoon of honey")

# %% [markdown]
# ## Tags and questions
#
# Words and their tags are lists in the same table. For questions, give `task="squad"` and columns or files in
# SQuAD's format.

# %%
tagged = pd.DataFrame(
    {
        "words": [["Ada", "lives", "in", "Rome"], ["Rome", "is", "old"], ["she", "met", "Ada"]]
        * 20,
        "tags": [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O", "O"], ["O", "O", "B-PER"]] * 20,
    }
)
tagger = bert_tf.finetune(
    MODEL, train=tagged, output_dir="names", text_column="words", label_column="tags", label_type="tags", num_train_epochs=3,
    max_seq_length=16, learning_rate=1e-4, quiet=True,
)  # fmt: skip
tagger.predict("Ada is in Rome")

# %% [markdown]
# ## Export
#
# The SavedModel maps strings to probabilities and needs neither bert_tf nor Keras.

# %%
run.export("classifier")
bert_tf.load_predictor("classifier")("a spoon of honey")["label"]

# %% [markdown]
# ## Your own loop
#
# The same encoder is a Keras 3 model: add a layer and call `fit`. [Your own Keras model](../docs/keras.md)
# shows callbacks, several inputs and several devices.

# %%
import keras
import numpy as np

preprocessor = bert_tf.load_preprocessor(MODEL, seq_length=16)
text = keras.Input([], dtype="string")
vector = bert_tf.load(MODEL).encoder(preprocessor(text))["pooled_output"]
model = keras.Model(text, keras.layers.Dense(1)(vector))
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.AdamW(1e-4), loss, metrics=["accuracy"])
texts = np.array(table["text"], dtype=object)
history = model.fit(texts, (table["label"] == "food").to_numpy(), epochs=1, verbose=2)

# %% [markdown]
# ## Vectors
#
# Texts with similar meanings have similar vectors.

# %%
embedder = bert_tf.load_embedder(MODEL)
query, *vectors = embedder.encode(["a pop concert", "the band plays", "bread and butter"])
print([round(float(query @ vector), 2) for vector in vectors])

# %% [markdown]
# ## Pre-train your own encoder
#
# These cells turn text into a vocabulary, examples and an encoder. The encoder is too small, and trains too
# briefly, to be useful; *pretrain_your_own* trains a better one.

# %%
from pathlib import Path

Path("text.txt").write_text(
    "\n\n".join("\n".join(FOOD[i:] + MUSIC[:i]) for i in range(5) for _ in range(40))
)
bert_tf.build_vocabulary("text.txt", output_file="vocab.txt", vocab_size=200, quiet=True)

# %%
bert_tf.create_examples(
    "text.txt", output_file="examples.tfrecord", vocab_file="vocab.txt", max_seq_length=32,
    max_predictions_per_seq=5, quiet=True,
)  # fmt: skip

# %%
pretrained = bert_tf.pretrain(
    "examples.tfrecord", output_dir="encoder-run", preset="tiny", num_train_steps=STEPS, num_warmup_steps=10,
    learning_rate=1e-3, train_batch_size=32, quiet=True,
)  # fmt: skip
pretrained

# %%
pretrained.plot()

# %%
bert_tf.export_encoder(checkpoint="encoder-run", output_dir="encoder")

# %% [markdown]
# ## Look inside
#
# What each token of a text attends to, in one head of the classifier; *look_inside* draws much more.

# %%
encoder, tokenizer, config = bert_tf.load("topics")
inputs = bert_tf.pack_segments([tokenizer.tokenize(["bread and butter"])], 5, tokenizer.vocab)
attention = bert_tf.attention_probabilities(
    encoder, inputs
)  # [layers, texts, heads, tokens, tokens]
tokens = [tokenizer.vocab.tokens[index] for index in inputs["input_word_ids"][0]]
bert_tf.plots.attention(attention[-1, 0, 0], tokens, "The last layer, head 0")
