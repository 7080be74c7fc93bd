"""Prepares the docstrings of this project for the reference pages."""

import ast
import inspect
import re
import textwrap
from typing import Any

import griffe

import bert_tf

_LABEL = re.compile(r"^(Call|Source):", re.M)
_SECTION = re.compile(r"^(Example|Returns):\n((?:(?: {4}.*)?(?:\n|\Z))+)", re.M)
# Two names with one description, as in "dev_file, test_file: ...".
_SHARED = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n {5,}.*)*)", re.M)
_ARXIV = re.compile(r"\barXiv:(\d{4}\.\d{5})")


class Docstrings(griffe.Extension):
    """Marks labels, examples and papers, and finds the names that bert_tf imports lazily."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = marked_up(obj.docstring.value)

    def on_module_members(self, *, node: ast.AST, mod: griffe.Module, **kwargs: Any) -> None:
        if mod.path == "bert_tf" and "_MODULES" in mod.members:  # not in its stub
            for name, module in ast.literal_eval(str(mod["_MODULES"].value)).items():
                mod.set_member(name, griffe.Alias(name, f"{module}.{name}"))
            for name in ast.literal_eval(str(mod["_FUNCTIONS"].value)):
                mod.set_member(name, function_of(name))


def function_of(name: str) -> griffe.Function:
    """Returns the function bert_tf.NAME, which exists only when it is asked for."""
    function = getattr(bert_tf, name)
    parameters = [
        griffe.Parameter(
            x.name,
            kind=griffe.ParameterKind[x.kind.name.lower()],
            default=None if x.default is x.empty else repr(x.default),
        )
        for x in inspect.signature(function).parameters.values()
    ]
    docstring = griffe.Docstring(marked_up(function.__doc__))
    return griffe.Function(name, parameters=griffe.Parameters(*parameters), docstring=docstring)


def marked_up(docstring: str) -> str:
    """Returns a docstring with Markdown for what Google's style does not know."""
    text = _SECTION.sub(_section, docstring)
    text = _SHARED.sub(_one_by_one, text)
    text = _LABEL.sub(r"**\1:**", text)
    return _ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _section(found: re.Match[str]) -> str:
    label, text = found[1], textwrap.dedent(found[2]).strip()
    return f"**{label}:**" + (
        f"\n\n```python\n{text}\n```\n\n" if label == "Example" else f" {text}\n\n"
    )


def _one_by_one(shared: re.Match[str]) -> str:
    return "\n".join(f"    {name}: {shared[2]}" for name in shared[1].split(", "))
