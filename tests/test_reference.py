"""The reference pages: every public name is on one of them, with a docstring."""

import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest

import bert_tf
from bert_tf import plots
from bert_tf.training.trainer import Objective

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
# Whatever these define is public.
PUBLIC = (
    "bert_tf.layers",
    "bert_tf.models",
    "bert_tf.finetuning.task",
    "bert_tf.finetuning.objectives",
    "bert_tf.finetuning.metrics",
    "bert_tf.training.trainer",
    "bert_tf.training.optimizers",
)
NOT_OBJECTS = ("REVIEWS", "__version__", "plots")

if not PAGES.exists():
    pytest.skip("the tests run without the checkout", allow_module_level=True)


def find(path):
    for parts in range(path.count(".") + 1, 0, -1):
        module, *names = ".".join(path.split(".")[:parts]), *path.split(".")[parts:]
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for name in names:
            found = getattr(found, name)
        return found


def public_members(module):
    return [
        value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
        and not name.startswith(("_", "plain_"))
    ]


def modules(name):
    module = importlib.import_module(name)
    below = pkgutil.iter_modules(getattr(module, "__path__", []), name + ".")
    return [module, *(importlib.import_module(entry.name) for entry in below)]


def undocumented(value):
    """Returns the public names of an object, itself included, that have no docstring."""
    if inspect.ismodule(value):
        return [name for member in public_members(value) for name in undocumented(member)]
    names = [] if inspect.getdoc(value) else [value.__qualname__]
    if not inspect.isclass(value):
        return names
    # What these define is documented there. An objective need not derive from `Objective`.
    interfaces = value.__mro__[1:] + (Objective,) * (value is not Objective)
    return names + [
        f"{value.__qualname__}.{name}"
        for name, member in vars(value).items()
        if not name.startswith("_")
        and (callable(member) or isinstance(member, property | classmethod | staticmethod))
        and not inspect.getdoc(getattr(value, name))
        and not re.search(rf"^ +(\w+, )*{name}(, \w+)*: ", value.__doc__ or "", re.M)
        and not any(hasattr(base, name) or name in base_fields(base) for base in interfaces)
    ]


def base_fields(base):
    return vars(base).get("__annotations__", {})


LISTED = re.findall(
    r"^::: (\S+)$", "\n".join(page.read_text() for page in PAGES.glob("*.md")), re.M
)


def test_every_public_name_is_in_the_reference():
    """Oracles: `__all__` of bert_tf and of bert_tf.plots; what the modules in `PUBLIC` define."""
    listed = [find(path) for path in LISTED]
    for value in filter(inspect.ismodule, tuple(listed)):
        listed += public_members(value)
    public = [getattr(plots, name) for name in plots.__all__]
    public += [getattr(bert_tf, name) for name in bert_tf.__all__ if name not in NOT_OBJECTS]
    for name in PUBLIC:
        public += [value for module in modules(name) for value in public_members(module)]
    assert [value for value in public if value not in listed] == []


def test_names_in_the_reference_are_documented():
    """Oracle: docstrings of the objects and of their public methods and properties.

    An attribute may also be described under the class's "Attributes:".
    """
    objects = [find(path) for path in LISTED if path != "bert_tf.PRESETS"]
    assert [name for value in objects for name in undocumented(value)] == []
