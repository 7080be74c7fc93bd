"""Executes the notebooks and stores their outputs.

  python colab/execute.py movie_reviews --work_dir=work --set MODEL='"my-bert"' TRAIN_REVIEWS=500

A notebook is a pair: NAME.py, which people edit and review, and NAME.ipynb, which Colab opens. This
script runs NAME.py in --work_dir and writes NAME.ipynb with the outputs. --set changes settings for
this run only; the output of the cell with the settings lists them. Without --work_dir, nothing runs:
NAME.ipynb keeps its outputs and gets the texts of NAME.py.
"""

import argparse
import configparser
import hashlib
import os
import pathlib
import sys

import jupytext
import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent
_SETUP = configparser.ConfigParser()
_SETUP.read(FOLDER.parent / "setup.cfg")
REPOSITORY = _SETUP["metadata"]["url"]
INSTALL = f'%pip install --quiet "bert-tf[huggingface] @ git+{REPOSITORY}"'
_COLAB = "https://colab.research.google.com"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="Notebook in colab/, without .py")
    parser.add_argument("--work_dir", help="Folder for the files that the notebook writes")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="Settings")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.set)
    path = FOLDER / f"{options.name}.ipynb"
    if options.work_dir:
        os.makedirs(options.work_dir, exist_ok=True)
        notebook = execute(options.name, settings, options.work_dir)
    else:
        notebook = with_outputs(read(options.name), nbformat.read(path, as_version=4))
    nbformat.write(notebook, path)


def read(name: str) -> nbformat.NotebookNode:
    """Returns the notebook of NAME.py, without outputs.

    Adds what depends on the address of the repository: Colab's badge below the title, the cell that
    installs bert_tf, and the addresses of links to docs/.
    """
    notebook = jupytext.read(FOLDER / f"{name}.py")
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "accelerator": "GPU",
        "source_sha256": _digest(notebook),
    }
    title, text = notebook.cells[0].source.split("\n", 1)
    page = (
        REPOSITORY.replace("https://github.com", f"{_COLAB}/github")
        + f"/blob/main/colab/{name}.ipynb"
    )
    badge = f"[![Open in Colab]({_COLAB}/assets/colab-badge.svg)]({page})"
    notebook.cells[0].source = f"{title}\n\n{badge}\n{text}"
    install = nbformat.v4.new_code_cell(INSTALL, metadata={"tags": ["install"]})
    notebook.cells.insert(1, install)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.source = cell.source.replace("](../docs/", f"]({REPOSITORY}/blob/main/docs/")
    return notebook


def with_outputs(new: nbformat.NotebookNode, old: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Returns the new notebook with the outputs of the old one.

    Raises:
        ValueError: they have different code.
    """
    if old.metadata.source_sha256 != new.metadata.source_sha256:
        raise ValueError("the code has changed since it ran: give --work_dir")
    code = ([c for c in notebook.cells if c.cell_type == "code"] for notebook in (new, old))
    for cell, stored in zip(*code, strict=True):
        cell.outputs, cell.execution_count = stored.outputs, stored.execution_count
    new.metadata = old.metadata
    return new


def execute(name: str, settings: dict[str, str], work_dir: str) -> nbformat.NotebookNode:
    """Returns the notebook with the outputs of a run.

    Args:
        settings: Python expressions that replace values of the cell tagged "parameters".
        work_dir: existing folder in which the notebook runs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = read(name)
    install, parameters = (tagged(notebook, tag) for tag in ("install", "parameters"))
    sources = install.source, parameters.source
    install.source = ""  # installed already
    parameters.source += "".join(
        f"\n{name} = {value}\nprint({name!r}, '=', repr({name}))"
        for name, value in settings.items()
    )
    # So that `!python` is the Python of this environment.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    client = nbclient.NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": work_dir}},
    )
    client.execute()
    install.source, parameters.source = sources
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if "outputs" in cell:
            # Standard error has progress bars and messages about the machine's hardware.
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    return notebook


def _digest(notebook: nbformat.NotebookNode) -> str:
    """Returns the SHA-256 of the code that determines the outputs."""
    code = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def tagged(notebook: nbformat.NotebookNode, tag: str) -> nbformat.NotebookNode:
    """Returns the first cell with a tag."""
    return next(cell for cell in notebook.cells if tag in cell.metadata.get("tags", []))


if __name__ == "__main__":
    main()
