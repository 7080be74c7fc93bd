# %% [markdown]
# # Search by meaning
#
# A sentence encoder turns a text into a vector; texts of similar meaning get vectors of similar direction. So
# you can search for what a question means, even if the answer shares no word with it. Here, you compute the
# vectors of a few thousand texts of your own, search them, compare the results with a search for words, draw a
# map of the texts, and save what a program needs to search them, too.
#
# This takes about three minutes on a CPU, and less on a GPU (*Runtime > Change runtime type*).

# %% [markdown]
# ## Settings
#
# `MODEL` is a sentence-transformers model, or a run of your own that you trained on
# [similarity or pairs](../docs/embeddings.md#train-your-own). `TEXTS` is a file with one text per line; without it,
# tensorflow-datasets downloads the paragraphs of Wikipedia that SQuAD asks about. `LIBRARY` finds the nearest
# vectors: scikit-learn compares a query with every text, which takes milliseconds for 100,000 texts; faiss
# also searches millions.

# %% tags=["parameters"]
MODEL = "hf:sentence-transformers/all-MiniLM-L6-v2"  # @param {type:"string"}
TEXTS = ""  # @param {type:"string"}
MOST_TEXTS = 5000  # @param {type:"integer"}
LIBRARY = "scikit-learn"  # @param ["scikit-learn", "faiss"]

# %% [markdown]
# ## Read the texts

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # hides messages about hardware

from pathlib import Path

if TEXTS:
    texts = Path(TEXTS).read_text().splitlines()
else:
    import tensorflow_datasets as tfds

    examples = tfds.as_numpy(tfds.load("squad", split="validation"))
    texts = [example["context"].decode() for example in examples]
found = dict.fromkeys(text.strip() for text in texts)  # without repetitions
texts = [text for text in found if text][:MOST_TEXTS]
print(f"{len(texts):,} texts, for example:\n{texts[0][:200]}")

# %% [markdown]
# ## Compute their vectors
#
# `load_embedder` returns a Keras layer that maps strings to vectors. A sentence-transformers model states how
# to combine the vectors of the tokens (here: their mean, divided by its length), and the layer does so.

# %%
import time

import numpy as np

import bert_tf

embedder = bert_tf.load_embedder(MODEL, normalize=True)
started = time.perf_counter()
vectors = embedder.encode(texts)
rate = len(texts) / (time.perf_counter() - started)
print(f"{len(texts):,} vectors of {vectors.shape[1]} numbers, {rate:,.0f} texts per second")

# %% [markdown]
# The layer truncates long texts. This is the share of texts that it truncates:

# %%
reader = embedder.preprocessor
tokens = reader.tokenizer.tokenize_flat(texts).row_lengths().numpy() + 2  # [CLS] and [SEP]
print(f"{np.mean(tokens > reader.seq_length):.1%} have more than {reader.seq_length} tokens")

# %% [markdown]
# ## Search
#
# Because the vectors have length 1, their inner product is the cosine of the angle between them: 1 for the
# same direction, 0 for unrelated ones.

# %%
if LIBRARY == "faiss":
    # %pip install --quiet faiss-cpu
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
else:
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(metric="cosine").fit(vectors)


def search(query, count=3):
    """Prints the texts nearest to a query, with the cosine of the angle to it."""
    [vector] = embedder.encode([query])
    if LIBRARY == "faiss":
        [cosines], [places] = index.search(vector[None], count)
    else:
        [distances], [places] = index.kneighbors(vector[None], count)
        cosines = 1 - distances
    print(query)
    for cosine, place in zip(cosines, places):
        print(f"  {cosine:.2f}  {texts[place][:150]}")


search("How do plants turn light into food?")
search("a team from Denver won the championship")
search("illnesses that spread from person to person")

# %% [markdown]
# Type your own:

# %%
QUERY = "Why did the empire fall?"  # @param {type:"string"}
search(QUERY, count=5)

# %% [markdown]
# ## Compare with a search for words
#
# A classic search engine scores a text by the words that it shares with the query; rare words count more
# (tf-idf). It finds texts with the same words, and vectors find texts with the same meaning. Here are both
# searches on a few titles of books:

# %%
from sklearn.feature_extraction.text import TfidfVectorizer

TITLES = """Math practice books for grades 6 to 8
Adult coloring books
Practice tests for the driver's license
Basic arithmetic and algebra for grown-ups
Mathematics refresher for college and work
Brush up on your numbers, at any age
The history of mathematics
Piano exercises for beginners
Cooking for two""".splitlines()


def compare(query, texts, vectors, count=3):
    """Prints the places of texts in a search for words and in one for vectors."""
    tfidf = TfidfVectorizer(stop_words="english")
    weights = tfidf.fit_transform(texts)
    overlap = (weights @ tfidf.transform([query]).T).toarray()[:, 0]
    cosines = vectors @ embedder.encode([query])[0]
    found = []
    for scores in overlap, cosines:
        found.append([place for place in scores.argsort()[::-1][:count] if scores[place] > 0])
    print(f"{query}\n  words vectors")
    for place in dict.fromkeys(found[0] + found[1]):
        ranks = (str(ranking.index(place) + 1) if place in ranking else "-" for ranking in found)
        print("  {:>5} {:>7}  ".format(*ranks) + texts[place][:120])


compare("math practice books for adults", TITLES, embedder.encode(TITLES))

# %% [markdown]
# Now on your texts. A `-` marks a text that only the other search has among its first five:

# %%
compare(QUERY, texts, vectors, count=5)

# %% [markdown]
# ## Draw a map
#
# t-SNE places every text in the plane so that its nearest neighbors stay near. k-means divides the texts into
# groups by their vectors; a group is named after the words that are frequent in it and rare elsewhere.

# %%
import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.manifold import TSNE

count = min(30, len(texts) // 4)
groups = KMeans(count, n_init=3, random_state=0).fit_predict(vectors)
tfidf = TfidfVectorizer(stop_words="english", sublinear_tf=True)
weights, words = tfidf.fit_transform(texts), tfidf.get_feature_names_out()
points = TSNE(metric="cosine", perplexity=min(30, len(texts) // 4), random_state=0).fit_transform(
    vectors
)
figure, axes = plt.subplots(figsize=(11, 8))
axes.scatter(*points.T, c=groups, cmap="tab20", s=6, alpha=0.6)
for group in np.unique(groups):
    typical = np.asarray(weights[groups == group].mean(axis=0))[0].argsort()[::-1][:2]
    members = points[groups == group]
    place = np.median(members[:, 0]), np.quantile(members[:, 1], 0.9)  # above most of them
    axes.text(*place, ", ".join(words[typical]), ha="center", va="bottom", size=9, weight="bold")
axes.set_axis_off()
plt.show()

# %% [markdown]
# ## Use it elsewhere
#
# `vectors.npz` keeps the vectors and the texts. The SavedModel maps strings to vectors without bert_tf,
# wherever TensorFlow and TensorFlow Text run; see [Serving](../docs/serving.md).

# %%
np.savez("vectors.npz", vectors=vectors, texts=texts)
# !python -m export.embedder --checkpoint="{MODEL}" --normalize --output_dir=embedder
