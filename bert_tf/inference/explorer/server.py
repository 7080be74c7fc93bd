"""Serves the page to browsers on this machine, and explores the texts that it sends."""

import contextlib
import html
import http.server
import importlib.resources
import json
import os
import pathlib
import re
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_tf.base.calling import called_options, in_python, showing_settings
from bert_tf.base.output_files import atomic_write, check_output_files
from bert_tf.inference.explorer.exploring import Exploration, Explorer
from bert_tf.inference.inference_options import ExplorerOptions, PageOptions


def page_of(
    explorations: Sequence[Exploration],
    model: str,
    live: bool = False,
    examples: Sequence[str] = (),
) -> str:
    """Returns the page as HTML.

    A `live` one sends new texts to the server that it comes from, and suggests `examples`.
    """
    files = importlib.resources.files(__package__)
    page, css, js = (
        files.joinpath(f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js")
    )
    data = dict(model=model, live=live, texts=list(explorations), examples=list(examples))
    # Whatever the texts hold, the data come last and have no "<": they end no element.
    parts = {
        "STYLE": css,
        "SCRIPT": js,
        "DATA": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    for name, part in parts.items():
        page = page.replace(f"@{name}@", part, 1)
    return page


_ADDRESS = "127.0.0.1"
MOST_BYTES = 2**20


class PageServer(http.server.ThreadingHTTPServer):
    """Answers `GET /` with the page, and `POST /` of {"text": ...} with what the model does.

    It listens on 127.0.0.1 only, and refuses requests under other names, which a page elsewhere
    could make a browser send (DNS rebinding). It reads no file and runs nothing that it is sent.

    `explore` maps text in UTF-8 to what the page shows, and is never called twice at a time.
    """

    def __init__(self, port: int, page: str, explore: Callable[[bytes], Exploration]):
        try:
            super().__init__((_ADDRESS, port), _Handler)
        except OSError as error:
            raise OSError(f"--port={port}: {error.strerror}: choose another, or 0") from None
        self.page, self.explore, self.lock = page.encode(), explore, threading.Lock()
        self.names = {f"{name}:{self.server_port}" for name in (_ADDRESS, "localhost")}
        self.url = f"http://{_ADDRESS}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that close their connection, which is not an error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    # A browser opens connections that it may never use.
    timeout = 60

    def do_GET(self) -> None:
        if self._accepts():
            self._send(200, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:
        if not self._accepts():
            return
        # A page elsewhere cannot send this type without asking first, which finds no answer.
        if self.headers.get_content_type() != "application/json":
            return self._refuse(415, "send application/json")
        # Python does not parse numbers with thousands of digits.
        length = re.fullmatch("[0-9]{1,20}", self.headers.get("Content-Length", ""))
        if not length or int(length[0]) > MOST_BYTES:
            return self._refuse(413, f"the text may have up to {MOST_BYTES:,} bytes")
        try:
            # Half of a surrogate pair is not a character.
            text = json.loads(self.rfile.read(int(length[0])))["text"].encode("utf-8", "replace")
        except TimeoutError:
            return self._refuse(408, f"the text did not arrive within {self.timeout} seconds")
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            return self._refuse(400, 'send {"text": "..."}')
        with self.server.lock:
            exploration = self.server.explore(text)
        self._send(200, "application/json", json.dumps(exploration).encode())

    def _accepts(self) -> bool:
        if self.headers.get("Host") not in self.server.names:
            self._refuse(403, f"open {self.server.url}")
        elif self.path != "/":
            self._refuse(404, "there is only /")
        else:
            return True
        return False

    def _refuse(self, code: int, reason: str) -> None:
        self._send(code, "application/json", json.dumps({"error": reason}).encode())

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "bert_tf"

    def log_message(self, *_: object) -> None:
        """The page shows what happened."""


@dataclass(frozen=True)
class NotebookPage:
    """The page; a notebook shows it as the result of a cell."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            'style="width: 100%; height: 900px; resize: vertical; border: 0"></iframe>'
        )


@showing_settings(PageOptions)
def notebook_page(checkpoint: str, *texts: str, **flags: Any) -> NotebookPage:
    """Returns the page for a notebook; without texts, it shows examples.

    `flags` are those of explore that say what to show and how to read: `top_k`, `max_seq_length`,
    `vocab_file` and `do_lower_case`.
    """
    given = flags | dict(checkpoint=checkpoint, texts=texts)
    with in_python(PageOptions):
        options = called_options("notebook_page", PageOptions, given)
        return NotebookPage(_make_page(options)[1])


def _make_page(options: PageOptions, live: bool = False) -> tuple[Explorer, str, list[bool]]:
    """Returns the explorer, the page, and for each text whether it was truncated."""
    explorer = Explorer(options)
    # Arguments that are not UTF-8 arrive with surrogates.
    texts = [x.encode("utf-8", "surrogateescape") for x in options.texts or explorer.examples[:2]]
    explorations = [explorer.explore(text) for text in texts]
    name = os.path.basename(os.path.abspath(options.checkpoint))
    page = page_of(explorations, name, live, explorer.examples)
    return explorer, page, [exploration["truncated"] for exploration in explorations]


def explore(options: ExplorerOptions) -> None:
    """Writes the page, or serves it until Ctrl-C."""
    if options.output_file:
        read = [options.checkpoint, options.vocab_file]
        check_output_files([options.output_file], read, options.overwrite)
    explorer, page, truncated = _make_page(options, not options.output_file)
    if options.output_file:
        atomic_write(options.output_file, page, options.overwrite)
        print(f"Wrote {options.output_file}: open it in a browser.")
        if options.open:
            webbrowser.open(pathlib.Path(options.output_file).absolute().as_uri())
    else:
        with PageServer(options.port, page, explorer.explore) as server:
            print(f"Open {server.url} in a browser, and end with Ctrl-C.", flush=True)
            if options.open:
                webbrowser.open(server.url)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
    if any(truncated):
        what = f"{sum(truncated)} of {len(truncated)} texts to {explorer.max_seq_length} tokens"
        advice = f"--max_seq_length may be up to {explorer.most_tokens}"
        print(f"WARNING: truncated {what}: {advice}.", file=sys.stderr)
