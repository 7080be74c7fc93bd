"""IMDB reviews, on which one process fine-tunes, and two processes on this machine as one."""

import contextlib
import dataclasses
import io
import json
import types

import numpy as np
import pytest
from support import start_workers, tuning_options

from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import Options, run
from bert_tf.training.reports import read_results


@pytest.fixture(scope="module")
def alone(files, config, tmp_path_factory) -> types.SimpleNamespace:
    """A run in this process, without dropout, whose masks differ between replicas."""
    folder = tmp_path_factory.mktemp("alone")
    values = config.to_dict() | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "no-dropout.json").write_text(json.dumps(values))
    flags = dict(task="imdb", eval_batch_size=6, num_train_epochs=1.0)
    flags |= {"bert_config_file": str(folder / "no-dropout.json")}
    options = tuning_options(files, folder / "run", **flags)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        results = run(options)
    return types.SimpleNamespace(options=options, results=results, printed=printed.getvalue())


def test_the_best_epoch_is_chosen_on_held_out_reviews_and_tested_once(
    alone, sentences, config, pack, load_best
):
    """Oracle: the best weights in a Keras model, on the test set."""
    options, results, printed = alone.options, alone.results, alone.printed
    assert results == read_results(f"{options.output_dir}/eval_results.txt")
    texts, labels = zip(*sentences(160, seed=len("test")), strict=True)
    model = load_best(BertTaskModel(config, 2), options.output_dir)
    correct = np.argmax(model(pack(texts)), axis=-1) == labels
    assert results["test_accuracy"] == pytest.approx(correct.mean())
    assert "train: 144 examples" in printed and "dev: 16 examples" in printed
    lengths = [len(text.split()) for text in texts]
    assert f"test: 160 examples, {sum(n > 22 for n in lengths)} (" in printed
    assert "on the held-out examples" in printed
    assert f"\n  python -m export.classifier --checkpoint={options.output_dir}" in printed


@pytest.mark.slow
def test_two_workers_fine_tune_as_one(alone, tmp_path):
    """Oracle: one process with the same global batch; dropout is 0."""
    flags = dataclasses.replace(alone.options, output_dir=f"{tmp_path}/two")
    values = dataclasses.asdict(flags).items()
    given = {name: value for name, value in values if value != getattr(Options, name, None)}
    workers = start_workers("run_finetuning", given)
    chief_says, other_says = (worker.communicate(timeout=600)[0] for worker in workers)
    assert [worker.returncode for worker in workers] == [0, 0], chief_says + other_says
    found = read_results(f"{tmp_path}/two/eval_results.txt")
    assert found == pytest.approx(alone.results, abs=1e-5)
    assert "on the test set" in chief_says
    assert "test set" not in other_says
