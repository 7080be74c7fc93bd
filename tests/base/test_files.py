"""JSON files of declared kinds. Oracles: hand-written values and messages."""

import re
from typing import Any

import pytest

from bert_tf.base.files import read_json

_MODULE = {"path": str, "size?": int | None, "tags?": str | list[str], "scores?": dict[str, float]}


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ('[{"path": "a", "size": null, "tags": ["x"], "other": {}}]', list[_MODULE], None),
        ('[{"path": "a", "tags": "x", "scores": {"1": 2, "2": 0.5}}]', list[_MODULE], None),
        ('\ufeff{"path": [1, {}]}', dict[str, Any], None),
        ("[]", _MODULE, "it is [], not an object"),
        ("{}", _MODULE, "it has no 'path'"),
        ('[{"path": 3}]', list[_MODULE], "[0].path is 3, not a string"),
        ('{"path": "a", "size": true}', _MODULE, "size is True, not an integer or null"),
        ('{"path": "a", "tags": ["x", {}]}', _MODULE, "tags[1] is {}, not a string"),
        ('{"path": "", "scores": {"x": "y"}}', _MODULE, "scores['x'] is 'y', not a number"),
        ("[" * 100_000, list[Any], "maximum recursion depth exceeded"),
        ('{"path": "a"}\n{}', _MODULE, "it contains several JSON values, as JSON lines do"),
        ('{"path": "a"', _MODULE, "Expecting ',' delimiter"),
    ],
)
def test_json_holds_the_declared_kinds(tmp_path, text, kind, message):
    path = str(tmp_path / "file.json")
    assert read_json(path, kind) == {}
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    if not message:
        assert read_json(path, kind)
        return
    with pytest.raises(ValueError, match=re.escape(f"{path} is damaged ({message}")) as error:
        read_json(path, kind, "mend it")
    assert str(error.value).endswith("): mend it")
