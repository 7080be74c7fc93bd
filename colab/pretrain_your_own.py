# %% [markdown]
# # Pre-train your own BERT
#
# Pre-training needs nothing but text. The encoder reads sentences in which some tokens are hidden and learns to
# fill them in, and it learns whether one sentence follows another. Fine-tuning then builds on what it has
# learned about your language or your field.
#
# In this notebook, you take text through every step: vocabulary, training examples, pre-training,
# and SavedModels for `hub.KerasLayer`. The encoder is tiny, so that it trains in about a quarter of an hour
# on a CPU. The same calls train encoders of any size on a GPU or a TPU, and each is also a command:
# `python -m bert_tf.run_pretraining` does what `bert_tf.pretrain` does.

# %% [markdown]
# ## Settings
#
# `TEXT` is a file with one sentence per line and a blank line between documents. Without it, the
# notebook collects the docstrings of Python, NumPy, Keras and TensorFlow: English prose that is already
# on the machine. `STRATEGY` is where to train: `auto` uses the GPUs if there are any. `tpu` needs
# [another environment](../docs/clusters.md#tpus), in which only training runs.

# %% tags=["parameters"]
TEXT = ""  # @param {type:"string"}
PRESET = "tiny"  # @param ["tiny", "mini", "small", "medium", "base", "large"]
VOCAB_SIZE = 8000  # @param {type:"integer"}
STEPS = 3600  # @param {type:"integer"}
STRATEGY = "auto"  # @param ["auto", "cpu", "gpu", "tpu"]

# %% [markdown]
# ## Text

# %%
from pathlib import Path

import bert_tf

if not TEXT:
    from bert_tf.quickstart import write_texts

    write_texts(Path("text.txt"), Path("heldout.txt"))
    TEXT = "text.txt"
lines = Path(TEXT).read_text(encoding="utf-8").split("\n")
print(f"{len(lines):,} lines\n")
print("\n".join(lines[1000:1010]))

# %% [markdown]
# ## Vocabulary
#
# WordPiece keeps frequent words whole and splits rare ones into pieces; all but the first begin with `##`. The
# table shows how many tokens a word of the text has on average.

# %%
vocab = bert_tf.build_vocabulary(TEXT, "vocab.txt", vocab_size=VOCAB_SIZE)

# %%
tokenizer = bert_tf.WordPieceTokenizer(vocab)
for text in "returns a new tensor", "an immutable hypergraph", "a wolf and seven goslings":
    print(text, "->", *[vocab.tokens[id] for id in tokenizer.tokenize([text]).flat_values])

# %% [markdown]
# ## Training examples
#
# Each example is a pair of segments. In half of them, the second segment continues the first; in the others, it
# comes from another document. (If single sentences often fill the first segment, more than half come from
# another document, because nothing is left to continue with.) 15% of the tokens are hidden, different ones in
# each pass over the text. `inspect` shows what the model will see.

# %%
records = bert_tf.create_examples(
    TEXT,
    vocab_file="vocab.txt",
    max_seq_length=64,
    max_predictions_per_seq=10,
    dupe_factor=4,
    output_file="examples.tfrecord",
)
# !python -m tfrecords.inspect --input_file=examples.tfrecord --num_examples=2

# %% [markdown]
# ## Pre-train
#
# One example in a hundred is held out for evaluation. The model still trains on its text, because
# `dupe_factor=4` makes four examples of it. On new text, the accuracy may be lower. To resume an interrupted
# run, run the cell again: on a CPU, the weights will be the same to the last bit.
#
# At first, the model learns only which tokens are frequent, and its accuracy stays around 0.15. Then
# it begins to use the words around the hidden one.

# %%
run = bert_tf.pretrain(
    records,
    output_dir="run",
    preset=PRESET,
    num_train_steps=STEPS,
    num_warmup_steps=max(1, STEPS // 10),
    learning_rate=1e-3,
    save_checkpoints_steps=max(1, STEPS // 6),
    strategy=STRATEGY,
)

# %%
run.plot()

# %% [markdown]
# ## Ask it
#
# Which tokens does the model predict for a hidden word?

# %%
fill = bert_tf.load_mask_filler(run)
fill(
    [
        "returns a new [MASK] with the same shape and type as the input.",
        "if the file does not [MASK], an error is raised.",
        "the default [MASK] is none.",
    ]
)

# %% [markdown]
# ## Export
#
# Two SavedModels, as on TensorFlow Hub: the encoder, and the preprocessor that maps text to its inputs.
# *movie_reviews*, *glue*, *squad* and *ner* accept the folder `encoder` as their `MODEL`. On Colab, copy it to
# Google Drive first, because each notebook runs on a machine of its own. An export needs a new folder: before
# you repeat it, delete the old ones (`!rm -r encoder preprocessor`).

# %%
run.export("encoder")
# !python -m export.preprocessor --checkpoint=run --output_dir=preprocessor

# %%
import tensorflow_hub as hub
import tensorflow_text  # registers the operations of the tokenizer

preprocessor, encoder = hub.load("preprocessor"), hub.load("encoder")
outputs = encoder(preprocessor(["A vector for this sentence."]))
outputs["pooled_output"].shape, outputs["sequence_output"].shape

# %% [markdown]
# ## Next
#
# - **More text, a larger encoder, more steps.** BERT-base has 110 million parameters and read 3.3 billion
#   words. [Pre-training](../docs/pretraining.md) says what to expect, and how to train on several GPUs or a TPU.
# - **Start from a published encoder** instead of random weights: `--init_checkpoint=hf:google-bert/bert-base-uncased`
#   continues its pre-training on your text.
# - **Fine-tune** the result: the notebooks *movie_reviews*, *glue*, *squad* and *ner*.
