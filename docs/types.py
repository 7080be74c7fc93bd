"""Writes bert_tf/__init__.pyi, which tells type checkers and editors the Python interface.

    python docs/types.py

The functions that are commands, and those that take settings, have no signatures in their source.
"""

import inspect
import pathlib
import re

import bert_tf

PATH = pathlib.Path(bert_tf.__file__).with_suffix(".pyi")
_HEAD = '''\
"""The Python interface. `python docs/types.py` writes this file."""

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

'''
_ALIASES = """
# A list stands for comma-separated values.
_Text: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | int | float]
REVIEWS: str
__version__: str
PRESETS: dict[str, Size]
"""
# Functions whose results have no annotation of their own.
_RETURNS = {
    "build_vocabulary": "Vocabulary",
    "create_examples": "str",
    "pretrain": "TrainedRun",
    "finetune": "TrainedRun",
    "export_encoder": "str",
    "export_classifier": "str",
    "export_embedder": "str",
}
# What results are, beside the names of bert_tf.
_RESULTS = {
    "bert_tf.inference.explorer.server": "NotebookPage",
    "bert_tf.inference.masks": "MaskFiller",
    "bert_tf.inference.predictor": "Predictor",
    "bert_tf.config": "Size",
}


def stub() -> str:
    """Returns the text of the file."""
    written = [*_RETURNS, "load_predictor", "load_mask_filler", "notebook_page"]
    imports = [f"from {module} import {name} as {name}" for module, name in _RESULTS.items()]
    imports.append("from bert_tf import plots as plots")
    commands = sorted(path.stem for path in (PATH.parent / "cli").glob("[a-z]*.py"))
    imports += [f"from bert_tf.cli import {name} as {name}" for name in commands]
    for name in bert_tf.__all__:
        thing = getattr(bert_tf, name)
        if name not in written and callable(thing):
            imports.append(f"from {thing.__module__} import {name} as {name}")
    functions = [_function(name) for name in written]
    return _HEAD + "\n".join(sorted(imports)) + "\n" + _ALIASES + "\n" + "\n".join(functions)


def _function(name: str) -> str:
    signature = inspect.signature(getattr(bert_tf, name))
    result = _RETURNS.get(name) or signature.return_annotation.__name__
    lines, named = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            named = True
            if not any("*" in line for line in lines):
                lines.append("    *,")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        lines.append(f"    {star}{parameter.name}: {_kind(parameter)},")
    about = inspect.getdoc(getattr(bert_tf, name)).partition("\n\n")[0]
    about = f'    """{about}\n\n    `help(bert_tf.{name})` explains the arguments.\n    """'
    return "\n".join([f"def {name}(", *lines, f") -> {result}:", about, "    ...", ""])


def _kind(parameter: inspect.Parameter) -> str:
    """Returns the type of an argument, and its default."""
    text = inspect.formatannotation(parameter.annotation).replace("typing.", "")
    text = text.replace("collections.abc.", "").replace("os.PathLike", "os.PathLike[str]")
    if parameter.kind is parameter.VAR_POSITIONAL:
        return text
    text = re.sub(r"^Optional\[(.*)\]$", r"\1", text)
    if not text.startswith("Literal"):
        text = re.sub(r"\b(str|tuple)\b(?!\])", "_Text", text)
    if parameter.default is parameter.empty:
        return text
    if not text.endswith("None") and text != "Any":
        text += " | None"
    return f"{text} = {parameter.default!r}"


if __name__ == "__main__":
    PATH.write_text(stub())
    print(f"Wrote {PATH}.")
