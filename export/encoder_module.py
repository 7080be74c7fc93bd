"""The objects inside the SavedModel of an encoder."""

import tensorflow as tf

from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from export.int8_weights import Int8Weights
from export.saved_models import add_vocab
from tfrecords.vocabulary import Vocabulary

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
POSITIONS = "masked_lm_positions"


class ReusableModel(tf.train.Checkpoint):
    """What hub.KerasLayer expects: a call with `training`, and lists of variables.

    This is not a tf.Module, because its `variables` are a property, which is not saved.

    Source: tensorflow/hub docs/reusable_saved_models.md.
    """

    def __init__(
        self, function, input_names: tuple[str, ...], layers: list, stored: Int8Weights | None
    ):
        super().__init__()
        self.variables = _values(layers, "variables", stored)
        self.trainable_variables = [
            variable
            for variable in _values(layers, "trainable_variables", stored)
            if variable.trainable
        ]
        self.regularization_losses = []
        self.input_spec = {n: tf.TensorSpec([None, None], tf.int32, n) for n in input_names}

        # A closure, because attributes are saved, and only the variables of Keras layers should be.
        @tf.function(autograph=False)
        def call(inputs, training=False):
            return function(inputs, training)

        self.__call__ = call
        for training in (False, True):
            call.get_concrete_function(self.input_spec, training=training)


class EncoderModule(ReusableModel):
    """Maps a dict of int32 [B, S] to the outputs of an encoder.

    The outputs are `default`, `pooled_output`, `sequence_output` and `encoder_outputs`, all
    float32. The sub-object `mlm`, for a pretrainer, also takes `masked_lm_positions` [B, P] and
    returns `mlm_logits` [B, P, V]; the variables of its head are not among those of the root.
    `vocab_file` and `do_lower_case` describe the tokenizer.

    Args:
        int8: whether the matrices of a float32 model are stored in 8 bits.

    Source: tensorflow/models official/nlp/tools/export_tfhub_lib.py `export_model`.
    """

    def __init__(
        self,
        model: BertPretrainer | BertEncoder,
        vocab: Vocabulary,
        do_lower_case: bool,
        int8: bool = False,
    ):
        stored = Int8Weights(model.weights) if int8 else None
        encoder = getattr(model, "encoder", model)
        longest = model.config.max_position_embeddings

        def encode(inputs, training):
            # Hides the length from TensorFlow's shape inference, whose own error for a length that
            # is too long would come first and not name the limit.
            inputs = {
                n: tf.compat.v1.placeholder_with_default(x, x.shape) for n, x in inputs.items()
            }
            length = tf.shape(inputs["input_word_ids"])[1]
            message = f"the encoder takes sequences of at most {longest} tokens"
            tf.debugging.assert_less_equal(length, longest, message)
            return encoder(inputs, training=training)

        def encode_with_default(inputs, training):
            outputs = _float32(encode(inputs, training))
            return outputs | {"default": outputs["pooled_output"]}

        def predict_masked(inputs, training):
            outputs = encode(inputs, training)
            table = encoder.embeddings.word_embeddings
            sequence, positions = outputs["sequence_output"], inputs[POSITIONS]
            logits = model.masked_lm(sequence, positions, table)
            return _float32(outputs | {"mlm_logits": logits})

        if stored:
            encode_with_default = stored.reading(encode_with_default, [encoder])
        super().__init__(encode_with_default, INPUTS, [encoder], stored)
        if isinstance(model, BertPretrainer):
            layers = [encoder, model.masked_lm]
            if stored:
                predict_masked = stored.reading(predict_masked, layers)
            self.mlm = ReusableModel(predict_masked, (*INPUTS, POSITIONS), layers, stored)
        add_vocab(self, vocab, do_lower_case)
        self.do_lower_case = tf.Variable(do_lower_case, trainable=False, name="do_lower_case")

        @tf.function(autograph=False, input_signature=[self.input_spec])
        def serving(inputs):
            outputs = encode_with_default(inputs, False)
            # Signatures cannot return lists, and the outputs of all layers would be large to send.
            return {n: outputs[n] for n in ("default", "pooled_output", "sequence_output")}

        self.serving = serving


def _float32(outputs: dict) -> dict:
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), outputs)


def _values(layers: list, attribute: str, stored: Int8Weights | None) -> list[tf.Variable]:
    weights = [weight for layer in layers for weight in getattr(layer, attribute)]
    return stored.variables(weights) if stored else [weight.value for weight in weights]
