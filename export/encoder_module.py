"""The objects inside the SavedModel of an encoder; weights in 8 bits, to compute in float32."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import INPUTS, POSITIONS
from bert_tf.models.pretrainer import BertPretrainer
from export.saved_models import add_vocab
from tfrecords.vocabulary import Vocabulary


def quantize(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the int8 values of a matrix and their float32 scales, one for each index of an axis.

        value = round(weight / scale),  scale = max|weight| / 127 over the other axis

    A weight differs from value * scale by at most half a scale.
    """
    scale = np.max(np.abs(weight), axis=1 - axis, keepdims=True) / np.float32(127)
    values = np.divide(weight, scale, out=np.zeros_like(weight), where=scale > 0)
    return np.rint(values).astype(np.int8), scale


class Int8Weights:
    """The matrices and tables of a model in 8 bits; vectors stay as they are.

    Every column of a matrix has a scale, that is, every output of a dense layer; so has every row
    of a table of embeddings. Without weights, all stay as they are.
    """

    def __init__(self, weights: Sequence[keras.Variable]):
        self._stored = {}
        for weight in weights:
            if len(weight.shape) == 2:
                axis = 0 if weight.path.endswith("_embeddings") else 1
                values, scale = quantize(weight.numpy(), axis)
                self._stored[weight.path] = (
                    weight,
                    tf.Variable(values, trainable=False, name=weight.path),
                    tf.Variable(scale, name=f"{weight.path}_scale"),
                )

    def reading(self, function: Callable, layers: Sequence[keras.layers.Layer]) -> Callable:
        """Returns a function in which some layers read what is stored in place of their weights."""
        if not self._stored:
            return function
        weights = [weight for layer in layers for weight in layer.variables]
        stored = [self._stored[w.path] for w in weights if w.path in self._stored]
        others = [weight for weight in weights if weight.path not in self._stored]

        def read(*args):
            values = [
                (weight, tf.cast(values, tf.float32) * scale) for weight, values, scale in stored
            ]
            with keras.StatelessScope(values) as scope:
                outputs = function(*args)
            # The scope keeps the next seed of dropout to itself.
            for variable in others:
                if (value := scope.get_current_value(variable)) is not None:
                    variable.assign(value)
            return outputs

        return read

    def variables(self, weights: Sequence[keras.Variable]) -> list[tf.Variable]:
        """Returns what holds some of the weights of the model."""
        found = []
        for weight in weights:
            _, *variables = self._stored.get(weight.path, (weight, weight.value))
            found += variables
        return found


class Int8Model:
    """A float32 model whose matrices are `stored` in 8 bits, to be called without training."""

    # Those of Keras.
    variables = ()

    def __init__(self, model: keras.Model):
        stored = Int8Weights(model.weights)
        self.stored = stored.variables(model.weights)
        self._call = stored.reading(lambda inputs: model(inputs, training=False), [model])

    def __call__(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        return self._call(inputs)


class ReusableModel(tf.train.Checkpoint):
    """What hub.KerasLayer expects: a call with `training`, and lists of variables.

    This is not a tf.Module, because its `variables` are a property, which is not saved.

    Args:
        input_names: names in groups. The inputs of a group are all int32 or all int64, [B, S].
        layers: those that the function calls.
        stored: what holds their weights.

    Source: tensorflow/hub docs/reusable_saved_models.md.
    """

    def __init__(
        self, function, input_names: Sequence[Sequence[str]], layers: list, stored: Int8Weights
    ):
        super().__init__()
        self.variables = stored.variables([x for layer in layers for x in layer.variables])
        trainable = stored.variables([x for layer in layers for x in layer.trainable_variables])
        self.trainable_variables = [variable for variable in trainable if variable.trainable]
        self.regularization_losses = []
        self.input_spec = _specs(input_names, [tf.int32] * len(input_names))

        # A closure, because attributes are saved, and only the variables of Keras layers should be.
        @tf.function(autograph=False)
        def call(inputs, training=False):
            if isinstance(inputs, list):
                outputs = call(dict(zip(INPUTS, inputs, strict=True)), training=training)
                return [outputs["pooled_output"], outputs["sequence_output"]]
            if any(x.dtype != tf.int32 for x in inputs.values()):
                inputs = {name: tf.cast(x, tf.int32) for name, x in inputs.items()}
                return call(inputs, training=training)
            return function(inputs, training)

        self.__call__ = call
        # The functions for int32 come first, because the others call them.
        for dtypes in itertools.product((tf.int32, tf.int64), repeat=len(input_names)):
            specs = _specs(input_names, dtypes)
            for training in (False, True):
                call.get_concrete_function(specs, training=training)
                if len(set(dtypes)) == 1 and [*specs] == [*INPUTS]:
                    call.get_concrete_function([*specs.values()], training=training)


def _specs(names: Sequence[Sequence[str]], dtypes: Sequence[tf.DType]) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a call, given the type of each group of names."""
    pairs = zip(names, dtypes, strict=True)
    return {n: tf.TensorSpec([None, None], dtype, n) for group, dtype in pairs for n in group}


class EncoderModule(ReusableModel):
    """Maps a dict of int32 or int64 [B, S] to the outputs of an encoder.

    The outputs are `default`, `pooled_output`, `sequence_output` and `encoder_outputs`, all
    float32. As in TF Hub's second generation, a list of the three inputs, of one type, gives the
    list of pooled and sequence output. The sub-object `mlm`, for a pretrainer, also takes
    `masked_lm_positions` [B, P] and returns `mlm_logits` [B, P, V]; the variables of its head are
    not among those of the root. `vocab_file` and `do_lower_case` describe the tokenizer. With
    `int8`, matrices have 8 bits.

    Source: tensorflow/models official/nlp/tools/export_tfhub_lib.py `export_model`.
    """

    def __init__(
        self,
        model: BertPretrainer | BertEncoder,
        vocab: Vocabulary,
        do_lower_case: bool,
        int8: bool = False,
    ):
        stored = Int8Weights(model.weights if int8 else ())
        encoder = getattr(model, "encoder", model)
        encoder.skips_padding = False  # XLA may compile what is exported.
        longest = model.config.max_position_embeddings

        def encode(inputs, training):
            outputs = encoder(_checked(inputs, longest), training=training)
            return {name: outputs[name] for name in outputs if name != "embeddings"}

        def encode_with_default(inputs, training):
            outputs = _float32(encode(inputs, training))
            return outputs | {"default": outputs["pooled_output"]}

        def predict_masked(inputs, training):
            outputs = encode(inputs, training)
            table = encoder.embeddings.word_embeddings
            sequence, positions = outputs["sequence_output"], inputs[POSITIONS]
            logits = model.masked_lm(sequence, positions, table)
            return _float32(outputs | {"mlm_logits": logits})

        encode_with_default = stored.reading(encode_with_default, [encoder])
        super().__init__(encode_with_default, [[name] for name in INPUTS], [encoder], stored)
        if isinstance(model, BertPretrainer):
            layers = [encoder, model.masked_lm]
            predict_masked = stored.reading(predict_masked, layers)
            # One type for all three loads faster than a function for every mixture of types.
            self.mlm = ReusableModel(predict_masked, [INPUTS, [POSITIONS]], layers, stored)
        add_vocab(self, vocab, do_lower_case)
        self.do_lower_case = tf.Variable(do_lower_case, trainable=False, name="do_lower_case")

        @tf.function(autograph=False, input_signature=[self.input_spec])
        def serving(inputs):
            outputs = encode_with_default(inputs, False)
            # Signatures cannot return lists, and the outputs of all layers would be large to send.
            return {n: outputs[n] for n in ("default", "pooled_output", "sequence_output")}

        self.serving = serving


def _checked(inputs: dict[str, tf.Tensor], longest: int) -> dict[str, tf.Tensor]:
    """Returns the inputs, and checks that their shapes agree and that no value is negative."""
    # Other shapes would broadcast or end the process; negative ids count from a table's end.
    # Hides the length from TensorFlow's shape inference, whose own error for a length that is too
    # long would come first and not name the limit.
    hide = tf.compat.v1.placeholder_with_default
    inputs = {name: tf.ensure_shape(hide(x, None, name), x.shape) for name, x in inputs.items()}
    shape = tf.shape(inputs[INPUTS[0]])
    message = f"the encoder takes sequences of at most {longest} tokens"
    checks = [tf.debugging.assert_less_equal(shape[1], longest, message)]
    for name, x in inputs.items():
        axes = 1 if name == POSITIONS else 2
        message = f"{name} does not have the shape of {INPUTS[0]}"
        checks += [
            tf.debugging.assert_equal(tf.shape(x)[:axes], shape[:axes], message),
            tf.debugging.assert_non_negative(x, f"{name} has a negative value"),
        ]
    with tf.control_dependencies(checks):
        return {name: tf.identity(x) for name, x in inputs.items()}


def _float32(outputs: dict) -> dict:
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), outputs)
