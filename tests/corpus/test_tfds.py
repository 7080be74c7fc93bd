"""Tests TFDS input. Oracle: the articles that a small dataset was made of."""

import json

import numpy as np
import pytest
import tensorflow_datasets as tfds

from bert_tf.corpus.corpus_options import CorpusOptions
from bert_tf.corpus.sources import prepare_dataset, tfds_blocks
from bert_tf.vocabulary.counting import count_words


class Articles(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="en"), tfds.core.BuilderConfig(name="bare")]

    def _info(self):
        features = {"title": tfds.features.Text(), "text": tfds.features.Text()}
        if self.builder_config.name == "bare":
            features["text"] = tfds.features.Scalar(np.int64)
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(), "test": self._generate_examples()}

    def _generate_examples(self):
        for number in range(20):
            yield number, {"title": "t", "text": ARTICLES[number]}


ARTICLES = [f"Article {number}.\n\nIt's “{'é' * number}”.\n" for number in range(20)]


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """The folder that the environment variable would name."""
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))


def test_articles_become_json_lines(data_dir):
    blocks = list(tfds_blocks("articles/en", 200))
    assert len(blocks) > 3
    assert {(block.kind, block.files) for block in blocks} == {("json", (("TFDS articles/en", 0),))}
    found = [
        json.loads(line)["text"] for line in b"".join(block.data for block in blocks).splitlines()
    ]
    assert sorted(found) == sorted(ARTICLES)
    assert list(tfds_blocks("articles/en", 200)) == blocks
    part = list(tfds_blocks("articles/en:test[:25%]", 10**6))
    assert len(b"".join(block.data for block in part).splitlines()) == 5
    options = CorpusOptions(tfds="articles/en").with_corpus_defaults()
    words = count_words({"": []}, True, options).texts[""]
    assert words["article"] == words["it"] == 20 and words["e" * 19] == 1


def test_missing_datasets_splits_and_features(data_dir):
    for name, message in {
        "nothing_of_the_kind": "no TFDS dataset 'nothing_of_the_kind'",
        "articles/xx": "no TFDS dataset 'articles/xx'",
        "articles/bare": "the TFDS dataset articles/bare has no string feature 'text'",
        "articles/en:dev": "TFDS dataset articles/en, split 'dev'",
    }.items():
        with pytest.raises(ValueError, match=message) as caught:
            list(tfds_blocks(name, 100))
        assert "\n" not in str(caught.value)


def test_a_download_without_network_fails_soon(tmp_path, monkeypatch):
    """Oracle: the host of the dataset; a proxy that nobody runs stands for a missing network."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    builder = tfds.builder("imdb_reviews", data_dir=str(tmp_path))
    with pytest.raises(OSError, match=r"cannot download TFDS imdb_reviews.*: ai\.stanford\.edu"):
        prepare_dataset(builder)
