"""JSON files of declared kinds. Oracles: hand-written values and messages."""

import re
from typing import Any, NotRequired, TypedDict

import pytest

from tfrecords.files import read_json


class _Module(TypedDict):
    path: str
    size: NotRequired[int | None]
    tags: NotRequired[str | list[str]]
    scores: NotRequired[dict[str, float]]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ('[{"path": "a", "size": null, "tags": ["x"], "other": {}}]', list[_Module], None),
        ('[{"path": "a", "tags": "x", "scores": {"1": 2, "2": 0.5}}]', list[_Module], None),
        ('\ufeff{"path": [1, {}]}', dict[str, Any], None),
        ("[]", _Module, "it is [], not an object"),
        ("{}", _Module, "it has no 'path'"),
        ('[{"path": 3}]', list[_Module], "[0].path is 3, not a string"),
        ('{"path": "a", "size": true}', _Module, "size is True, not an integer or null"),
        ('{"path": "a", "tags": ["x", {}]}', _Module, "tags[1] is {}, not a string"),
        ('{"path": "", "scores": {"x": "y"}}', _Module, "scores['x'] is 'y', not a number"),
        ("[" * 100_000, list[Any], "maximum recursion depth exceeded"),
        ('{"path": "a"}\n{}', _Module, "it holds several JSON values, as JSON lines do"),
        ('{"path": "a"', _Module, "Expecting ',' delimiter"),
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
