"""The model card, against what the run folder holds."""

import json

import pytest

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.runs.run import Run
from bert_tf.training.reports import write_results
from bert_tf.weights.checkpoint import Checkpoint
from export.export_options import UNKNOWN_LICENSE
from export.saved_models import license_of, model_card
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a"))
CONFIG = BertConfig(6, 16, 1, 2, 32)


def test_the_card_says_what_the_run_knows(tmp_path):
    """Oracle: the values in the files of the run; quotes in the YAML are those of JSON."""
    run = Run(str(tmp_path))
    run.write(ModelSpec(CONFIG, VOCAB, True), {"input_file": "x*", "learning_rate": 0.25})
    write_results(run.file("eval_results.txt"), {"global_step": 7, "loss": 1.0 / 3})
    records = {"x*": {"x1": {"bytes": 600}, "x2": {"bytes": 700}}}
    (tmp_path / "records.json").write_text(json.dumps(records))
    facts = dict(license='other: "mine"', config=CONFIG, run=Run(run.path))
    folder, code = "/some/where/my encoder/", 'load("FOLDER")'
    card = model_card(folder, "kind", "About.", code, VOCAB, True, **facts)
    _, front, body = card.split("---\n", 2)
    assert json.loads(front.splitlines()[0].removeprefix("license: ")) == 'other: "mine"'
    for line in (
        "# my encoder: kind",
        'load("my encoder")',
        "| hidden_size | 16 |",
        "| tokens | 6 |",
        f"| SHA-256 of the tokens | {VOCAB.sha256} |",
        "| input_file | x* |",
        "| records in x* | 2 files, 1,300 bytes |",
        "| learning_rate | 0.25 |",
        "| loss | 0.333333 |",
    ):
        assert line in body.splitlines()


@pytest.mark.parametrize(
    ("card", "given", "expected"),
    [
        ('---\ntags:\n- bert\nlicense: "mit"\n---\nlicense: x', UNKNOWN_LICENSE, "mit"),
        ("---\nlicense: mit \n---\n", "apache-2.0", "apache-2.0"),
        ("---\nlicense:\n- mit\n---\n", UNKNOWN_LICENSE, UNKNOWN_LICENSE),
        ("license: mit", UNKNOWN_LICENSE, UNKNOWN_LICENSE),
    ],
)
def test_the_license_is_that_of_the_source(card, given, expected, tmp_path):
    """Oracle: the YAML of the card beside the checkpoint."""
    spec = ModelSpec(CONFIG, VOCAB, True)
    source = Checkpoint("", "", spec, {}, config_file=f"{tmp_path}/config.json")
    assert license_of(given, source) == given == license_of(given, None)
    (tmp_path / "README.md").write_text(card)
    assert license_of(given, source) == expected


def test_a_card_without_a_run_has_no_empty_section():
    """Oracles: the headings; the name that the user gave."""
    for source, more in ((None, []), ("hf:org/name (Hugging Face)", ["## Weights"])):
        card = model_card("x", "kind", "", "", VOCAB, False, converted_from=source)
        headings = [line for line in card.splitlines() if line.startswith("## ")]
        assert headings == ["## How to load it", "## Vocabulary", *more, "## License"]
        table = f"\n## Weights\n\n| | |\n|---|---|\n| converted from | {source} |"
        assert (table in card) == bool(source)
