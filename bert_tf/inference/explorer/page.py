"""Puts the page together: one file that needs no other, and no network."""

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Sequence

from bert_tf.inference.explorer.exploring import Exploration


def page_of(
    explorations: Sequence[Exploration], model: str, max_seq_length: int, live: bool = False
) -> str:
    """Returns the page as HTML.

    Args:
        explorations: what it shows.
        model: the name of the model.
        max_seq_length: how many tokens of a text it shows.
        live: whether it sends new texts to the server that it comes from.
    """
    files = importlib.resources.files(__package__)
    html, css, js = (
        files.joinpath(f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js")
    )
    data = {
        "model": model,
        "maxSeqLength": max_seq_length,
        "live": live,
        "texts": list(explorations),
    }
    # Whatever the texts hold, the data come last and have no "<": they end no element.
    parts = {
        "POLICY": _policy(css, js, live),
        "STYLE": css,
        "SCRIPT": js,
        "DATA": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    for name, part in parts.items():
        html = html.replace(f"@{name}@", part, 1)
    return html


def _policy(css: str, js: str, live: bool) -> str:
    """Lets browsers run and load nothing but the page's own style and script."""
    style, script = (
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (css, js)
    )
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
