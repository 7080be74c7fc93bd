"""Reads published figures: the tables of papers and data sheets in bert_tf/published."""

import pathlib
import tomllib
from typing import Any


def read_published(subject: str) -> dict[str, Any]:
    """Returns the tables of bert_tf/published/SUBJECT.toml, whose comments name the sources."""
    folder = pathlib.Path(__file__).parents[1] / "published"
    return tomllib.loads((folder / f"{subject}.toml").read_text(encoding="utf-8"))
