"""Dynamic records with phrases of a lexicon, a task, and the flags of the command."""

import pathlib

import pytest
from support import create_records, quick_runs  # noqa: F401

from bert_tf.ablation import Options
from bert_tf.config import BertConfig

WORDS = [f"w{n}" for n in range(20)]
PHRASES = ["w1 w2", "w3 w4 w5", "w6"]


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("ablation")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join(special + WORDS) + "\n")
    (folder / "phrases.txt").write_text("\n".join(PHRASES) + "\n")
    (folder / "text.txt").write_text("w0 w1 w2 w7\nw3 w4 w5\n\nw6 w1 w2\nw8 w9\n\n" * 12)
    for masking, lexicon in (("dynamic", str(folder / "phrases.txt")), ("wordpiece", None)):
        flags = dict(dupe_factor=1, masked_lm_prob=0.4, lexicon_file=lexicon, masking=masking)
        create_records(folder, masking, 16, 6, **flags)
    config = BertConfig(25, 16, 2, 2, 32, max_position_embeddings=16)
    config.to_json_file(str(folder / "config.json"))
    for split, count in (("train", 8), ("dev", 4)):
        lines = [f"{WORDS[n]} {WORDS[n + 1]}\t{n % 2}\n" for n in range(count)]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    return folder


@pytest.fixture
def make_options(data, tmp_path):
    def make(grid: str, **changes) -> Options:
        flags = dict(
            grid=grid,
            input_file=str(data / "dynamic.tfrecord"),
            eval_input_file=str(data / "dynamic.tfrecord"),
            output_dir=str(tmp_path / "ablation"),
            tasks="sst2",
            data_dir=str(data),
            train_batch_size=4,
            num_train_steps=10,
            num_warmup_steps=1,
            finetuning_max_seq_length=12,
        )
        if grid not in ("sizes", "layers", "labels"):
            flags["bert_config_file"] = str(data / "config.json")
        if grid == "entities":
            flags["lexicon_file"] = str(data / "phrases.txt")
        return Options(**flags | changes)

    return make
