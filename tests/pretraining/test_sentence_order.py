"""ALBERT, from text to a fine-tuned model: examples of swapped sentences, shared layers."""

import dataclasses
import types

import numpy as np
import pytest
from support import create_records, save_run

from bert_tf import compress, run_pretraining
from bert_tf.comparison.students import report
from bert_tf.config import BertConfig
from bert_tf.finetuning.registry import TASKS
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import Run
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import load_vocab

_SHARED = dict(embedding_size=16, num_hidden_groups=1)
_CONFIG = BertConfig(40, 32, 2, 2, 64, "gelu", 0.0, 0.0, 32, initializer_range=0.1, **_SHARED)


def _documents(count: int, seed: int) -> str:
    """Every document has eight sentences of its own words, always in the same order."""
    random = np.random.default_rng(seed)
    sentences = [[f"w{4 * index + k}" for k in range(4)] for index in range(8)]
    documents = [
        "\n".join(" ".join(random.choice(words, random.integers(2, 5))) for words in sentences)
        for _ in range(count)
    ]
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="module")
def pretrained(data, tmp_path_factory) -> types.SimpleNamespace:
    folder = tmp_path_factory.mktemp("albert")
    _CONFIG.to_json_file(str(folder / "albert.json"))
    vocab = (data / "vocab.txt").read_text() + "\n"
    (folder / "vocab.txt").write_text(vocab)
    for seed, name in enumerate(("train", "heldout")):
        (folder / "text.txt").write_text(_documents(100, seed))
        flags = dict(objective="sop", do_lower_case=False, dupe_factor=5)
        create_records(folder, name, 32, 4, **flags)
    files = dict(input_file="train.tfrecord", eval_input_file="heldout.tfrecord")
    files |= dict(bert_config_file="albert.json", output_dir="run")
    flags = {name: str(folder / file) for name, file in files.items()}
    flags |= dict(do_train=True, do_eval=True, num_train_steps=200, num_warmup_steps=20)
    flags |= dict(train_batch_size=32, learning_rate=3e-3)
    results = run_pretraining.run(run_pretraining.Options(**flags))
    return types.SimpleNamespace(folder=folder, results=results)


@pytest.mark.slow
def test_learns_the_order_of_sentences(pretrained):
    """Oracles: the order, which every document has; one set of weights for all layers."""
    assert pretrained.results["next_sentence_accuracy"] > 0.95
    checkpoint = open_checkpoint(str(pretrained.folder / "run"))
    assert checkpoint.spec.config == _CONFIG
    kernels = [name for name in checkpoint.tensors if name.endswith("/intermediate_kernel")]
    assert len(kernels) == 1


@pytest.mark.slow
def test_is_fine_tuned_beside_a_bert(pretrained, tmp_path):
    """Oracles: a word that gives the label away; the parameters of Keras models."""
    random, data = np.random.default_rng(0), tmp_path / "SST-2"
    data.mkdir()
    for split, count in (("train", 1280), ("dev", 64)):
        labels = random.integers(2, size=count)
        words = random.integers(2, 32, (count, 8))
        words[np.arange(count), random.integers(8, size=count)] = labels
        lines = [
            f"{' '.join(f'w{word}' for word in row)}\t{label}\n"
            for row, label in zip(words, labels, strict=True)
        ]
        (data / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    # The student does not learn from it.
    teacher = dataclasses.replace(_CONFIG, num_hidden_groups=None, embedding_size=None)
    vocab, head = load_vocab(str(pretrained.folder / "vocab.txt")), TASKS["sst2"].head
    bert = save_run(tmp_path / "bert", BertTaskModel(teacher, 2), vocab, False, head)
    results = compress.run(
        compress.Options(
            recipe="albert",
            teacher=bert,
            init_checkpoint=str(pretrained.folder / "run"),
            output_dir=str(tmp_path / "albert"),
            task="sst2",
            data_dir=str(data),
            max_seq_length=16,
            train_batch_size=16,
            num_train_epochs=2.0,
            learning_rate=3e-3,
        )
    )
    assert results["eval_accuracy"] > 0.95
    values = Run(str(tmp_path / "albert")).read_json("compression.json")
    counts = [BertTaskModel(config, 2).count_params() for config in (teacher, _CONFIG)]
    assert [values["teacher_parameters"], values["student_parameters"]] == counts
    report(compress.ReportOptions(report=str(tmp_path)))
    table = (tmp_path / "compression.md").read_text()
    assert "| ALBERT-base / ALBERT-xxlarge | 9 / 0.47 | 97% / 107% | 5.6 / 0.3 |" in table
