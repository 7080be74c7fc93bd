"""Numbers that no flag can have. Oracle: the flag that the message names."""

import dataclasses
import importlib

import pytest

from bert_tf.__main__ import COMMANDS
from bert_tf.base.command_help import flag_name, is_required, value_type


@pytest.mark.parametrize("name", COMMANDS)
def test_every_numeric_flag_has_limits(name):
    options_type = importlib.import_module(COMMANDS[name]).Options
    fields = dataclasses.fields(options_type)
    required = {
        field.name: (*field.metadata["choices"], "x")[0] for field in fields if is_required(field)
    }
    for field in fields:
        if value_type(field) not in (int, float):
            continue
        # Thresholds of scores have no lower limit.
        small = [-1, -(2**70)] * (field.name != "null_score_diff_threshold")
        large = [2**70, 10**400, float("inf"), -float("inf"), float("nan")]
        for value in (*small, *large):
            with pytest.raises(ValueError, match=f"^--{flag_name(field)} is .*: it must be "):
                options_type(**required | {field.name: value})
