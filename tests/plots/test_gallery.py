"""docs/gallery.py, which draws the pictures of the documentation."""

import importlib.util
import json
import pathlib
import re
import struct
from xml.etree import ElementTree

import pytest
from support import save_fine_tuned, save_run

from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "docs/gallery.py"
HEADS = {
    "sst2": Head("classifier", ("negative", "positive")),
    "mrpc": Head("classifier", ("not_equivalent", "equivalent")),
    "squad": Head("span"),
    "ner": Head("tagger", ("O", "B-PER", "I-PER")),
}

if not SCRIPT.exists():
    pytest.skip("the tests run without the checkout", allow_module_level=True)


def gallery():
    spec = importlib.util.spec_from_file_location("gallery", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_for_slides_are_as_large_as_a_slide(tmp_path):
    """Oracle: the sizes in the headers of the files; a slide has 1920 by 1080 pixels."""
    gallery().main([f"--slides={tmp_path}"])
    headers = [path.read_bytes()[:24] for path in tmp_path.iterdir()]
    assert headers
    for header in headers:
        assert header.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", header[16:])
        assert width <= 1920 and height <= 1080
        assert width >= 1919 or height >= 1079


@pytest.mark.slow
# The fonts of the machine may lack Chinese.
@pytest.mark.filterwarnings("ignore:Glyph")
def test_the_gallery_draws_the_pictures_of_the_pages(tmp_path, eagerly):
    """Oracle: the pictures that README and the pages show. Each is an SVG with a dark form."""
    source = SCRIPT.read_text()
    words = re.findall(r"[^\W\d_]+|[^\w\s]", source.lower())
    vocab = Vocabulary((*SPECIAL_TOKENS, *dict.fromkeys([*words, *"".join(words)])))
    config = BertConfig(len(vocab), 16, 2, 2, 16, max_position_embeddings=40)
    paths = {"quickstart": tmp_path / "q", "encoder": tmp_path / "e"}
    paths["chinese"] = save_run(tmp_path / "q/pretraining", BertPretrainer(config), vocab)
    save_run(paths["encoder"], BertEncoder(config), vocab)
    for name in ("metrics", "eval_metrics"):
        (tmp_path / f"q/pretraining/{name}.jsonl").write_text(json.dumps({"step": 1, "loss": 2.0}))
    for task, head in HEADS.items():
        paths[task] = tmp_path / task
        save_fine_tuned(paths[task], task, head, ModelSpec(config, vocab, True), max_seq_length=32)
    paths |= {"reviews": paths["sst2"], "spam": paths["mrpc"]}
    (tmp_path / "mrpc/predictions_dev.tsv").write_text("id\tlabel\tprediction\n0\ta\tb\n1\tb\tb\n")

    paths["ablations"] = tmp_path / "ablation"
    paths["ablations"].mkdir()
    row = {"row": "a", "parameters": 1, "scores": {"f1": {"mean": 1, "deviation": None}}}
    row |= {"run": "a", "labels": 100, "published": {}}
    values = {"title": "rows", "columns": ["f1"], "rows": [row]}
    for grid, axis in (("labels", "labels"), ("layers", ""), ("rates", ""), ("sizes", "")):
        text = json.dumps(values | {"grid": grid, "axis": axis})
        (paths["ablations"] / f"{grid}.json").write_text(text)

    flags = [f"--{name}={path}" for name, path in paths.items()]
    gallery().main([*flags, f"--output_dir={tmp_path / 'drawn'}"])

    pages = [page.read_text() for page in (*ROOT.glob("docs/*.md"), ROOT / "README.md")]
    shown = {name for page in pages for name in re.findall(r"images/plots/(\w+\.svg)", page)}
    drawn = {path.name: path.read_text() for path in (tmp_path / "drawn").iterdir()}
    assert set(drawn) == shown
    for picture in drawn.values():
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in picture
