"""The runs of an ablation and their table."""

import dataclasses
import json
import pathlib
from pkgutil import resolve_name
from unittest import mock

import pytest
from support import save_run

from bert_tf.ablations import running
from bert_tf.ablations.plan import make_plan
from bert_tf.ablations.running import read_scores, run_ablation
from bert_tf.base.finite import NonFinite
from bert_tf.config import BertConfig
from bert_tf.models.lstms import BiLSTMEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.training.reports import write_results
from bert_tf.weights.resolving import resolve_model
from tfrecords.vocabulary import load_vocab


@pytest.fixture
def started(monkeypatch) -> list[str]:
    """The folders of the runs that an ablation starts, whose results depend on their flags."""
    folders: list[str] = []

    def pretrain(name, run) -> None:
        folders.append(run.output_dir)
        if isinstance(run, PretrainingOptions):
            layers = BertConfig.from_json_file(run.bert_config_file).num_hidden_layers
            perplexity = 10.0 / layers
            results = {"global_step": run.num_train_steps, "masked_lm_perplexity": perplexity}
            results["masked_lm_accuracy"] = layers / 20
            write_results(f"{run.output_dir}/eval_results.txt", results)
        else:
            text = '{"entity_accuracy": 0.25, "token_accuracy": 0.5, "entities": 8}'
            pathlib.Path(run.output_dir, "entities.json").write_text(text)

    def fine_tune(run) -> None:
        folders.append(run.output_dir)
        seeds = range(run.num_seeds)
        summary = {"eval_accuracy": {"mean": 0.75}, "eval_f1": {"mean": 0.5}}
        if run.num_seeds > 1:
            summary["eval_accuracy"]["deviation"] = 0.0125
        setting = {"runs": {f"seed-{n}": {} for n in seeds}, "summary": summary}
        values = {"metric": "eval_f1", "settings": [setting]}
        folder = pathlib.Path(run.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(values))

    monkeypatch.setattr(running, "run_apart", pretrain)
    monkeypatch.setattr(running, "sweep", fine_tune)
    return folders


def test_the_table_holds_the_results_of_the_runs(make_options, started, capsys):
    """Oracles: the files of the runs, and the paper's row, by hand."""
    options = make_options("sizes", rows="L-1_H-16_A-2,L-2_H-128_A-1", num_seeds=2)
    values = run_ablation(options)
    folder = pathlib.Path(options.output_dir)
    runs = [
        f"{folder}/sizes/{row}/{run}"
        for row in ("L-1_H-16_A-2", "L-2_H-128_A-1")
        for run in ("pretraining", "sst2")
    ]
    assert started == runs
    one, two = values["rows"]
    assert one["scores"]["LM perplexity"] == {"mean": 10.0, "deviation": None}
    assert two["scores"]["SST-2"] == {"mean": 75.0, "deviation": 1.25}
    assert (one["published"], two["paper_row"]) == ({}, "L-6_H-768_A-3")
    table = (folder / "sizes.txt").read_text()
    assert [line.split("  ") for line in table.splitlines() if line][-1][0] == "L-2_H-128_A-1"
    assert table in capsys.readouterr().out + "\n"
    words = table.splitlines()[-1].split()
    assert words[2:] == "5.00 5.24 10.0 75.0 ± 1.2 90.7 L-6_H-768_A-3".split()
    assert json.loads((folder / "sizes.json").read_text())["rows"] == values["rows"]
    # What is not finished is left out.
    plans = make_plan(dataclasses.replace(options, num_seeds=3))
    results = {"global_step": 9}
    write_results(f"{plans[0].pretraining.output_dir}/eval_results.txt", results)
    assert [list(read_scores(plan)) for plan in plans] == [[], ["LM perplexity", "LM accuracy"]]


def test_a_killed_ablation_yields_the_same_table(make_options, started, monkeypatch):
    """Oracle: the table of an ablation that was not killed; each run is made once."""
    options = make_options("masking", rows="80-10-10,0-0-100")
    fine_tune = running.sweep

    def killed_in_the_second_row(run):
        if "0-0-100" in run.output_dir:
            raise KeyboardInterrupt
        fine_tune(run)

    with monkeypatch.context() as patch:
        patch.setattr(running, "sweep", killed_in_the_second_row)
        with pytest.raises(KeyboardInterrupt):
            run_ablation(options)
    partly = json.loads(pathlib.Path(options.output_dir, "masking.json").read_text())
    assert [row["scores"] == {} for row in partly["rows"]] == [False, True]
    resumed = run_ablation(options)
    trained = [path for path in started if path.endswith("pretraining")]
    assert len(trained) == len(set(trained)) == 2
    other = make_options("masking", rows="80-10-10,0-0-100", output_dir=f"{options.output_dir}-2")
    assert run_ablation(other)["text"] == resumed["text"]
    # The runs of fine-tuning check their flags themselves.
    again = make_options("masking", rows="0-0-100", finetuning_learning_rate=1e-4)
    assert len(run_ablation(again)["rows"]) == 1
    changed = make_options("masking", num_train_steps=20)
    with pytest.raises(ValueError, match="num_train_steps=10, not 20"):
        run_ablation(changed)


def test_rows_may_be_trained_before_there_are_tasks(make_options, started, capsys):
    """Oracles: the runs that are started; files of a table without scores."""
    rows = dict(rows="80-10-10,0-0-100")
    values = run_ablation(make_options("masking", tasks="none", **rows))
    assert values["columns"] == []
    assert [path.split("/")[-2] for path in started] == ["80-10-10", "0-0-100"]
    folder = pathlib.Path(started[0]).parents[1]
    assert f"Wrote {folder}.txt and .json." in capsys.readouterr().out
    assert not folder.with_suffix(".png").exists()
    assert run_ablation(make_options("masking", **rows))["columns"] == ["SST-2"]
    assert f"Wrote {folder}.txt, .json and .png." in capsys.readouterr().out
    assert len(started) == 4


def test_a_row_that_diverges_is_left_empty(make_options, started, monkeypatch, capsys):
    """Oracle: the other row, and a warning."""
    fine = running.run_apart

    def diverge(name, run):
        if "/bert/" in run.output_dir:
            raise NonFinite("the loss of step 3 is not finite")
        fine(name, run)

    monkeypatch.setattr(running, "run_apart", diverge)
    values = run_ablation(make_options("tasks", rows="bert,no-nsp"))
    assert [list(row["scores"]) for row in values["rows"]] == [[], ["SST-2"]]
    assert "WARNING: bert diverged: the loss of step 3" in capsys.readouterr().out


def test_a_run_that_diverges_leaves_the_others(make_options, data, started, monkeypatch, tmp_path):
    """Oracle: the table has results of the other task, but not after one of its seeds diverges."""
    fine = running.sweep

    def diverge(run):
        if run.task == "sst2":
            raise NonFinite("all runs diverged")
        fine(run)

    monkeypatch.setattr(running, "sweep", diverge)
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("a\t0\t*\tw1 w2\nb\t1\t\tw3 w4\n")
    tasks = f"sst2={data},cola={tmp_path}"
    options = make_options("tasks", rows="bert", tasks=tasks, data_dir=None, num_seeds=2)
    (row,) = run_ablation(options)["rows"]
    assert list(row["scores"]) == ["cola"]
    results = pathlib.Path(options.output_dir, "tasks/bert/cola/results.json")
    values = json.loads(results.read_text())
    values["settings"][0]["runs"]["seed-0"] = None
    results.write_text(json.dumps(values))
    (plan,) = make_plan(options)
    assert list(read_scores(plan)) == ["LM perplexity", "LM accuracy"]


def test_steps_share_a_run(make_options, started):
    """Oracle: the checkpoints by hand."""
    options = make_options("steps", rows="mlm-20,ltr-40,ltr-100")
    plans = make_plan(options)
    assert [plan.step for plan in plans] == [2, 4, 10]
    (run,) = {plan.pretraining for plan in plans[1:]}
    assert (run.masking, run.objective, run.save_checkpoints_steps) == ("left_to_right", "mlm", 2)
    assert run.keep_checkpoints >= 5
    assert BertConfig.from_json_file(run.bert_config_file).is_decoder
    (fine_tuning,) = plans[1].finetuning.values()
    assert fine_tuning.init_checkpoint == f"{options.output_dir}/steps/ltr/pretraining/ckpt-4"
    rows = run_ablation(options)["rows"]
    found = [(row["run"], row["step"], row["scores"]["SST-2"]["mean"]) for row in rows]
    assert found == [("mlm", 2, 75.0), ("ltr", 4, 75.0), ("ltr", 10, 75.0)]
    assert len([path for path in started if path.endswith("pretraining")]) == 2


def test_layers_are_those_of_a_given_encoder(make_options, data, started, monkeypatch, tmp_path):
    """Oracles: the flags of the runs, and the table and the picture, by hand."""
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("w1 X X B-PER\nw2 X X O\n\n")
    model = BertPretrainer(BertConfig.from_json_file(str(data / "config.json")))
    encoder = str(save_run(tmp_path / "encoder", model, load_vocab(str(data / "vocab.txt"))))
    flags = dict(input_file=None, init_checkpoint=encoder, tasks="ner", data_dir=str(tmp_path))
    options = make_options("layers", rows="last,fine-tuned", **flags)
    drawn = mock.Mock(wraps=running.draw_scores)
    monkeypatch.setattr(running, "draw_scores", drawn)
    runs = [run for plan in make_plan(options) for run in plan.finetuning.values()]
    flags = [(run.init_checkpoint, run.feature_based, run.learning_rate) for run in runs]
    assert flags == [(encoder, "last", 1e-3), (encoder, None, 5e-5)]
    text = run_ablation(options)["text"]
    folder = f"{options.output_dir}/layers"
    assert started == [f"{folder}/last/ner", f"{folder}/fine-tuned/ner"]
    scores = [line.split()[-2:] for line in text.splitlines()[2:]]
    assert scores == [["50.0", "94.9"], ["50.0", "96.4"]]
    _, groups, _, by_size = drawn.call_args.args
    assert [model.scores["NER F1"] for model in groups["paper"]] == [(94.9, None), (96.4, None)]
    assert not by_size
    with pytest.raises(ValueError, match="--feature_based has no effect without --task=ner"):
        make_plan(dataclasses.replace(options, tasks=f"sst2={data}"))
    pathlib.Path(encoder, "vocab.txt").unlink()
    with pytest.raises(ValueError, match=f"{encoder} has no vocabulary: put its vocab.txt"):
        make_plan(options)


def test_labels_are_the_same_for_all_encoders(make_options, data, started, monkeypatch, tmp_path):
    """Oracles: the flags of the runs, the table and the picture's lines, by hand."""
    for split, count in (("train", 1000), ("dev", 4)):
        lines = [f"w{n % 9} w2\t{n % 2}\n" for n in range(count)]
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    config = BertConfig.from_json_file(str(data / "config.json"))
    vocab = load_vocab(str(data / "vocab.txt"))
    encoder = str(save_run(tmp_path / "encoder", BertPretrainer(config), vocab, lower_case=False))
    runs, counts = ("bilstm", "scratch", "pre-trained"), (100, 1000)
    rows = ",".join(f"{run}-{count}" for run in runs for count in counts)
    flags = dict(input_file=None, init_checkpoint=encoder, tasks=f"sst2={tmp_path}", num_seeds=2)
    options = make_options("labels", rows=rows, **flags)
    drawn = mock.Mock(wraps=running.draw_lines)
    monkeypatch.setattr(running, "draw_lines", drawn)
    plans = {plan.row.name: plan for plan in make_plan(options)}
    tuned = {name: [*plan.finetuning.values()][0] for name, plan in plans.items()}
    shared = ("num_train_examples", "num_train_epochs", "random_seed", "num_seeds", "data_dir")
    for count in counts:
        found = {tuple(getattr(tuned[f"{x}-{count}"], y) for y in shared) for x in runs}
        assert found == {(count, 2000 / count if count == 100 else 3, 12345, 2, str(tmp_path))}
    lstm, scratch, trained = (tuned[f"{run}-100"] for run in runs)
    rates = [run.learning_rate for run in (lstm, scratch, trained)]
    assert rates == [1e-3, options.finetuning_learning_rate, options.finetuning_learning_rate]
    starts = [run.init_checkpoint for run in (lstm, scratch, trained)]
    assert starts == [None, None, encoder]
    spec = resolve_model(None, scratch)
    assert (spec.config, spec.vocab, spec.lower_case) == (config, vocab, False)
    spec = resolve_model(None, lstm)
    assert (spec.config, spec.vocab) == (plans["bilstm-100"].config, vocab)
    text = run_ablation(options)["text"]
    assert [path.split("/")[-2] for path in started] == rows.split(",")
    parameters = BiLSTMEncoder(spec.config).count_params()
    assert text.splitlines()[2].split() == f"bilstm-100 {parameters:,} 100 75.0 ± 1.2".split()
    names, lines, _, axis = drawn.call_args.args
    assert (names, [*lines], axis) == (["SST-2"], [*runs], "labels")
    expected = [(count, {"SST-2": (75.0, 1.25)}) for count in counts]
    assert all([model[1:] for model in line] == expected for line in lines.values())
    few = "1,000 training examples, fewer than 10,000: draw fewer"
    with pytest.raises(ValueError, match=f"--tasks=sst2={tmp_path}: there are {few}"):
        make_plan(dataclasses.replace(options, rows=None))


def test_what_does_not_suit_is_refused_before_anything_starts(
    make_options, data, started, monkeypatch
):
    """Oracle: the message names flag or file; no run is started."""
    masked = dict.fromkeys(("input_file", "eval_input_file"), str(data / "wordpiece.tfrecord"))
    other = data / "other.txt"
    other.write_text("w1 w9\n")
    (data / "no-train").mkdir()
    (data / "no-train/dev.tsv").write_text((data / "dev.tsv").read_text())
    for options, message in (
        (make_options("sizes", tasks=f"sst2={data}/no-train"), "contains neither train.tsv nor"),
        (make_options("tasks", **masked), "those of .*wordpiece.manifest.json are masked"),
        (make_options("sizes", tasks="sst3"), "no task 'sst3'"),
        (make_options("sizes", rows="L-2_H-10_A-3"), "hidden_size 10 is not a multiple of"),
        (make_options("sizes", tasks="mrpc=absent"), "--tasks=mrpc=absent: "),
        (make_options("entities", lexicon_file=str(other)), "created without --lexicon_file="),
    ):
        with pytest.raises(ValueError, match=message):
            run_ablation(options)
    monkeypatch.setattr("bert_tf.ablations.plan.machine_memory", lambda: 4_000_000_000)
    with pytest.raises(ValueError, match=r"L-24_H-1024_A-16 .* needs about \d+\.\d GB .* has 4.0"):
        run_ablation(make_options("sizes", rows="L-1_H-16_A-2,L-24_H-1024_A-16"))
    with pytest.raises(ValueError, match=r"L-12_H-512_A-8 .* to fine-tune on sst2 with 512 tokens"):
        run_ablation(make_options("sizes", rows="L-12_H-512_A-8", finetuning_max_seq_length=512))
    for end in (".json", ".txt", "/L-8_H-192_A-3/bert_config.json"):
        options = make_options("sizes", output_dir=str(data / f"of-{end[-9:]}"))
        mine = pathlib.Path(options.output_dir, f"sizes{end}")
        mine.parent.mkdir(parents=True)
        mine.write_text('"mine"' if "config" not in end else '{"mine": 1}')
        with pytest.raises(FileExistsError, match=f"sizes{end} exists: move it away, or choose"):
            run_ablation(options)
        assert "mine" in mine.read_text()
    assert started == []


def test_entities_are_evaluated(make_options, data, monkeypatch):
    """Oracle: the row's file of results; the pre-training run is finished and not repeated."""
    options = make_options("entities", rows="entity", tasks="none")
    row = pathlib.Path(options.output_dir, "entities", "entity")
    config = BertConfig.from_json_file(options.bert_config_file)
    vocab = load_vocab(str(data / "vocab.txt"))
    path = save_run(row / "pretraining", BertPretrainer(config), vocab, step=10)
    results = {"global_step": 10, "masked_lm_perplexity": 3.0, "masked_lm_accuracy": 0.5}
    write_results(f"{path}/eval_results.txt", results)
    monkeypatch.setattr(running, "run_apart", lambda name, *rest: resolve_name(name)(*rest))
    (values,) = run_ablation(options)["rows"]
    found = json.loads((row / "entities.json").read_text())
    assert found["entities"] > 0
    assert values["scores"] == {
        name: {"mean": 100 * found[name], "deviation": None}
        for name in ("entity_accuracy", "token_accuracy")
    }
