"""Oracle: the bytes of the local run."""

import sys

import pytest

from bert_tf.create_pretraining_data import Options, run

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghij"


@pytest.fixture
def options(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *LETTERS]))
    for file in range(3):
        documents = [
            "\n".join(" ".join(LETTERS[: 1 + (d * s + file) % 9]) for s in range(6))
            for d in range(1, 9)
        ]
        (tmp_path / f"text-{file}.txt").write_text("\n\n".join(documents))

    def make(name: str, **changes) -> Options:
        return Options(
            **dict(
                input_file=f"{tmp_path}/text-*.txt",
                output_file=f"{tmp_path}/{name}/data.tfrecord",
                num_shards=3,
                vocab_file=f"{tmp_path}/vocab.txt",
                max_seq_length=16,
                max_predictions_per_seq=3,
                dupe_factor=2,
                num_workers=1,
            )
            | changes
        )

    return make


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_beam_makes_the_same_bytes(options, tmp_path, monkeypatch):
    pytest.importorskip("apache_beam")
    run(options("local"))
    run(options("beam", runner="DirectRunner"))
    files = sorted(path.name for path in (tmp_path / "local").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "beam").iterdir())
    assert len(files) == 4
    for name in files:
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "beam" / name).read_bytes()
    (tmp_path / "text-1.txt").write_text("{not JSON\n")
    (tmp_path / "text-1.txt").rename(tmp_path / "bad.jsonl")
    with pytest.raises(ValueError, match="bad.jsonl") as error:
        run(options("bad", input_file=f"{tmp_path}/bad.jsonl", runner="DirectRunner"))
    assert "Traceback" not in str(error.value)


def test_without_beam_an_error_says_what_to_install(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "bert_tf.pretraining.beam", raising=False)
    with pytest.raises(ValueError, match=r"pip install 'bert-tf\[beam\]'"):
        run(options("out", runner="DirectRunner"))
