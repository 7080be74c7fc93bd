"""Preprocessors' SavedModels that another program wrote; tests/export has our own."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_tf.text.preprocessor import BertPreprocessor, pack_segments
from bert_tf.weights.formats.saved_model import read_preprocessor
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, write_vocab

VOCAB = Vocabulary((*SPECIAL_TOKENS, "A", "É", "中", *"abcde", "##b", "##É"))
TEXTS = ["A b", "", "ÉÉ 中abc", "a b c d e a b c"]


class _GardenPreprocessor(tf.Module):
    """Has the vocabulary and the operations of the Model Garden's preprocessors.

    Source: tensorflow/models official/nlp/modeling/layers/text_layers.py `BertTokenizer`.
    """

    def __init__(self, vocab_file: str, lower_case: bool):
        super().__init__()
        initializer = tf.lookup.TextFileInitializer(
            vocab_file,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.table = tf.lookup.StaticVocabularyTable(initializer, 1, lookup_key_dtype=tf.string)
        tokenizer = tf_text.BertTokenizer(
            self.table, token_out_type=tf.int32, lower_case=lower_case
        )
        self.bert_pack_inputs = tf.Module()

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def call(sentences):
            return pack_segments([tokenizer.tokenize(sentences)], 24, VOCAB)

        self.call = call


@pytest.mark.parametrize("lower_case", [False, True])
def test_reads_the_savedmodel_of_another_program(tmp_path, lower_case):
    """Oracles: what the SavedModel was made from, and what it computes."""
    file = str(tmp_path / "words.txt")
    write_vocab(file, VOCAB)
    module = _GardenPreprocessor(file, lower_case)
    folder = str(tmp_path / "saved")
    tf.saved_model.save(module, folder, {"serving_default": module.call})
    saved = read_preprocessor(folder)
    assert saved == (VOCAB, lower_case, 24)
    expected = module.call(tf.constant(TEXTS))
    for name, values in BertPreprocessor(*saved)(TEXTS).items():
        np.testing.assert_array_equal(values, expected[name])
    file = pathlib.Path(folder, "saved_model.pb")
    message = SavedModel.FromString(file.read_bytes())
    message.meta_graphs[0].signature_def.clear()
    file.write_bytes(message.SerializeToString())
    with pytest.raises(ValueError, match="does not state the length of its outputs"):
        read_preprocessor(folder)
