"""Checks with transformers that it loads what bert_tf wrote; test_huggingface.py runs this.

  python tests/weights/formats/check_huggingface_folders.py FOLDER

FOLDER holds a folder per model of huggingface_golden.npz, and tokens.json: a text -> its tokens.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from make_huggingface_golden import run

GOLDEN = np.load(pathlib.Path(__file__).parent / "huggingface_golden.npz")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def check_model(folder: pathlib.Path) -> None:
    """Raises an AssertionError unless all weights are loaded and all outputs are as expected."""
    name = folder.name
    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[problem], f"{name}: {problem}: {report[problem]}"
    inputs = {key: torch.tensor(GOLDEN[f"{name}/{key}"]) for key in INPUTS}
    if name.endswith("ForMultipleChoice"):
        inputs = {key: x[None] for key, x in inputs.items()}
    for key, array in run(model.eval(), inputs).items():
        np.testing.assert_allclose(array, GOLDEN[f"{name}/{key}"], atol=1e-5, err_msg=name)
    transformers.AutoModel.from_pretrained(folder)
    expected = transformers.AutoConfig.from_pretrained(folder).id2label
    if name.endswith("ForSequenceClassification"):
        assert expected == {0: "bad", 1: "good", 2: "neither"}, expected


def check_tokens(folder: pathlib.Path, expected: dict[str, list[str]]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, tokens in expected.items():
        found = tokenizer.tokenize(text)
        assert found == tokens, f"{text!r}: {found} instead of {tokens}"


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    models = sorted(
        path for path in root.iterdir() if path.name.startswith(("Bert", "Albert", "Mobile"))
    )
    for path in models:
        check_model(path)
    for path in (path for path in root.iterdir() if (path / "tokens.json").exists()):
        check_tokens(path, json.loads((path / "tokens.json").read_text(encoding="utf-8")))
    print(f"{len(models)} models are as expected.")
