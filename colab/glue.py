# %% [markdown]
# # GLUE: fine-tune BERT on sentences and pairs of sentences
#
# [GLUE](https://gluebenchmark.com) is the collection of tasks that made BERT famous: Is a
# sentence grammatical? Is it positive? Do two sentences mean the same thing? Does one follow from the other?
# Here you fine-tune on any of them, see how much the result depends on chance, and write the file that
# GLUE's server grades.
#
# Training is faster on a GPU (*Runtime > Change runtime type*); the default task takes about half an hour on a
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
# 3e-5. `DATA_DIR` is the folder of the task with its official files; without it, tensorflow-datasets
# downloads them. The stored outputs come from the first 8,000 of the training examples of `sst2`.

# %% tags=["parameters"]
TASK = "sst2"  # @param ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
EPOCHS = 2  # @param {type:"number"}
LEARNING_RATE = 1e-4  # @param {type:"number"}
SEEDS = 2  # @param {type:"integer"}

# %% [markdown]
# ## Train
#
# One call trains, evaluates after every epoch and keeps the best weights. To resume an interrupted
# run, run the cell again. `num_seeds` repeats the run with other random seeds for the new
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
# ## Results
#
# The learning curves of the best run: the training loss falls, and the dev metric shows which epoch is
# best. (On `wnli`, few models beat the majority class.) In the confusion matrix, rows are true labels and
# columns are predicted ones; `stsb` has no such matrix.

# %%
run.plot("curves")

# %%
run.plot("confusion") if TASK != "stsb" else None

# %% [markdown]
# `bert_tf.results` shows your runs beside the results of the paper, which leaves out `wnli`. The published
# results are on the test set, yours on the dev set.

# %%
# !python -m bert_tf.results runs

# %% [markdown]
# ## Look at mistakes
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
# ## Predict new texts
#
# A string is a text, and a tuple of two strings is a pair. The stored model reads both of these texts as
# praise, although *everybody* instead of *nobody* turns the meaning around.

# %%
if TASK in ("cola", "sst2"):
    texts = ["A story that nobody will forget.", "A story that everybody will forget."]
else:
    first = "The company said that its profits rose by a third."
    texts = [
        (first, "Profits were up 33 percent, the firm announced."),
        (first, "The company was founded in Ohio."),
    ]
run.predict(texts)

# %% [markdown]
# ## Submit to GLUE
#
# The run wrote a file with the predictions for the test set. Once you have the files of all tasks, pack
# them and upload the archive to [gluebenchmark.com](https://gluebenchmark.com).

# %%
# !python -m bert_tf.glue_submission --output_file=submission.zip {run.path}
