"""The stored notebooks. `make test-notebooks` executes them."""

import pathlib
import re
import sys

import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[1]
COLAB = ROOT / "colab"
sys.path.append(str(COLAB))

from execute import INSTALL, REPOSITORY, read, tagged, with_outputs  # noqa: E402

NAMES = sorted(path.stem for path in COLAB.glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_are_those_of_the_code(name):
    """Oracle: the checksum of the code that ran, and the cells of the .py file."""
    source, stored = read(name), nbformat.read(COLAB / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    assert stored.metadata.source_sha256 == source.metadata.source_sha256, (
        f"{name}.py has changed since it ran: python colab/execute.py {name} --help"
    )
    assert [cell.source for cell in stored.cells] == [cell.source for cell in source.cells]
    code = [cell for cell in stored.cells if cell.cell_type == "code" and cell.source != INSTALL]
    assert all(cell.execution_count for cell in code)
    assert sum(bool(cell.outputs) for cell in code) > len(code) / 2


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_have_one_form(name):
    """Oracle: a badge for Colab, a cell of form fields, no paths of ours."""
    notebook = read(name)
    assert f"/colab/{name}.ipynb)" in notebook.cells[0].source
    lines = tagged(notebook, "parameters").source.splitlines()
    assert lines and all(" = " in line and "  # @param " in line for line in lines)
    text = (COLAB / f"{name}.ipynb").read_text()
    assert not any(word in text for word in ("/tmp/", "/root/", "/home/", "/work/"))


@pytest.mark.parametrize("name", ["movie_reviews", "glue", "squad"])
def test_fine_tuning_begins_with_saved_models(name):
    """Oracle: the order of TensorFlow Hub's notebooks; `finetune`, if at all, is the short way."""
    code = "".join(cell.source for cell in read(name).cells if cell.cell_type == "code")
    steps = ["export.encoder", "export.preprocessor", "hub.KerasLayer", ".fit(", "saved_model.load"]
    places = [code.index(step) for step in steps]
    assert places == sorted(places)
    assert places[3] < code.find("bert_tf.finetune") or "bert_tf.finetune" not in code


def test_stored_outputs_show_what_works():
    """Oracle: what a reader may take away: no model that ignores its input, and equal outputs."""
    texts = {name: (COLAB / f"{name}.ipynb").read_text() for name in NAMES}
    assert [name for name, text in texts.items() if "ignores its input" in text] == []
    assert texts["kerashub"].count("ids equal: True") == 2
    differences = re.findall(r"largest difference of \w+: (.*?)\\n", texts["kerashub"])
    assert len(differences) == 4 and max(map(float, differences)) < 1e-4


def test_texts_change_without_a_run_and_code_does_not():
    """Oracle: the stored outputs, which belong to the code that ran."""
    stored = nbformat.read(COLAB / "squad.ipynb", as_version=4)
    assert with_outputs(read("squad"), stored) == stored
    with pytest.raises(ValueError, match="the code has changed since it ran"):
        with_outputs(read("ner"), stored)


def test_all_texts_name_one_address():
    """Oracle: setup.cfg, and the cell that installs."""
    owner = REPOSITORY.split("/")[-2]
    source = INSTALL.partition("]")[2].removesuffix('"')
    paths = [ROOT / "README.md", ROOT / "mkdocs.yml", *COLAB.glob("*.ipynb")]
    folders = ("docs", "bert_tf", "export", "tfrecords")
    paths += [path for folder in folders for path in (ROOT / folder).rglob("*.[pm][yd]")]
    for path in paths:
        text = path.read_text()
        assert set(re.findall(r"github(?:\.com)?/([\w-]+)/bert_tf", text)) <= {owner}, path
        assert set(re.findall(r"""install.*["']bert-tf\[\w+\]([^"'\\]*)""", text)) <= {source}, path
