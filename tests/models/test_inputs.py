"""The names, types, shapes and ranges of the inputs that models take."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from encoders import SMALL, random_inputs

from bert_tf.config import BiLSTMConfig
from bert_tf.models import lstms
from bert_tf.models.bert_encoder import BertEncoder, attention_probabilities
from bert_tf.models.lstms import BiLSTMEncoder, FeatureTagger
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel

INPUTS = random_inputs(SMALL)
IDS, MASK, TYPES = INPUTS.values()
POSITIONS = np.array([[1, 2]] * len(IDS))
BILSTM = BiLSTMConfig(101, 8, 1, 2, 8, bilstm="single")
NAMES = {
    "transformers": ("input_ids", "attention_mask", "token_type_ids"),
    "google-research/bert": ("input_ids", "input_mask", "segment_ids"),
    "KerasHub": ("token_ids", "padding_mask", "segment_ids"),
}


@pytest.fixture(scope="module")
def encoder() -> BertEncoder:
    return BertEncoder(SMALL)


MODELS = {
    "encoder": lambda: BertEncoder(SMALL),
    "attention": lambda: functools.partial(attention_probabilities, BertEncoder(SMALL)),
    "bilstm": lambda: BiLSTMEncoder(BILSTM),
    "pretrainer": lambda: BertPretrainer(SMALL),
    "classifier": lambda: BertTaskModel(SMALL, 2),
    "choices": lambda: BertTaskModel(SMALL, 1, "multiple_choice"),
    "tagger": lambda: FeatureTagger(SMALL, 3, "last"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_every_model_takes_the_names_of_other_programs(name, monkeypatch):
    """Oracle: the outputs for our names; without types, those for types of 0."""
    monkeypatch.setattr(lstms, "_UNITS", 8)
    model = MODELS[name]()
    more = {"masked_lm_positions": POSITIONS} if name == "pretrainer" else {}
    values = [x[:, :5] for x in INPUTS.values()]
    if name == "choices":
        values = [x[:, None] for x in values]
    expected = tf.nest.flatten(model(dict(zip(INPUTS, values, strict=True)) | more))

    def same(inputs, expected=expected):
        for a, b in zip(tf.nest.flatten(model(inputs | more)), expected, strict=True):
            np.testing.assert_array_equal(a, b)

    for names in NAMES.values():
        same(dict(zip(names, values, strict=True)))
    for dtype in (tf.int64, tf.uint16, tf.int8):
        same({name: tf.constant(x, dtype) for name, x in zip(INPUTS, values, strict=True)})
    same({name: x.tolist() for name, x in zip(INPUTS, values, strict=True)})
    ids, mask, types = values
    zero = model({"input_ids": ids, "input_mask": mask, "segment_ids": 0 * types} | more)
    same({"input_ids": ids, "attention_mask": mask > 0}, tf.nest.flatten(zero))


def test_in_graphs_and_functional_models_that_are_saved(encoder, tmp_path):
    """Oracle: the encoder itself."""
    expected = encoder({"input_ids": IDS, "attention_mask": MASK})["pooled_output"]
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in NAMES["transformers"]}
    del inputs["token_type_ids"]
    given = {"input_ids": IDS, "attention_mask": MASK}
    model = keras.Model(inputs, encoder(inputs)["pooled_output"])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    in_graph = tf.function(lambda **inputs: encoder(inputs)["pooled_output"], autograph=False)
    for found in (model(given), loaded(given), in_graph(**given), model.predict(given, verbose=0)):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match="a sequence of 41 tokens .* max_position_embeddings 40"):
        encoder({name: keras.Input([41], dtype="int32") for name in given})
    with pytest.raises(ValueError, match="input_ids is of the type float32"):
        encoder({name: keras.Input([8]) for name in given})


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (IDS, "not ndarray"),
        ({"input_ids": IDS}, r"input_mask or .* \(1 for tokens, 0 for .*, not of input_ids$"),
        ({"input_mask": MASK}, "not of input_mask"),
        ({"input_ids": IDS, "attention_masks": MASK}, "not of input_ids, attention_masks"),
        (INPUTS | {"position_ids": IDS}, "not of input_word_ids, .*, position_ids"),
        (INPUTS | {"input_ids": IDS}, "not of input_word_ids, .*, input_ids"),
        (INPUTS | {"input_mask": MASK.astype("float32")}, "input_mask is of the type float32"),
        (INPUTS | {"input_word_ids": IDS[0]}, r"input_word_ids has the shape \[17\]"),
        (INPUTS | {"input_mask": MASK[:, :9]}, r"input_mask has the shape \[3, 9\]"),
        ({"input_ids": IDS * 1.0, "attention_mask": MASK}, "^input_ids is of the type float64"),
        ({"token_ids": IDS, "padding_mask": MASK[:2]}, "^padding_mask has .*, and token_ids "),
        ({"input_ids": IDS, "input_mask": MASK, "segment_ids": IDS}, "^segment_ids has the value"),
        (INPUTS | {"input_mask": [[1, 1], [1]]}, "input_mask has rows of different lengths: add"),
        (INPUTS | {"input_mask": [["1"]]}, "input_mask is of the type str32"),
        (INPUTS | {"input_word_ids": tf.ragged.constant([[1]])}, "dense"),
        (INPUTS | {"input_word_ids": IDS + 101}, "input_word_ids has the value .* 0 to 100"),
        (INPUTS | {"input_word_ids": IDS - 101}, "input_word_ids has the value -101"),
        (INPUTS | {"input_type_ids": tf.constant(TYPES + 2)}, "input_type_ids has the value 3"),
        ({name: np.ones((1, 41), int) for name in INPUTS}, "41 tokens"),
    ],
)
def test_other_inputs_are_one_line(encoder, inputs, named):
    """Oracle: what the line names."""
    with pytest.raises(ValueError, match=named) as caught:
        encoder(inputs)
    assert "\n" not in str(caught.value)


def test_a_model_with_heads_ignores_labels_but_no_misspelt_input():
    """Oracles: the outputs without labels; the lines."""
    model = BertTaskModel(SMALL, 2)
    labels = {"labels": np.array([0, 1, 1])}
    np.testing.assert_array_equal(model(INPUTS | labels), model(INPUTS))
    with pytest.raises(ValueError, match="not of input_word_ids, input_mask, type_ids"):
        model({"input_word_ids": IDS, "input_mask": MASK, "type_ids": TYPES})
    with pytest.raises(ValueError, match="config is 3: give a BertConfig"):
        BertPretrainer(3)
    pretrainer = BertPretrainer(SMALL)
    with pytest.raises(ValueError, match=r"\(without it, 0\), masked_lm_positions, not of inp"):
        pretrainer(INPUTS)
    with pytest.raises(ValueError, match="masked_lm_positions has the value 17"):
        pretrainer(INPUTS | {"masked_lm_positions": POSITIONS + 15})
