"""`bert_config.json`: published files, round trips and invalid values; the presets."""

import dataclasses
import json
import math

import numpy as np
import pytest

from bert_tf.config import PRESETS, BertConfig, describe_presets, preset_config, suggest_start
from bert_tf.models.task_model import BertTaskModel
from bert_tf.weights.translation import entries, own_rows

BASE = {"vocab_size": 100, "hidden_size": 12, "num_attention_heads": 3}


def test_google_files_are_read(shared_data):
    """Oracle: the presets of the same published sizes, up to the range of the initial weights."""
    folder = shared_data / "weights/google_checkpoint_index"
    medium = BertConfig.from_json_file(str(folder / "uncased_L-8_H-512_A-8.bert_config.json"))
    assert medium == dataclasses.replace(preset_config("medium"), initializer_range=0.02)
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
        "pruned_heads": {},
    }
    assert BertConfig.from_dict(values) == BertConfig(**BASE)
    pruned = BertConfig.from_dict(values | {"pruned_heads": {"3": [2, 0], "1": []}})
    assert pruned == BertConfig(**BASE, pruned_heads={3: (0, 2)})
    assert (pruned.kept_heads(1), pruned.kept_heads(3)) == ([0, 1, 2], [1])


def test_an_albert_file_is_read():
    """Oracle: the keys and values of the published albert_config.json of ALBERT base."""
    values = json.loads("""{"attention_probs_dropout_prob": 0, "hidden_act": "gelu",
      "hidden_dropout_prob": 0, "embedding_size": 128, "hidden_size": 768,
      "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512,
      "num_attention_heads": 12, "num_hidden_layers": 12, "num_hidden_groups": 1,
      "net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "inner_group_num": 1,
      "down_scale_factor": 1, "type_vocab_size": 2, "vocab_size": 30000}""")
    no_dropout = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    expected = dataclasses.replace(preset_config("albert-base", 30000), **no_dropout)
    assert BertConfig.from_dict(values) == expected


def test_the_dropout_of_a_head_of_its_own():
    """Oracle: google-research/albert drops 0.1 before a classifier, and nothing in the encoder."""
    rates = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = BertConfig(8, 4, 1, 1, 4, **rates, classifier_dropout_prob=0.5)
    model = BertTaskModel(config, 300)
    inputs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), np.ones((1, 3), int))
    modes = (model.encoder(inputs, training=x)["pooled_output"] for x in (True, False))
    np.testing.assert_array_equal(*modes)
    assert np.any(model(inputs, training=True) != model(inputs))


def test_a_plain_file_has_only_the_keys_of_bert():
    """Oracle: the keys of google-research/bert, plus Hugging Face's layer_norm_eps."""
    keys = """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size
    hidden_act hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings
    type_vocab_size initializer_range layer_norm_eps""".split()
    assert list(BertConfig(**BASE).to_dict()) == keys


@pytest.mark.parametrize(
    "extras",
    [
        {"embedding_size": 5, "num_hidden_groups": 3},
        {"is_decoder": True},
        {"masked_lm_act": "relu", "masked_lm_layer_norm_eps": 0.0},
        {"pruned_heads": {0: (1,), 11: (0, 2)}},
        {"embedding_size": None, "num_hidden_groups": None, "is_decoder": False},
        {"hidden_act": "gelu_new", "hidden_dropout_prob": 0.0},
    ],
)
def test_extras_survive_a_round_trip(extras, tmp_path):
    """Oracle: the configuration before it was written."""
    config = BertConfig.from_dict(BASE | extras)
    assert dataclasses.asdict(config).items() >= extras.items()
    config.to_json_file(str(tmp_path / "bert_config.json"))
    assert BertConfig.from_json_file(str(tmp_path / "bert_config.json")) == config
    assert [path.name for path in tmp_path.iterdir()] == ["bert_config.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 13}, "hidden_size 13 is not a multiple of num_attention_heads 3"),
        ({"hidden_sise": 12}, "unknown key 'hidden_sise'"),
        ({"embedding_size": 0}, "embedding_size must be a positive integer, not 0"),
        ({"num_hidden_groups": 13}, "num_hidden_groups 13 is more than num_hidden_layers 12"),
        ({"inner_group_num": 2}, "inner_group_num 2 is not supported, only 1"),
        ({"is_decoder": 1}, "is_decoder must be true or false, not 1"),
        *(
            ({"pruned_heads": heads}, "pruned_heads is .* map layers .0 to 11. to .*heads .0 to 2.")
            for heads in ([1], {"a": [1]}, {"12": [1]}, {"0": [3]}, {"0": [0, 1, 2]})
        ),
        ({"pruned_heads": {"0": [1]}, "num_hidden_groups": 2}, "pruned_heads needs unshared"),
        ({"hidden_act": "swish"}, "hidden_act 'swish'"),
        ({"gelu_approximate": 1}, "gelu_approximate 1 does not fit hidden_act 'gelu'"),
        ({"gelu_approximate": True, "hidden_act": "relu"}, "gelu_approximate True does not fit"),
        ({"masked_lm_act": "swish"}, "masked_lm_act 'swish'"),
        ({"masked_lm_layer_norm_eps": -1}, "masked_lm_layer_norm_eps must be a finite number"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers must be a positive integer, not 2.0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be below 1"),
        ({"num_hidden_layers": 10**9, "num_hidden_groups": 1}, "num_hidden_layers=1000000000 is"),
        *(
            ({name: 3 * 10**9} | others, f"a model with {name}=3000000000 takes at least .* GB")
            for name, others in {
                "hidden_size": {},
                "intermediate_size": {},
                "max_position_embeddings": {"hidden_size": 3072},
                "num_feedforward_networks": {"intra_bottleneck_size": 12, "embedding_size": 12},
                "vocab_size": {"bilstm": "single", "embedding_size": 3000},
            }.items()
        ),
        ({"initializer_range": "0.02"}, "initializer_range must be a finite number"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    ],
)
def test_invalid_values_are_named(change, message, tmp_path):
    """Oracle: the message names the file, the key and the value."""
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(BASE | change))
    with pytest.raises(ValueError, match=f"bert_config.json: {message}"):
        BertConfig.from_json_file(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "bert_config.json: "),
        ("[1]", r"bert_config.json: it is \[1\], not an object"),
        ("{}", "bert_config.json: vocab_size is missing"),
        ("[" * 10**5, "bert_config.json: maximum recursion depth"),
        (None, "bert_config.json: no such file"),
    ],
)
def test_files_without_a_configuration_are_named(text, message, tmp_path):
    """Oracle: the message names the file and the problem."""
    path = tmp_path / "bert_config.json"
    if text:
        path.write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        BertConfig.from_json_file(str(path))


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_the_weights(name):
    """Oracles: the weights that checkpoints hold; the paper's 110M and 340M."""
    config = preset_config(name)
    found = entries(own_rows(config), config, ["encoder", "projection", "pooler"])
    assert config.num_parameters == sum(math.prod(entry.our_shape) for entry in found)
    if paper := {"base": 110e6, "large": 340e6}.get(name):
        assert round(config.num_parameters, -7) == paper
        assert f", {name} ({config.num_hidden_layers} x " in describe_presets()


def test_an_unknown_preset_is_named():
    """Oracle: the message names the value and the alternatives."""
    with pytest.raises(ValueError, match="no preset 'huge': choose one of tiny"):
        preset_config("huge")


@pytest.mark.parametrize("name", PRESETS)
def test_attention_starts_alike_at_every_width(name):
    """Oracle: the deviation of attention's logits in base; wider presets keep 0.02."""
    config = preset_config(name)
    if config.hidden_size > 768:
        assert config.initializer_range == 0.02
        return
    deviation = config.initializer_range**2 * config.hidden_size
    assert deviation == pytest.approx(0.02**2 * 768, rel=0.01)


def test_only_narrow_presets_train_without_dropout():
    """Oracle: the runs of tiny in docs/results.md; the published 0.1 for the others."""
    names = [name for name in PRESETS if not name.startswith("L-")]
    rates = {name: preset_config(name).hidden_dropout_prob for name in names}
    expected = dict.fromkeys(names, 0.1) | {"tiny": 0.0, "mini": 0.0}
    assert rates == expected


def test_a_recipe_for_the_text_and_the_device():
    """Oracles: the recipe of docs/results.md for tiny on the CPU; BERT's own for much text."""
    assert suggest_start(160_000, 64, "CPU") == ("tiny", 32, 1e-3, 20_000, 1000)
    assert suggest_start(300, 128, "CPU").num_train_steps == 1000
    bert = suggest_start(6_500_000, 512, "TPU")
    assert bert[:3] == ("base", 256, 1e-4)
    assert math.isclose(bert.num_train_steps, 1_000_000, rel_tol=0.05)  # 40 passes over the text
    assert suggest_start(100_000, 128, "GPU")[:3] == ("small", 256, 5e-4)
