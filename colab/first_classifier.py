# %% [markdown]
# # Your first classifier: a mail filter
#
# *Help Prince Mayuko Transfer Huge Inheritance*: is this spam? Here you fine-tune a pre-trained BERT on 5,000
# real messages and ask it. It takes three calls: `finetune`, `predict` and `notebook_page`.
#
# Training takes about three minutes on two CPU cores, and less on a GPU (*Runtime > Change runtime type*).

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md). The default is small and fast;
# `hf:google-bert/bert-base-uncased` is five times as large and more accurate.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA = ""  # @param {type:"string"}
EPOCHS = 1  # @param {type:"integer"}

# %% [markdown]
# ## The messages
#
# The [SMS Spam Collection](https://archive.ics.uci.edu/dataset/228/sms+spam+collection) (Almeida and Hidalgo,
# CC BY 4.0) has 5,574 text messages, each labeled *ham* or *spam*. `DATA` is its file `SMSSpamCollection`;
# without it, the next cell downloads 200 kB. A tenth of the messages is the test set.

# %%
import keras
import pandas as pd

import bert_tf

if not DATA:
    url = "https://archive.ics.uci.edu/static/public/228/sms+spam+collection.zip"
    DATA = keras.utils.get_file("sms_spam", url, extract=True) + "/SMSSpamCollection"
messages = pd.read_csv(DATA, sep="\t", names=["label", "text"], quoting=3)
messages["label"] = messages["label"].map({"spam": "Spam", "ham": "Not spam"})
test = messages.sample(frac=0.1, random_state=1)
train = messages.drop(test.index)
train.sample(5, random_state=1)

# %% [markdown]
# ## Fine-tune
#
# `finetune` adds a layer with two outputs to the encoder and trains both. It holds out a part of the training
# messages to choose the best epoch, and saves everything in the folder `spam`. If you interrupt it, run the
# cell again to resume.

# %%
run = bert_tf.finetune(
    MODEL,
    train,
    test=test,
    output_dir="spam",
    max_seq_length=64,
    learning_rate=1e-4,
    num_train_epochs=EPOCHS,
)

# %% [markdown]
# The confusion matrix counts the held-out messages by label and prediction.

# %%
run.plot("confusion")

# %% [markdown]
# ## Ask it

# %%
run.predict(["Lunch at noon?", "URGENT! You have won a prize, call 09061701461 now"])

# %% [markdown]
# For a table, the predictions are new columns:

# %%
run.predict(test.head(4))

# %% [markdown]
# And the prince?

# %%
SUBJECT = "Help Prince Mayuko Transfer Huge Inheritance"
run.predict(SUBJECT)

# %% [markdown]
# The spam is from British phones of the 2000s, and sells ringtones and prizes. A model knows only what it was
# shown, so a request for help looks like a friend's. Show it a few mails, half of them spam of the new kind.
# This run starts from the model above, and has its own folder.

# %%
spam = """Transfer of 20 million dollars, your help is needed
The late king left you his fortune
Confidential business proposal from a bank in Lagos
A widow wants to donate her wealth to you
Claim your late uncle's money before Friday
An exiled prince asks you to keep his gold
You inherit ten million from a stranger"""
ham = """Minutes of the meeting on Tuesday
Photos from grandmother's birthday
Can you help me move house on Saturday?
Bread for the party: who brings it?
Please help with the homework
Your invoice for November
Notes on the history of princes in Europe"""
mails = dict(text=f"{spam}\n{ham}".split("\n"), label=["Spam"] * 7 + ["Not spam"] * 7)
mail_run = bert_tf.finetune(
    "spam",
    mails,
    dev=mails,
    output_dir="mails",
    max_seq_length=64,
    learning_rate=1e-4,
    num_train_epochs=20 * EPOCHS,
    train_batch_size=4,
    quiet=True,
)
mail_run.predict(SUBJECT)

# %% [markdown]
# ## Look inside
#
# The page shows how the subject becomes tokens, what each head attends to, and the answer.

# %%
bert_tf.notebook_page("mails", SUBJECT)

# %% [markdown]
# ## Next
#
# - `bert_tf.export_classifier("mails", "classifier")` writes a SavedModel for TensorFlow Serving that maps strings to probabilities.
# - `python -m bert_tf.predict --checkpoint=mails "a message"` predicts from a shell.
# - The notebook *python_tour* shows more of what you can do in Python; *glue* evaluates on the tasks of the paper.
