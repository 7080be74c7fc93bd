"""Folders of tokenizers against the ids that transformers gives; see make_tokenizer_golden.py."""

import json
import pathlib

import pytest

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.runs.run import Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.text.tokenizer_files import TokenizerFiles

GOLDEN = json.loads((pathlib.Path(__file__).parent / "tokenizer_golden.json").read_text("utf-8"))
TEXTS = GOLDEN.pop("texts")


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_equal_those_of_transformers(tmp_path, name):
    """The same ids from a run folder that the vocabulary was written to, too."""
    for file, content in GOLDEN[name]["files"].items():
        content = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / file).write_text(content, encoding="utf-8")
    files = TokenizerFiles(str(tmp_path))
    vocab, lower_case = files.vocab, files.lower_case is not False
    assert (
        WordPieceTokenizer(vocab, lower_case).tokenize_flat(TEXTS).to_list()
        == (GOLDEN[name]["ids"])
    )
    run = Run(str(tmp_path / "run"))
    run.write(ModelSpec(BertConfig(99, 4, 1, 1, 4), vocab, lower_case))
    assert (run.vocab, run.lower_case) == (vocab, lower_case)
