# %% [markdown]
# # GLUE: fine-tune BERT on sentences and pairs of sentences
#
# [GLUE](https://gluebenchmark.com) is the collection of tasks that made BERT famous: Is a
# sentence grammatical? Is it positive? Do two sentences mean the same thing? Does one follow from the other?
# You fine-tune BERT on any of them, twice:
#
# 1. with **SavedModels and `hub.KerasLayer`** in tf_keras, as with models from TensorFlow Hub;
# 2. with **`bert_tf.finetune`**, which does the same in one call, shows how much the result depends on chance,
#    and writes the file that GLUE's server grades.
#
# Training is faster on a GPU (*Runtime > Change runtime type*); the default task takes about an hour on a
# CPU.

# %% [markdown]
# ## Settings
#
# | `TASK` | question | texts | training examples |
# |---|---|---|---|
# | `cola` | Is the sentence grammatical? | one | 8,551 |
# | `sst2` | Is the sentence of a review positive? | one | 67,349 |
# | `mrpc` | Do the sentences mean the same thing? | two | 3,668 |
# | `stsb` | How similar are the sentences, from 0 to 5? | two | 5,749 |
# | `qqp` | Do the questions mean the same thing? | two | 363,846 |
# | `mnli` | Does the second follow from the first, contradict it, or neither? | two | 392,702 |
# | `qnli` | Does the sentence answer the question? | two | 104,743 |
# | `rte` | Does the second follow from the first? | two | 2,490 |
# | `wnli` | Does the second, in which a noun replaces a pronoun, follow from the first? | two | 635 |
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md).
# The default is small and fast. With `hf:google-bert/bert-base-uncased`, set the learning rate to
# 3e-5. `SEQ_LENGTH` suits single sentences; set it to 128 for pairs. `DATA_DIR` is the folder of the task with its
# official files; without it, tensorflow-datasets downloads them. The stored outputs come from the first 8,000
# of the training examples of `sst2`.

# %% tags=["parameters"]
TASK = "sst2"  # @param ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
SEQ_LENGTH = 64  # @param {type:"integer"}
EPOCHS = 2  # @param {type:"integer"}
LEARNING_RATE = 1e-4  # @param {type:"number"}
SEEDS = 2  # @param {type:"integer"}

# %% [markdown]
# ## The examples
#
# bert_tf knows the columns of each task's files, its labels and its metric.

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # hides messages about hardware

from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles

task = TASKS[TASK]
train, dev = (task.read(DataFiles(DATA_DIR or None), split) for split in ("train", "dev"))
columns = ["texts_a", "texts_b"] if train.texts_b else ["texts_a"]
names = task.head.labels  # of the classes; none for stsb, which predicts a number
target = "labels" if names else "values"
print(f"{len(train):,} examples to train on, {len(dev):,} to evaluate on; metric: {task.metric}")
for row in range(3):
    label = train.targets[target][row]
    print(
        names[label] if names else label,
        *(getattr(train, x)[row].decode() for x in columns),
        sep=" | ",
    )

# %% [markdown]
# ## 1. `hub.KerasLayer` in tf_keras
#
# A model of TensorFlow Hub is a pair of SavedModels. The *preprocessor* splits text into WordPiece tokens and
# packs them into batches of one length; the *encoder* maps those to vectors. The same two commands export
# your own pre-trained encoder.
#
# After you change settings, delete both folders (`!rm -r encoder preprocessor`). Otherwise, the commands end
# with an error, and the cells below use the old folders.

# %%
# !python -m export.encoder --checkpoint="{MODEL}" --output_dir=encoder
# !python -m export.preprocessor --checkpoint="{MODEL}" --output_dir=preprocessor

# %% [markdown]
# The preprocessor has two steps, because BERT reads a pair of texts as one sequence, `[CLS] a [SEP] b [SEP]`:
# `tokenize` splits each text, and `bert_pack_inputs` joins the tokens of both. One new `Dense` layer turns the
# encoder's `pooled_output` into a score for each class. `trainable=True` lets training change the encoder, too.

# %%
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # registers the operations of the tokenizer
import tf_keras

preprocessor = hub.load("preprocessor")
tokenize = hub.KerasLayer(preprocessor.tokenize, name="tokenize")
pack = hub.KerasLayer(
    preprocessor.bert_pack_inputs, arguments={"seq_length": SEQ_LENGTH}, name="pack"
)
texts = [tf_keras.Input([], dtype=tf.string, name=name) for name in columns]
inputs = pack([tokenize(text) for text in texts])
outputs = hub.KerasLayer("encoder", trainable=True, name="encoder")(inputs)
x = tf_keras.layers.Dropout(0.1)(outputs["pooled_output"])
model = tf_keras.Model(texts, tf_keras.layers.Dense(len(names) or 1, name="scores")(x))

# %% [markdown]
# Fine-tuning uses a small learning rate, which falls to 0.

# %%
BATCH_SIZE = 32


def batches(examples):
    texts = tuple(getattr(examples, name) for name in columns)
    rows = tf.data.Dataset.from_tensor_slices((texts, examples.targets[target]))
    if examples is train:
        rows = rows.shuffle(len(train), seed=1)
    return rows.batch(BATCH_SIZE)


losses = tf_keras.losses
schedule = tf_keras.optimizers.schedules.PolynomialDecay(
    LEARNING_RATE, decay_steps=EPOCHS * len(batches(train)), end_learning_rate=0
)
model.compile(
    tf_keras.optimizers.AdamW(schedule, weight_decay=0.01),
    losses.SparseCategoricalCrossentropy(from_logits=True) if names else losses.MeanSquaredError(),
)
history = model.fit(batches(train), validation_data=batches(dev), epochs=EPOCHS, verbose=2)

# %% [markdown]
# GLUE grades each task by its own metric: accuracy, F1, Matthews' correlation (`cola`) or Spearman's (`stsb`).

# %%
from bert_tf.finetuning.metrics import correlations, of_classes

scores = model.predict(batches(dev), verbose=0)
if names:
    metrics = of_classes(dev.targets[target], scores, names)
else:
    metrics = correlations(dev.targets[target], scores[:, 0])
print(f"{task.metric} on the dev set: {metrics[task.metric]:.4f}")

# %% [markdown]
# ### Export a SavedModel that takes strings
#
# One function of TensorFlow goes from strings to probabilities (for `stsb`, to a number). To use its SavedModel, a
# server needs TensorFlow and TensorFlow Text, but neither Keras nor bert_tf.


# %%
@tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * len(columns))
def classify(*texts):
    scores = model(list(texts))
    return tf.nn.softmax(scores) if names else scores


module = tf.Module()
module.model, module.__call__ = model, classify
tf.saved_model.save(module, "classifier", signatures=classify)

if TASK in ("cola", "sst2"):
    new = [("A warm and funny story.",), ("The plot makes no sense at all.",)]
else:
    first = "The company said that its profits rose by a third."
    new = [
        (first, "Profits were up 33 percent, the firm announced."),
        (first, "The company was founded in Ohio."),
    ]
served = tf.saved_model.load("classifier")
for text, row in zip(new, served(*map(list, zip(*new))).numpy()):
    print(f"{names[row.argmax()]} {row.max():.0%}" if names else row[0], *text, sep=" | ")

# %% [markdown]
# ## 2. The short way: `bert_tf.finetune`
#
# One call does all of the above. It also evaluates after every epoch and keeps the best weights. To resume an
# interrupted run, run the cell again. `num_seeds` repeats the run with other random seeds for the new
# layer, the order of the examples and dropout. On small tasks, the results differ by several points,
# so a single run says little.
#
# After you change settings, delete the folder `runs` (`!rm -r runs`) or rename it. Otherwise, this cell ends
# with an error, and the cells below show the old runs.

# %%
import bert_tf

run = bert_tf.finetune(
    MODEL,
    task=TASK,
    data_dir=DATA_DIR or None,
    learning_rate=LEARNING_RATE,
    num_train_epochs=EPOCHS,
    num_seeds=SEEDS,
    do_predict=True,
    output_dir="runs",
)
run

# %% [markdown]
# `bert_tf.results` shows your runs beside the results of the paper, which leaves out `wnli`. The published
# results are on the test set, yours on the dev set.

# %%
# !python -m bert_tf.results runs

# %% [markdown]
# In the confusion matrix, rows are true labels and columns are predicted ones; `stsb` has no such matrix.

# %%
run.plot("confusion") if TASK != "stsb" else None

# %% [markdown]
# ### Look at mistakes
#
# `predictions_dev.tsv` contains the label, the prediction and the text of every dev example. Read some that
# the model got wrong: sometimes the label is wrong instead.

# %%
import csv

import pandas as pd

pd.set_option("display.max_colwidth", None)
table = pd.read_csv(f"{run.path}/predictions_dev.tsv", sep="\t", quoting=csv.QUOTE_NONE)
if TASK == "stsb":
    wrong = table.loc[(table["value"] - table["prediction"]).abs().nlargest(5).index]
else:
    wrong = table[table["label"] != table["prediction"]].head(5)
wrong

# %% [markdown]
# ### Submit to GLUE
#
# The run wrote a file with the predictions for the test set. Once you have the files of all tasks, pack
# them and upload the archive to [gluebenchmark.com](https://gluebenchmark.com).

# %%
# !python -m bert_tf.glue_submission --output_file=submission.zip {run.path}

# %% [markdown]
# ### Predict new texts
#
# A string is a text, and a tuple of two strings is a pair.

# %%
run.predict([text if len(text) == 2 else text[0] for text in new])
