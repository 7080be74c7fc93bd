"""The SavedModel of a classifier of pairs, compared with the model on packed inputs."""

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.tasks.classification import TextClassifier
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.packing import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from export.saved_models import save_folder
from tfrecords.vocabulary import Vocabulary


def test_classifies_pairs_of_any_length(tmp_path):
    vocab = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"))
    tokenizer = WordPieceTokenizer(vocab)
    config = BertConfig(15, 16, 2, 2, 32, max_position_embeddings=32, initializer_range=0.3)
    model = BertTaskModel(config, 3)
    labels = ("entailment", "neutral", "contradiction")
    texts_a, texts_b = ["a b", "C", "", "a " * 40], ["c", "d é zz", "", "b " * 40]
    segments = [tokenizer.tokenize_flat(texts) for texts in (texts_a, texts_b)]
    inputs = pack_segments(segments, 12, vocab)
    # So that the labels differ.
    model.head.bias.assign(-tf.reduce_mean(model(inputs), axis=0))
    expected = tf.nn.softmax(model(inputs)).numpy()
    assert len(set(expected.argmax(axis=-1))) > 1

    module = TextClassifier(model, tokenizer, labels, max_seq_length=12, pairs=True)
    save_folder(module, f"{tmp_path}/out/", {"serving_default": module.serving})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    loaded = tf.saved_model.load(f"{tmp_path}/out")
    outputs = loaded(texts_a, texts_b)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    assert [x.decode() for x in outputs["label"].numpy()] == [
        labels[index] for index in expected.argmax(axis=-1)
    ]
    single = loaded(texts_a[1], texts_b[1])
    np.testing.assert_allclose(single["probabilities"], expected[1], atol=1e-5)
    assert single["label"] == labels[expected[1].argmax()]
    signature = loaded.signatures["serving_default"]
    outputs = signature(text=tf.constant(texts_a[:1]), text_b=tf.constant(texts_b[:1]))
    np.testing.assert_allclose(outputs["probabilities"], expected[:1], atol=1e-5)
    empty = tf.constant([], tf.string)
    assert loaded(empty, empty)["probabilities"].shape == (0, 3)
