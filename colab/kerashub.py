# %% [markdown]
# # KerasHub: a preset in, a trained preset out
#
# KerasHub, formerly KerasNLP, publishes BERT models as *presets*. bert_tf reads and writes them. Here you take
# a preset, see that both libraries compute the same with it, train it with `bert_tf.finetune`, and give the
# result back to KerasHub.
#
# The notebook takes about three minutes on a CPU.

# %% [markdown]
# ## Settings
#
# `MODEL` is `keras:` and the name of [a preset of BERT](https://keras.io/keras_hub/presets/), or the folder of
# one. The stored outputs come from such a folder, with the same model as the default.

# %% tags=["parameters"]
MODEL = "keras:all_minilm_l6_v2_en"  # @param {type:"string"}
EPOCHS = 3  # @param {type:"integer"}
LEARNING_RATE = 3e-4  # @param {type:"number"}

# %%
# !pip install --quiet keras-hub

# %% [markdown]
# ## A preset in
#
# This function loads a model in both libraries, gives both the same texts, and compares what they compute: the
# token ids, and the encoder's outputs for all tokens.

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # hides messages about hardware

import keras_hub
import numpy as np

import bert_tf

TEXTS = [
    "A wonderful film, start to finish.",
    "Two hours of boredom!",
    "the acting is unconvincing",
]
LENGTH = 32


def compare(preset, checkpoint):
    tokenizer = keras_hub.models.BertTokenizer.from_preset(preset)
    pack = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=LENGTH)
    their_inputs = pack(TEXTS)
    their_outputs = keras_hub.models.BertBackbone.from_preset(preset)(their_inputs)

    inputs = bert_tf.load_preprocessor(checkpoint, seq_length=LENGTH)(TEXTS)
    outputs = bert_tf.load(checkpoint).encoder(inputs)

    print("ids equal:", np.array_equal(their_inputs["token_ids"], inputs["input_word_ids"]))
    for name in "sequence_output", "pooled_output":
        difference = np.abs(their_outputs[name] - outputs[name]).max()
        print(f"largest difference of {name}: {difference:.1e}")


compare(MODEL.removeprefix("keras:"), MODEL)

# %% [markdown]
# ## Train it
#
# `bert_tf.REVIEWS` is a table of 200 sentences about films. `finetune` adds a layer with two outputs, trains it
# with the encoder, and measures the accuracy on 20 held-out sentences.

# %%
run = bert_tf.finetune(
    MODEL,
    bert_tf.REVIEWS,
    output_dir="reviews",
    num_train_epochs=EPOCHS,
    learning_rate=LEARNING_RATE,
)
run

# %% [markdown]
# ## A preset out
#
# `convert_checkpoint` writes the trained model as a preset of KerasHub. Presets do not store the names of classes,
# so the command prints them.

# %%
# !python -m bert_tf.convert_checkpoint --from=reviews --to=kerashub --output_dir=reviews-preset

# %% [markdown]
# The trained encoder computes the same in both libraries, too:

# %%
compare("reviews-preset", "reviews")

# %% [markdown]
# And KerasHub's classifier gives the probabilities of `run.predict`:

# %%
classifier = keras_hub.models.BertTextClassifier.from_preset("reviews-preset", activation="softmax")
probabilities = classifier.predict(np.array(TEXTS, dtype=object), verbose=0)
for text, theirs, answer in zip(TEXTS, probabilities, run.predict(TEXTS)):
    print(f"{theirs[1]:.4f} {answer['probabilities']['positive']:.4f} positive | {text}")

# %% [markdown]
# ## Next
#
# - Train further with KerasHub: `keras_hub.models.BertTextClassifier.from_preset("reviews-preset", num_classes=2)`,
#   then `compile` and `fit`.
# - Share the preset: `keras_hub.upload_preset("kaggle://USER/bert/keras/reviews", "reviews-preset")`.
# - [Converting](../docs/checkpoints.md#convert) lists the other formats: Google's, Hugging Face's, and run folders.
