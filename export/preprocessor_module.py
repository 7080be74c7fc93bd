"""The objects inside the SavedModel of a preprocessor."""

import tensorflow as tf

from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from export.saved_models import add_vocab
from tfrecords.vocabulary import Vocabulary

SENTENCES = tf.TensorSpec([None], tf.string, "sentences")


class PreprocessorModule(tf.Module):
    """Maps strings [B] to the encoder's inputs, int32 [B, seq_length]; each step is a sub-object.

    Source: tensorflow/hub docs/common_saved_model_apis/text.md; tensorflow/models
    official/nlp/tools/export_tfhub_lib.py `create_preprocessing`.
    """

    def __init__(self, tokenizer: WordPieceTokenizer, seq_length: int):
        super().__init__()
        self.tokenize = Tokenize(tokenizer)
        # Maps strings [B] to ids, starts and limits in bytes, all [B, (words), (pieces)].
        self.tokenize_with_offsets = tf.Module()
        self.tokenize_with_offsets.__call__ = tf.function(
            lambda sentences: tokenizer.tokenize_with_offsets(sentences),
            [SENTENCES],
            autograph=False,
        )
        self.bert_pack_inputs = PackInputs(tokenizer.vocab, seq_length)
        add_vocab(self, tokenizer.vocab, tokenizer.lower_case)
        self._tokenizer = tokenizer
        self._seq_length = seq_length

    @tf.function(autograph=False, input_signature=[SENTENCES])
    def __call__(self, sentences):
        segments = [self._tokenizer.tokenize_flat(sentences)]
        return pack_segments(segments, self._seq_length, self._tokenizer.vocab)


class Tokenize(tf.Module):
    """Maps strings [B] to token ids, RaggedTensor int32 [B, (words), (pieces)]."""

    def __init__(self, tokenizer: WordPieceTokenizer):
        super().__init__()
        self._tokenizer = tokenizer

    @tf.function(autograph=False, input_signature=[SENTENCES])
    def __call__(self, sentences):
        return self._tokenizer.tokenize(sentences)

    @tf.function(autograph=False, input_signature=[])
    def get_special_tokens_dict(self):
        vocab = self._tokenizer.vocab
        values = {
            "vocab_size": len(vocab),
            "padding_id": vocab.pad_id,
            "start_of_sequence_id": vocab.cls_id,
            "end_of_segment_id": vocab.sep_id,
            "mask_id": vocab.mask_id,
        }
        return {name: tf.constant(value, tf.int32) for name, value in values.items()}


class PackInputs(tf.Module):
    """Packs one or two RaggedTensors of token ids, of rank 2 or 3, into the encoder's inputs."""

    def __init__(self, vocab: Vocabulary, default_seq_length: int):
        super().__init__()

        # A closure, because the default of a method cannot differ between objects.
        @tf.function(autograph=False)
        def call(inputs, seq_length=default_seq_length):
            # Row splits that do not fit the tokens would end the process.
            inputs = [
                tf.RaggedTensor.from_nested_row_splits(x.flat_values, x.nested_row_splits)
                for x in inputs
            ]
            return pack_segments(inputs, seq_length, vocab)

        self.__call__ = call
        for segments in (1, 2):
            for rank in (2, 3):
                spec = tf.RaggedTensorSpec([None] * rank, tf.int32)
                call.get_concrete_function([spec] * segments, tf.TensorSpec([], tf.int32))
