"""Oracles: means taken by hand; every other number of a checkpoint bit for bit."""

import json

import numpy as np
import pytest

from bert_tf.weights.growing import VocabularyMapping, load_mapping


def test_rows_grow_by_hand():
    rows = np.array([[1, 2], [3, 4], [5, 9]], np.float32)
    longer = VocabularyMapping(3, 5, {3: (0, 1), 4: (2, 2, 1)})
    grown = longer.grow(rows)
    assert grown.dtype == np.float32
    np.testing.assert_array_equal(grown[:3], rows)
    np.testing.assert_array_equal(grown[3:], np.float32([[2, 3], [13 / 3, 22 / 3]]))
    # Replaced rows: their old values count, even for themselves.
    same = VocabularyMapping(3, 3, {0: (1, 2), 1: (0, 1)})
    np.testing.assert_array_equal(same.grow(rows[:, 0]), [4, 2, 5])


def test_which_weights_have_one_row_per_token():
    mapping = VocabularyMapping(3, 3, {})
    assert mapping.grows("encoder/embeddings/word_embeddings")
    assert mapping.grows("pretrainer/masked_lm/output_bias")
    assert not mapping.grows("encoder/layer_0/output_bias")
    assert not mapping.grows("encoder/embeddings/position_embeddings")
    assert not mapping.grows("next_sentence/output_bias")


def test_the_file_round_trip_and_what_it_must_hold(tmp_path):
    path = tmp_path / "mapping.json"
    mapping = VocabularyMapping(3, 4, {1: (0,), 3: (2, 1)}, {1: "é", 3: '"'})
    path.write_text(mapping.to_json(), encoding="utf-8")
    assert load_mapping(str(path)) == mapping
    data = json.loads(path.read_text())
    assert data["new_tokens"][0] == {"id": 1, "token": "é", "old_ids": [0]}

    missing = [data["new_tokens"][0]]
    for change, message in [
        ({"new_tokens": missing}, "does not say what id 3 starts from"),
        ({"old_size": 5}, "old_size 5 and new_size 4 do not fit together"),
        ({"new_tokens": [{"id": 4, "old_ids": [0]}, *data["new_tokens"]]}, "id 4 is outside"),
        ({"new_tokens": [{"id": 3, "old_ids": [3]}]}, r"id 3 starts from \[3\]: give ids below 3"),
        ({"new_tokens": [{"id": 3, "old_ids": []}]}, r"id 3 starts from \[\]"),
        ({"new_tokens": [{"id": 3}]}, "it has no 'old_ids'"),
        ({"new_tokens": 7}, "not iterable"),
    ]:
        path.write_text(json.dumps(data | change))
        with pytest.raises(ValueError, match=f"mapping.json is not a mapping.*: .*{message}"):
            load_mapping(str(path))
    path.write_text("[1, 2")
    with pytest.raises(ValueError, match="mapping.json is not a mapping"):
        load_mapping(str(path))
    with pytest.raises(OSError, match="cannot read .*absent.json"):
        load_mapping(str(tmp_path / "absent.json"))
