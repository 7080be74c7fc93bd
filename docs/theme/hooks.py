"""Makes README.md and the notebooks pages of the site, and lists the flags of all commands."""

import dataclasses
import importlib
import json
import pathlib
import re
import textwrap
from html import escape
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

from bert_tf.__main__ import COMMANDS
from bert_tf.base import __version__
from bert_tf.base.command_help import flag_name, is_required, ordered_flags
from bert_tf.inference.explorer.server import page_of

ROOT = pathlib.Path(__file__).parents[2]
_NOTEBOOK = """
{% extends 'markdown/index.md.j2' %}
{% macro fenced(text) %}
```text title="Output"
{{ text }}
```
{% endmacro %}
{% block stream %}{{ fenced(output.text) }}{% endblock %}
{% block data_text %}{{ fenced(output.data['text/plain']) }}{% endblock %}
"""


def on_config(config: Any) -> None:
    """Shows the version in the header and in the titles of all pages."""
    config.site_name += f" {__version__}"


def on_files(files: Files, config: Any) -> Files:
    """Adds README.md as index.md, the notebooks, and a page of explore.

    The links of README.md become those of a page in docs/.
    """

    def add(name: str, content: str | bytes, source: str) -> None:
        file = File.generated(config, name, content=content)
        file.edit_uri = f"../{source}"
        files.append(file)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", readme)
    text = re.sub(r"\]\(colab/(\w+)\.ipynb\)", r"](notebooks/\1.md)", text)
    add("index.md", f"---\nhide: [navigation]\n---\n{text}", "README.md")
    for path in sorted((ROOT / "colab").glob("*.ipynb")):
        for name, content in _notebook_page(path).items():
            add(f"notebooks/{name}", content, f"colab/{path.stem}.py")
    sample = "docs/explore-sample.json"
    explored = json.loads((ROOT / sample).read_text(encoding="utf-8"))
    add("explore-sample.html", page_of(**explored), sample)
    return files


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """Replaces `{{ commands }}` by the help and the flags of all commands.

    Searches list the introduction first, and last the names that only contributors look for.
    """
    if "{{ commands }}" in markdown:
        sections = [_command(name, module) for name, module in COMMANDS.items()]
        return markdown.replace("{{ commands }}", "\n\n".join(sections))
    if re.match("reference/|architecture|results", page.file.src_uri):
        page.meta["search"] = {"boost": 0.05}
    if page.file.src_uri == "how_bert_works.md":
        page.meta["search"] = {"boost": 3}
    markdown = re.sub(r"\]\(\.\./colab/(\w+)\.ipynb\)", r"](notebooks/\1.md)", markdown)
    # The site alone has this page.
    sample = "explore-sample.html"
    markdown = markdown.replace(f"`{sample}`", f"[{sample}]({sample})")
    # A note for those who read the file itself.
    return re.sub("^> In the repository.*\n>.*\n\n", "", markdown, flags=re.M)


def on_page_content(html: str, **kwargs: Any) -> str:
    """Keeps flags in code on one line: browsers would break them after the hyphens."""
    # In notebooks, the hyphens of a command's flags are operators of Python.
    flag = r'<span class="o">--</span><span class="n">(\w+)</span>|--(\w+)'
    return re.sub(
        r"<code>.+?</code>",
        lambda code: re.sub(flag, r'<span class="flag">--\1\2</span>', code[0]),
        html,
        flags=re.S,
    )


def _notebook_page(path: pathlib.Path) -> dict[str, str | bytes]:
    """Returns the contents of the page with the stored outputs and of its pictures, by name."""
    text, resources = MarkdownExporter(raw_template=_NOTEBOOK).from_filename(
        str(path), resources={"unique_key": path.stem, "output_files_dir": path.stem}
    )
    return {f"{path.stem}.md": text} | resources["outputs"]


def _command(name: str, module: str) -> str:
    command = importlib.import_module(module)
    rows = map(_row, ordered_flags(command.Options))
    head = ["| flag | default | meaning |", "|---|---|---|"]
    return "\n".join([f"## {name}", "", _with_fences(command.__doc__), "", *head, *rows])


def _with_fences(text: str) -> str:
    """Puts the indented lines of a docstring into code blocks, and a blank line before lists."""
    text = re.sub(r"^(?!- )(.+)\n(?=- )", r"\1\n\n", text, flags=re.M)
    blocks = re.split(r"^((?:  .*\n)+)", text.strip() + "\n", flags=re.M)
    blocks[::2] = map(_prose, blocks[::2])
    blocks[1::2] = map(_fenced, blocks[1::2])
    return "\n\n".join(block.strip() for block in blocks)


def _fenced(block: str) -> str:
    language = "bash" if "python -m" in block else "text"
    return f"```{language}\n{textwrap.dedent(block)}```"


def _prose(text: str) -> str:
    """Puts flags into code, links pages, and escapes what Markdown would read as markup."""
    parts = re.split(r"(--\w+(?:=[\w/.]*\w)?)", text)
    parts[::2] = [re.sub(r"([|*_\[])", r"\\\1", escape(part)) for part in parts[::2]]
    parts[1::2] = [f"`{flag}`" for flag in parts[1::2]]
    return re.sub(r"docs/(\w+\.md)", r"[docs/\1](../\1)", "".join(parts))


def _row(flag: dataclasses.Field) -> str:
    default = "required" if is_required(flag) else _default(flag.default)
    meaning = _prose(flag.metadata["help"])
    if choices := flag.metadata["choices"]:
        meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return f"| `--{flag_name(flag)}` | {default} | {meaning} |"


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
