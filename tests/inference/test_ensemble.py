"""Several models at once: predict and run_finetuning, against the means of their own outputs."""

import csv
import json
import pathlib
import shutil

import numpy as np
import pytest
from scipy.special import expit, softmax

from bert_tf import run_finetuning
from bert_tf.config import Head
from bert_tf.finetuning.fine_tuned import load_task_model, open_members
from bert_tf.finetuning.tasks.multiple_choice import ENDINGS
from bert_tf.predict import Options, run
from bert_tf.training.checkpoints import BEST
from bert_tf.weights.checkpoint import fingerprint

CLASSES = Head("classifier", ("entailment", "not_entailment"))


def softmax_of_tokens(logits):
    """Probabilities of starts and ends among the tokens of each window, without its padding."""
    logits[1, 9:] = -np.inf
    return softmax(logits, axis=1)


KINDS = {
    "rte": ([CLASSES] * 2, {}, softmax),
    "csv": ([Head("classifier", ("a", "b"), True)] * 2, {"label_type": "classes"}, expit),
    "stsb": ([Head("classifier", mean=x, deviation=x) for x in (1.0, 3.0)], {}, np.asarray),
    "ner": ([Head("tagger", ("O", "B-X", "I-X"))] * 2, {}, softmax),
    "squad": ([Head("span")] * 2, {}, softmax_of_tokens),
    "swag": ([Head("multiple_choice", ENDINGS)] * 2, {}, softmax),
}


@pytest.mark.parametrize("task", KINDS)
def test_probabilities_are_the_means_of_the_members(fine_tuned, task):
    """Oracle: NumPy, on the outputs of each member alone."""
    heads, flags, activate = KINDS[task]
    axis = {} if activate is not softmax else {"axis": -1}
    folders = [fine_tuned(task, head, **flags)[0] for head in heads]
    shape = (2, 4, 12) if task == "swag" else (2, 12)
    ids = np.random.default_rng(0).integers(0, 20, shape)
    mask = np.ones_like(ids)
    mask[1, ..., 9:] = 0
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": 0 * ids}

    def outputs(path):
        checkpoint, found, _ = open_members(path)
        return load_task_model(found, checkpoint)(inputs).numpy()

    members = [outputs(folder) for folder in folders]
    assert np.abs(members[0] - members[1]).max() > 0.1
    mean = np.mean([activate(x.copy(), **axis) for x in members], axis=0)
    together = outputs(",".join(folders))
    assert together.shape == members[0].shape
    np.testing.assert_allclose(activate(together.copy(), **axis), mean, atol=1e-6)
    if task == "squad":  # whose windows compete by the size of their logits
        twice = outputs(",".join([folders[0]] * 2))
        np.testing.assert_allclose(twice[0], members[0][0], atol=1e-5)
        sums = [np.log(np.exp(x[0]).sum(axis=0)) for x in (*members, together)]
        np.testing.assert_allclose(sums[2], (sums[0] + sums[1]) / 2, atol=1e-5)


@pytest.mark.slow
def test_an_evaluation_and_files_of_predictions(fine_tuned, tmp_path):
    """Oracle: the mean of what each member writes about the same file; by hand for the accuracy."""
    file, labels = f"{tmp_path}/dev.csv", ("no", "yes")
    lines = [f"{text},{labels[i % 3 > 0]}" for i, text in enumerate("abcdefgh" * 2)]
    pathlib.Path(file).write_text("\n".join(["text,label", *lines]))
    flags = dict(label_type="class", text_column="text", label_column="label", finished=True)
    folders = [fine_tuned("csv", Head("classifier", labels), **flags)[0] for _ in range(2)]
    together, found = ",".join(folders), []
    for path in (*folders, together):
        output = f"{tmp_path}/{len(found)}"
        flags = dict(dev_file=file, test_file=file, do_eval=True, do_predict=True)
        flags |= dict(task="csv", init_checkpoint=path, output_dir=output)
        run_finetuning.run(run_finetuning.Options(**flags))
        with open(f"{output}/predictions_test.tsv") as predictions:
            rows = [*csv.DictReader(predictions, delimiter="\t")]
        found.append([[float(row[f"p({label})"]) for label in labels] for row in rows])
    np.testing.assert_allclose(found[2], np.mean(found[:2], axis=0), atol=2e-6)
    right = np.mean([row["prediction"] == row["label"] for row in rows])
    results = json.loads(pathlib.Path(output, "eval_results.json").read_text())
    assert results["eval_accuracy"] == pytest.approx(right)
    run(Options(checkpoint=together, input_file=file, output_file=f"{tmp_path}/out.jsonl"))
    written = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    shares = [[*row["probabilities"].values()] for row in written]
    np.testing.assert_allclose(shares, found[2], atol=2e-6)
    before = fingerprint(open_members(together)[0])
    for path in pathlib.Path(folders[0], BEST).glob("ckpt-*"):
        shutil.copy(path, pathlib.Path(folders[1], BEST))
    assert fingerprint(open_members(together)[0]) != before


def test_members_that_do_not_fit_are_refused(fine_tuned, tmp_path):
    """Oracle: by hand; an error names both members and what differs."""
    first = fine_tuned("rte", CLASSES)[0]
    longer = fine_tuned("rte", CLASSES, random_seed=1)[0]
    flags = pathlib.Path(longer, "flags.json")
    flags.write_text(flags.read_text().replace('"max_seq_length": 16', '"max_seq_length": 20'))
    other = fine_tuned("mrpc", Head("classifier", ("different", "equivalent")))[0]
    for path, message in (
        (longer, f"{first}/best/ckpt-1 and {longer}/best/ckpt-1 .* max_seq_length is 16 and 20"),
        (other, "their task is rte and mrpc"),
        (f"{tmp_path}/model.onnx", "model.onnx cannot be averaged"),
    ):
        with pytest.raises(ValueError, match=message):
            run(Options(checkpoint=f"{first},{path}", texts=("a ||| b",)))
    training = dict(task="rte", do_train=True, init_checkpoint=f"{first},{other}")
    with pytest.raises(ValueError, match="can only be evaluated"):
        run_finetuning.run(run_finetuning.Options(**training, output_dir=f"{tmp_path}/run"))
