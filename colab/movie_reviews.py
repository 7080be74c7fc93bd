# %% [markdown]
# # Movie reviews: fine-tune BERT on raw text
#
# BERT reads a text and returns a vector that represents it. Here you add one new layer on top of BERT and
# train both on movie reviews, so that the model predicts whether a review is positive. You do this twice:
#
# 1. with **SavedModels and `hub.KerasLayer`** in tf_keras, as with models from TensorFlow Hub;
# 2. with a **native Keras 3 model**, which loads the same weights.
#
# Both models read raw strings: the tokenizer is part of them. At the end, you save the Keras 3 model, load it
# again and export it for a server.
#
# Training is faster on a GPU (*Runtime > Change runtime type*), but the default settings also run on a CPU.

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md): `hf:ORG/NAME` from the Hugging Face
# Hub, an encoder of TensorFlow Hub, or a folder with your own run or export. The default is small and fast.
# `hf:google-bert/bert-base-uncased` is five times as large and more accurate; give it more reviews and a
# learning rate of 3e-5.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
TRAIN_REVIEWS = 2000  # @param {type:"integer"}
TEST_REVIEWS = 1000  # @param {type:"integer"}
SEQ_LENGTH = 128  # @param {type:"integer"}
EPOCHS = 2  # @param {type:"integer"}
LEARNING_RATE = 1e-4  # @param {type:"number"}

# %% [markdown]
# ## The reviews
#
# The [Large Movie Review Dataset](https://ai.stanford.edu/~amaas/data/sentiment/) has 25,000 reviews for
# training and 25,000 for testing, half of them positive. `DATA_DIR` is its folder `aclImdb`; without it, the
# next cell downloads 80 MB.

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # hides messages about hardware

import keras

if not DATA_DIR:
    DATA_DIR = keras.utils.get_file(
        "aclImdb",
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        extract=True,
    )
    DATA_DIR = os.path.join(DATA_DIR, "aclImdb")


def read_reviews(split, number):
    reviews = keras.utils.text_dataset_from_directory(
        os.path.join(DATA_DIR, split),
        class_names=["neg", "pos"],
        batch_size=None,
        seed=1,
        verbose=False,
    )
    return reviews.take(number).cache()


train, test = read_reviews("train", TRAIN_REVIEWS), read_reviews("test", TEST_REVIEWS)
for text, label in train.take(3):
    print("positive" if label else "negative", "|", text.numpy().decode()[:200], "...\n")

# %% [markdown]
# ## Export the encoder and the preprocessor
#
# A model of TensorFlow Hub is a pair of SavedModels. The *preprocessor* splits text into WordPiece tokens and
# packs them into batches of one length; the *encoder* maps those to vectors. The same two commands export
# your own pre-trained encoder.
#
# After you change settings, delete both folders (`!rm -r encoder preprocessor`). Otherwise, the commands end
# with an error, and the cells below use the old folders.

# %%
# !python -m export.encoder --checkpoint="{MODEL}" --output_dir=encoder
# !python -m export.preprocessor --checkpoint="{MODEL}" --max_seq_length={SEQ_LENGTH} --output_dir=preprocessor

# %% [markdown]
# This is what the preprocessor turns a text into. `[CLS]` (101 in the published vocabularies) comes first and
# `[SEP]` (102) last; the mask is 0 for padding.

# %%
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # registers the operations of the tokenizer

preprocessor = hub.load("preprocessor")
for name, values in preprocessor(["a wonderful film"]).items():
    print(f"{name:15}", values.numpy()[0, :8], "...")

# %% [markdown]
# ## 1. `hub.KerasLayer` in tf_keras
#
# The whole model is three layers: preprocessor, encoder, and a new `Dense` layer that turns the encoder's
# `pooled_output` into one number. `trainable=True` lets training change the encoder as well.

# %%
import tf_keras

text_input = tf_keras.Input([], dtype=tf.string, name="text")
inputs = hub.KerasLayer("preprocessor", name="preprocessor")(text_input)
outputs = hub.KerasLayer("encoder", trainable=True, name="encoder")(inputs)
x = tf_keras.layers.Dropout(0.1)(outputs["pooled_output"])
hub_model = tf_keras.Model(text_input, tf_keras.layers.Dense(1, name="sentiment")(x))
hub_model.summary()

# %% [markdown]
# Fine-tuning uses a small learning rate, which falls to 0.

# %%
BATCH_SIZE = 32
steps = EPOCHS * (TRAIN_REVIEWS // BATCH_SIZE)


def learning_rate(schedules):
    return schedules.PolynomialDecay(LEARNING_RATE, decay_steps=max(1, steps), end_learning_rate=0)


hub_model.compile(
    tf_keras.optimizers.AdamW(learning_rate(tf_keras.optimizers.schedules), weight_decay=0.01),
    tf_keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[tf_keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")],
)
train_batches = train.shuffle(10_000, seed=1).batch(BATCH_SIZE, drop_remainder=True)
test_batches = test.batch(BATCH_SIZE)
history = hub_model.fit(train_batches, validation_data=test_batches, epochs=EPOCHS, verbose=2)
# %% [markdown]
# ## 2. A native Keras 3 model
#
# `hub.KerasLayer` works only with tf_keras. In Keras 3, `bert_tf.load` reads the same weights into a native
# model, whose layers you can inspect, freeze and train like any others.

# %%
import bert_tf

text_input = keras.Input([], dtype="string", name="text")
inputs = bert_tf.load_preprocessor("preprocessor")(text_input)
outputs = bert_tf.load("encoder").encoder(inputs)
x = keras.layers.Dropout(0.1)(outputs["pooled_output"])
model = keras.Model(text_input, keras.layers.Dense(1, name="sentiment")(x))
model.compile(
    keras.optimizers.AdamW(learning_rate(keras.optimizers.schedules), weight_decay=0.01),
    keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")],
)
history = model.fit(train_batches, validation_data=test_batches, epochs=EPOCHS, verbose=2)
# %% [markdown]
# ## Try it
#
# The model returns a logit. The sigmoid function turns it into the probability that the review is positive.
# The model is small and the stored one was trained on only 2,000 reviews, so expect it to miss irony and hints.

# %%
reviews = [
    "A wonderful film. I laughed, I cried, and I would watch it again tomorrow.",
    "Dull from the first minute to the last: I nearly fell asleep.",
    "The actors do what they can, but the story goes nowhere.",
]
for review, logit in zip(reviews, model.predict(tf.constant(reviews), verbose=0)[:, 0]):
    print(f"{keras.ops.sigmoid(logit):6.1%} positive | {review}")

# %% [markdown]
# ## Save, reload and serve
#
# A `.keras` file contains the weights and the vocabulary, so it needs no other file. `export` writes a
# SavedModel for TensorFlow Serving, which maps strings to logits and needs neither Keras nor bert_tf. The two
# printed numbers are the largest differences between the model's logits and those of the two saved copies.

# %%
model.save("reviews.keras")
reloaded = keras.models.load_model("reviews.keras")
model.export("serving", verbose=False)
served = tf.saved_model.load("serving")

logits = model.predict(tf.constant(reviews), verbose=0)
print("reloaded:", abs(reloaded.predict(tf.constant(reviews), verbose=0) - logits).max())
print("served:  ", abs(served.serve(tf.constant(reviews)).numpy() - logits).max())

# %% [markdown]
# ## Next
#
# - Train on all reviews: set `TRAIN_REVIEWS` and `TEST_REVIEWS` to 25000 and `SEQ_LENGTH` to 512. A
#   review has 230 words on average; the model reads only the first `SEQ_LENGTH` tokens.
# - The command `python -m bert_tf.run_finetuning --task=imdb` does the same, keeps the best weights and
#   resumes interrupted runs; `--task=csv` reads your own tables.
# - The notebook *pretrain_your_own* makes an encoder from your own text.
