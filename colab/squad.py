# %% [markdown]
# # SQuAD: ask questions about a text
#
# Given a question and a text, BERT finds the span of the text that answers the question: it scores
# every token as the start and as the end of the answer. In SQuAD 2.0, some questions have no answer in
# the text, and the model learns to refuse them. Here you fine-tune on SQuAD 2.0 and then ask questions
# about a text of your own.
#
# Use a GPU (*Runtime > Change runtime type*).

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md).
# With `hf:google-bert/bert-base-uncased`, set the learning rate to 3e-5. `DATA_DIR` holds
# `train-v2.0.json` and `dev-v2.0.json`; without it, the next cell downloads them. It must not be `data`,
# where that cell writes the articles that the notebook uses.
#
# The stored outputs come from a small part of the data: the first ten articles of the training set and eight
# of the dev set to train on, and eight other articles to evaluate on.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
TRAIN_ARTICLES = 442  # @param {type:"integer"}
DEV_ARTICLES = 35  # @param {type:"integer"}
EPOCHS = 2  # @param {type:"number"}
LEARNING_RATE = 1e-4  # @param {type:"number"}
THRESHOLD = 0.0  # @param {type:"number"}

# %% [markdown]
# ## The questions

# %%
import json
import urllib.request
from pathlib import Path

SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
Path("data").mkdir(exist_ok=True)
for split, articles in ("train", TRAIN_ARTICLES), ("dev", DEV_ARTICLES):
    name = f"{split}-v2.0.json"
    with (
        open(f"{DATA_DIR}/{name}")
        if DATA_DIR
        else urllib.request.urlopen(f"{SOURCE}/{name}") as file
    ):
        squad = json.load(file)
    squad["data"] = squad["data"][:articles]
    Path(f"data/{name}").write_text(json.dumps(squad))
    paragraphs = [p for article in squad["data"] for p in article["paragraphs"]]
    questions = [q for paragraph in paragraphs for q in paragraph["qas"]]
    without = sum(q["is_impossible"] for q in questions)
    print(f"{split}: {len(questions):,} questions, {without:,} of them without an answer")

print("\n" + paragraphs[0]["context"])
for question in paragraphs[0]["qas"][:4]:
    answers = {answer["text"] for answer in question["answers"]}
    print("-", question["question"], answers or "no answer")

# %% [markdown]
# ## Train
#
# The model reads texts longer than `max_seq_length` in overlapping windows. To resume an interrupted
# run, run the cell again. Before you train with other settings, delete the old folder (`!rm -r run`).

# %%
import bert_tf

run = bert_tf.finetune(
    MODEL,
    task="squad2",
    data_dir="data",
    learning_rate=LEARNING_RATE,
    num_train_epochs=EPOCHS,
    train_batch_size=16,
    output_dir="run",
)

# %% [markdown]
# `exact` is the share of questions answered exactly right; `f1` gives partial credit for answers that
# overlap the right one. `HasAns_f1` is F1 on the questions with an answer, `NoAns_f1` on those without.
# `best_f1` is F1 at the best threshold between answering and refusing.

# %%
for name in "exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "best_f1_thresh":
    print(f"{name:15} {run.metrics[f'eval_{name}']:.3f}")

# %% [markdown]
# ## Ask your own questions
#
# The model copies answers from the text unchanged and says where they are: `start` and `end` count bytes of the
# text. It refuses to answer if "no answer" scores more than `THRESHOLD` above the best answer. Trained on 18
# articles, it refuses too rarely, so the stored answers come from a threshold of -2.

# %%
TEXT = (
    "Jane Austen wrote Emma in 1815 at her home in Chawton, a village in Hampshire. It was the last "
    "novel that she saw published; Persuasion appeared after her death in Winchester in 1817."
)
QUESTIONS = [
    "Who wrote Emma?",
    "Where is Chawton?",
    "When did Jane Austen die?",
    "Who wrote Moby-Dick?",
    "Who was the king of France?",
]
ask = bert_tf.load_predictor(run, null_score_diff_threshold=THRESHOLD)
ask([{"question": question, "context": TEXT} for question in QUESTIONS])

# %% [markdown]
# ## Next
#
# - `run.export("answers")` writes a SavedModel that maps raw strings to answers.
# - `python -m bert_tf.predict --checkpoint=run "QUESTION ||| TEXT"` answers in a terminal.
# - To train on your own questions, write them in SQuAD's format and give the files to `finetune` as `train` and `dev`.
