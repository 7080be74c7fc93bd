# %% [markdown]
# # Named entities: tag every word
#
# A tagger gives every word of a text a tag: here, whether it belongs to the name of a person (PER), an
# organization (ORG), a place (LOC) or something else (MISC). There are two ways to use BERT for this:
#
# - **Fine-tuning** trains the whole encoder together with one new layer.
# - The **feature-based** approach freezes the encoder. Its outputs are the input of a new network,
#   here two bidirectional LSTMs.
#
# Table 7 of the BERT paper compares them by F1 on the dev set of CoNLL-2003: 96.4 for fine-tuning, 95.5 for the
# weighted sum of all layers, and 96.1 for the concatenation of the last four. Here, you make the same
# comparison.
#
# Use a GPU (*Runtime > Change runtime type*).

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md). A cased encoder such as
# `hf:google-bert/bert-base-cased` recognizes names better; set its learning rate to 3e-5. `DATA_DIR` is a
# folder with your own `train.txt`, `valid.txt` and `test.txt`: one word per line, its tag in the last column,
# and a blank line after each sentence. Without it, tensorflow-datasets downloads CoNLL-2003, news from 1996.
# The stored outputs come from the first 400 of its 946 training documents, and from its whole dev and test
# sets.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
EPOCHS = 3  # @param {type:"number"}
LEARNING_RATE = 3e-4  # @param {type:"number"}
FEATURES = "weighted_sum_all"  # @param ["embeddings", "last", "second_to_last", "sum_last_four", "concat_last_four", "weighted_sum_last_four", "weighted_sum_all"]
FEATURE_LEARNING_RATE = 1e-3  # @param {type:"number"}

# %% [markdown]
# ## Fine-tune
#
# A word may have several tokens; the first one carries its tag. The scores count entities as the script of
# the shared task does: an entity is correct only if its span and type match.

# %%
import bert_tf

run = bert_tf.finetune(
    MODEL,
    task="ner",
    data_dir=DATA_DIR or None,
    num_train_epochs=EPOCHS,
    learning_rate=LEARNING_RATE,
    output_dir="fine-tuned",
)

# %% [markdown]
# ## Feature-based
#
# `feature_based` sets what the LSTMs read. `weighted_sum_all` is a weighted sum of all layers; training
# learns its weights, too.

# %%
frozen = bert_tf.finetune(
    MODEL,
    task="ner",
    data_dir=DATA_DIR or None,
    num_train_epochs=EPOCHS,
    feature_based=FEATURES,
    learning_rate=FEATURE_LEARNING_RATE,
    output_dir="feature-based",
)

# %% [markdown]
# ## Compare

# %%
for name, result in ("fine-tuned", run.metrics), ("feature-based", frozen.metrics):
    print(
        f"{name:15} F1 {result['eval_f1']:.3f} on the dev set, {result['test_f1']:.3f} on the test set"
    )

# %% [markdown]
# F1 combines precision, the share of predicted entities that are correct, and recall, the share of true
# entities that are found.
#
# Which types does the fine-tuned model confuse? A row is a true tag, a column a predicted one; a cell counts
# words and gives their share of the row. `B-` begins an entity and `I-` continues it; `O` is outside all
# entities.

# %%
run.plot("confusion")

# %% [markdown]
# ## Tag your own text
#
# The model splits a text into words and returns the entities with their positions in bytes. Before you train
# again with other settings, delete the old folders (`!rm -r fine-tuned feature-based`); otherwise, the calls
# end with an error.

# %%
run.predict(
    "Angela Merkel met the president of the European Union in Brussels. Afterwards she flew to Japan, "
    "where Toyota and Sony opened a German school."
)

# %% [markdown]
# ## Next
#
# - `run.export("tagger")` writes a SavedModel that tags raw text.
# - To learn other tags, such as parts of speech, put them in the last column.
# - `python -m bert_tf.predict --checkpoint=fine-tuned "..."` tags text in a terminal.
# - `python -m bert_tf.results .` prints your runs beside table 7 of the paper.
