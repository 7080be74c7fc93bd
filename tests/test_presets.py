"""Presets and the recipes suggested for them."""

import math

import pytest

from bert_tf.presets import NAMED_SIZES, PRESETS, preset_config, suggest_start


@pytest.mark.parametrize("name", PRESETS)
def test_attention_starts_alike_at_every_width(name):
    """Oracle: the standard deviation of attention's logits, initializer_range**2 * width, in base.

    Wider presets keep the published 0.02.
    """
    config = preset_config(name)
    if config.hidden_size > 768:
        assert config.initializer_range == 0.02
        return
    deviation = config.initializer_range**2 * config.hidden_size
    assert deviation == pytest.approx(0.02**2 * 768, rel=0.01)


def test_only_narrow_presets_train_without_dropout():
    """Oracle: the runs of tiny in docs/results.md; the published 0.1 for the others."""
    rates = {preset: preset_config(preset).hidden_dropout_prob for preset in NAMED_SIZES}
    expected = dict.fromkeys(NAMED_SIZES, 0.1) | {"tiny": 0.0, "mini": 0.0}
    assert rates == expected


def test_a_recipe_for_the_text_and_the_device():
    """Oracles: the recipe of docs/results.md for tiny on the CPU; BERT's own for much text."""
    assert suggest_start(160_000, 64, "CPU") == ("tiny", 32, 1e-3, 20_000, 1000)
    assert suggest_start(300, 128, "CPU").num_train_steps == 1000
    bert = suggest_start(6_500_000, 512, "TPU")
    assert bert[:3] == ("base", 256, 1e-4)
    assert math.isclose(bert.num_train_steps, 1_000_000, rel_tol=0.05)  # 40 passes over the text
    assert suggest_start(100_000, 128, "GPU")[:3] == ("small", 256, 5e-4)
