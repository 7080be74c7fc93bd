# %% [markdown]
# # SQuAD: ask questions about a text
#
# Given a question and a text, BERT finds the span of the text that answers the question: it scores
# every token as the start and as the end of the answer. You fine-tune BERT on SQuAD 1.1, twice:
#
# 1. with **SavedModels and `hub.KerasLayer`** in tf_keras, where you see every step;
# 2. with **`bert_tf.finetune`**, which does the same in one call and reads texts of any length.
#
# Use a GPU (*Runtime > Change runtime type*).

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md).
# With `hf:google-bert/bert-base-uncased`, set the learning rate to 3e-5. `DATA_DIR` holds
# `train-v1.1.json` and `dev-v1.1.json`; without it, the next cell downloads them. It must not be `data`,
# where that cell writes the articles that the notebook uses.
#
# The stored outputs come from a small part of the data: 12 of the 442 articles to train on, and 4 of the 48
# to evaluate on.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
TRAIN_ARTICLES = 442  # @param {type:"integer"}
DEV_ARTICLES = 48  # @param {type:"integer"}
SEQ_LENGTH = 384  # @param {type:"integer"}
EPOCHS = 2  # @param {type:"integer"}
LEARNING_RATE = 1e-4  # @param {type:"number"}

# %% [markdown]
# ## The questions

# %%
import json
import os
import urllib.request
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # hides messages about hardware
SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
Path("data").mkdir(exist_ok=True)


def read_squad(split, articles):
    name = f"{split}-v1.1.json"
    with (
        open(f"{DATA_DIR}/{name}")
        if DATA_DIR
        else urllib.request.urlopen(f"{SOURCE}/{name}") as file
    ):
        squad = json.load(file)
    squad["data"] = squad["data"][:articles]
    Path(f"data/{name}").write_text(json.dumps(squad))
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    rows = [(qa["question"], p["context"], qa["answers"]) for p in paragraphs for qa in p["qas"]]
    print(f"{split}: {len(rows):,} questions about {len(paragraphs):,} texts")
    return map(list, zip(*rows))


train_questions, train_contexts, train_answers = read_squad("train", TRAIN_ARTICLES)
questions, contexts, answers = read_squad("dev", DEV_ARTICLES)
print("\n" + contexts[0])
for question, texts in zip(questions[:4], answers):
    print("-", question, {answer["text"] for answer in texts})

# %% [markdown]
# ## 1. `hub.KerasLayer` in tf_keras
#
# First, export the two SavedModels of a model of TensorFlow Hub: the *encoder*, and the *preprocessor* that
# splits text into WordPiece tokens. The same two commands export your own pre-trained encoder.
#
# After you change settings, delete both folders (`!rm -r encoder preprocessor`). Otherwise, the commands end
# with an error, and the cells below use the old folders.

# %%
# !python -m export.encoder --checkpoint="{MODEL}" --output_dir=encoder
# !python -m export.preprocessor --checkpoint="{MODEL}" --output_dir=preprocessor

# %% [markdown]
# ### From texts to tokens, and back
#
# BERT reads `[CLS] question [SEP] text [SEP]`: `bert_pack_inputs` joins the tokens of both. The
# answer, however, is a piece of the text, not a list of tokens. So `tokenize_with_offsets` also tells in which
# byte of the text each token starts and ends.

# %%
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # registers the operations of the tokenizer

preprocessor = hub.load("preprocessor")


def read(questions, contexts):
    """Returns the encoder's inputs, the place of each context in them, and its tokens' bytes."""
    question_ids = preprocessor.tokenize(questions).merge_dims(1, 2)
    context_ids, starts, ends = (
        ragged.merge_dims(1, 2) for ragged in preprocessor.tokenize_with_offsets(contexts)
    )
    inputs = preprocessor.bert_pack_inputs(
        [question_ids, context_ids], seq_length=tf.constant(SEQ_LENGTH)
    )
    # input_type_ids are 1 for the text and the last [SEP]; input_mask is 0 for padding.
    first = tf.reduce_sum(inputs["input_mask"] - inputs["input_type_ids"], axis=1)
    return inputs, tf.cast(first, tf.int64), starts, ends


inputs, first, starts, ends = read(["Who wrote Emma?"], ["Jane Austen wrote Emma."])
for name, values in inputs.items():
    print(f"{name:15}", values.numpy()[0, :14], "...")
print("bytes of each token of the text:", *zip(starts.to_list()[0], ends.to_list()[0]))

# %% [markdown]
# ### What the model learns
#
# For each question, the model learns the places of the answer's first and last token. A text that does not fit into
# `SEQ_LENGTH` tokens is cut: if its answer is lost, the question is left out of training.

# %%
begin = [
    len(context[: answer[0]["answer_start"]].encode())
    for context, answer in zip(train_contexts, train_answers)
]
end = [b + len(answer[0]["text"].encode()) for b, answer in zip(begin, train_answers)]
inputs, first, starts, ends = read(train_questions, train_contexts)
first_token = first + tf.reduce_sum(
    tf.cast(ends <= tf.constant(begin, tf.int64)[:, None], tf.int64), 1
)
last_token = (
    first - 1 + tf.reduce_sum(tf.cast(starts < tf.constant(end, tf.int64)[:, None], tf.int64), 1)
)
kept = last_token < tf.cast(tf.reduce_sum(inputs["input_mask"], axis=1), tf.int64) - 1
print(f"{int(tf.reduce_sum(tf.cast(~kept, tf.int32))):,} of {len(kept):,} answers were cut off")
inputs, targets = tf.nest.map_structure(
    lambda values: values[kept], (inputs, (first_token, last_token))
)

# %% [markdown]
# ### The model
#
# A `Dense` layer turns the encoder's output for each token into two scores: how well it starts the answer, and
# how well it ends it. Only tokens of the text may do so. `trainable=True` lets training change the encoder, too.

# %%
import tf_keras

tokens = {name: tf_keras.Input([SEQ_LENGTH], dtype=tf.int32, name=name) for name in inputs}
sequence = hub.KerasLayer("encoder", trainable=True, name="encoder")(tokens)["sequence_output"]
scores = tf_keras.layers.Dense(2, name="scores")(tf_keras.layers.Dropout(0.1)(sequence))
sep = preprocessor.tokenize.get_special_tokens_dict()["end_of_segment_id"].numpy()
allowed = (tokens["input_type_ids"] == 1) & (tokens["input_word_ids"] != sep)
start_scores, end_scores = (
    tf_keras.layers.Activation("linear", name=name)(tf.where(allowed, scores[:, :, side], -1e9))
    for side, name in enumerate(["start", "end"])
)
model = tf_keras.Model(tokens, [start_scores, end_scores])

BATCH_SIZE = 16
schedule = tf_keras.optimizers.schedules.PolynomialDecay(
    LEARNING_RATE, decay_steps=max(1, EPOCHS * len(targets[0]) // BATCH_SIZE), end_learning_rate=0
)
model.compile(
    tf_keras.optimizers.AdamW(schedule, weight_decay=0.01),
    tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(inputs, list(targets), batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %% [markdown]
# ### From strings to answers
#
# The answer is the span whose two scores have the highest sum, at most 30 tokens long. The offsets turn it back
# into a piece of the text. All of this is one function of TensorFlow.


# %%
@tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
def answer(questions, contexts):
    inputs, first, starts, ends = read(questions, contexts)
    start_scores, end_scores = model(inputs)
    spans = start_scores[:, :, None] + end_scores[:, None, :]  # [batch, first token, last token]
    in_order = tf.linalg.band_part(tf.ones([SEQ_LENGTH, SEQ_LENGTH], tf.bool), 0, 29)
    spans = tf.reshape(tf.where(in_order, spans, -1e9), [-1, SEQ_LENGTH**2])
    best = tf.argmax(spans, axis=1)
    begin = tf.gather(starts, best // SEQ_LENGTH - first, batch_dims=1)
    end = tf.gather(ends, best % SEQ_LENGTH - first, batch_dims=1)
    return {
        "answer": tf.strings.substr(contexts, begin, end - begin),
        "start": begin,
        "end": end,
        "probability": tf.reduce_max(tf.nn.softmax(spans), axis=1),
    }


# %% [markdown]
# SQuAD's two metrics: `exact_match` is the share of questions whose answer is exactly one of the right ones; `f1`
# gives partial credit for words in common.

# %%
from bert_tf.finetuning.squad.answers import score

predicted = []
for row in range(0, len(questions), 32):
    texts = answer(questions[row : row + 32], contexts[row : row + 32])["answer"]
    predicted += [text.decode() for text in texts.numpy()]
score(predicted, [[answer["text"] for answer in texts] for texts in answers])

# %% [markdown]
# ### Export a SavedModel that takes strings
#
# The SavedModel maps questions and texts to answers. To use it, a server needs TensorFlow and TensorFlow Text,
# but neither Keras nor bert_tf.

# %%
module = tf.Module()
module.model, module.preprocessor, module.__call__ = model, preprocessor, answer
tf.saved_model.save(module, "answers", signatures=answer)

TEXT = (
    "Jane Austen wrote Emma in 1815 at her home in Chawton, a village in Hampshire. It was the last "
    "novel that she saw published; Persuasion appeared after her death in Winchester in 1817."
)
QUESTIONS = ["Who wrote Emma?", "Where is Chawton?", "When did Jane Austen write Emma?"]
served = tf.saved_model.load("answers")(QUESTIONS, [TEXT] * len(QUESTIONS))
for question, text, probability in zip(QUESTIONS, served["answer"], served["probability"]):
    print(f"{question:35} {text.numpy().decode():20} {probability:.0%}")

# %% [markdown]
# ## 2. The short way: `bert_tf.finetune`
#
# One call does all of the above. It also reads texts longer than `max_seq_length` in overlapping windows,
# evaluates after every epoch, keeps the best weights and resumes an interrupted run if you run the cell again.
# Before you train with other settings, delete the old folder (`!rm -r run`).

# %%
import bert_tf

run = bert_tf.finetune(
    MODEL,
    task="squad",
    data_dir="data",
    learning_rate=LEARNING_RATE,
    num_train_epochs=EPOCHS,
    train_batch_size=BATCH_SIZE,
    output_dir="run",
)

# %% [markdown]
# The answers are marked in the text. `start` and `end` count its bytes.

# %%
run.predict([{"question": question, "context": TEXT} for question in QUESTIONS])

# %% [markdown]
# ## Next
#
# - `run.export("answers")` writes a SavedModel that takes strings and reads texts of any length.
# - `python -m bert_tf.predict --checkpoint=run "QUESTION ||| TEXT"` answers in a terminal.
# - In SQuAD 2.0, some questions have no answer, and the model learns to refuse them: `task="squad2"` with
#   `train-v2.0.json` and `dev-v2.0.json`.
# - To train on your own questions, write them in SQuAD's format and give the files to `finetune` as `train` and `dev`.
