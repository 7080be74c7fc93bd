"""`bert_config.json` against published files, a round trip, and values no encoder can have."""

import json

import pytest

from bert_tf.config import BertConfig
from bert_tf.presets import preset_config

BASE = {"vocab_size": 100, "hidden_size": 12, "num_attention_heads": 3}


def test_google_files_are_read(shared_data):
    """Oracle: the two published files' own values."""
    folder = shared_data / "weights/google_checkpoint_index"
    medium = BertConfig.from_json_file(str(folder / "uncased_L-8_H-512_A-8.bert_config.json"))
    assert medium == preset_config("medium")
    chinese = BertConfig.from_json_file(str(folder / "chinese_L-12_H-768_A-12.bert_config.json"))
    assert chinese == preset_config("base", vocab_size=21128)


def test_a_hugging_face_file_is_read():
    """Oracle: the keys of a published Hugging Face config.json."""
    values = BASE | {
        "architectures": ["BertModel"],
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "model_type": "bert",
        "use_cache": True,
    }
    assert BertConfig.from_dict(values) == BertConfig(**BASE)


def test_round_trip(tmp_path):
    config = BertConfig(**BASE, hidden_act="gelu_new", hidden_dropout_prob=0.0)
    config.to_json_file(str(tmp_path / "bert_config.json"))
    assert BertConfig.from_json_file(str(tmp_path / "bert_config.json")) == config
    assert [path.name for path in tmp_path.iterdir()] == ["bert_config.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 13}, "hidden_size 13 is not a multiple of num_attention_heads 3"),
        ({"hidden_sise": 12}, "unknown key 'hidden_sise'"),
        ({"hidden_act": "swish"}, "hidden_act 'swish'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a whole number above 0, not 0"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers must be a whole number above 0, not 2.0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be below 1"),
        ({"initializer_range": "0.02"}, "initializer_range must be a number"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    ],
)
def test_bad_values_are_named(change, message, tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(BASE | change))
    with pytest.raises(ValueError, match=f"bert_config.json: {message}"):
        BertConfig.from_json_file(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "bert_config.json: "), ("[1]", "not a JSON object"), ("{}", "vocab_size is missing")],
)
def test_files_that_are_no_config_are_named(text, message, tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        BertConfig.from_json_file(str(path))
    with pytest.raises(FileNotFoundError, match="no such file"):
        BertConfig.from_json_file(str(tmp_path / "absent.json"))


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match="no preset 'huge'; there are tiny"):
        preset_config("huge")
