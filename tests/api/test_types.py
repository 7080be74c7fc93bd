"""The types of the Python interface, for type checkers and editors."""

import ast
import importlib.util
import inspect
import pathlib

import pytest

import bert_tf

ROOT = pathlib.Path(__file__).parents[2]


def test_the_stub_says_what_the_code_does():
    """Oracles: the signatures and names of the code; `python docs/types.py` writes the file."""
    spec = importlib.util.spec_from_file_location("write_types", ROOT / "docs" / "types.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stored = ast.parse(module.PATH.read_text())
    assert ast.dump(stored) == ast.dump(ast.parse(module.stub()))
    names = {name.asname for node in stored.body for name in getattr(node, "names", ())}
    names |= {getattr(node, "name", None) for node in stored.body}
    names |= {node.target.id for node in stored.body if isinstance(node, ast.AnnAssign)}
    assert {*bert_tf.__all__} <= names
    assert (module.PATH.parent / "py.typed").exists()


def test_settings_are_in_the_signatures():
    """Oracle: the flags of the commands, and a few of their values."""
    predictor, filler = map(inspect.signature, (bert_tf.load_predictor, bert_tf.load_mask_filler))
    assert predictor.parameters["batch_size"].default == 32
    assert [*filler.parameters][:1] == ["checkpoint"] and "top_k" in filler.parameters
    objective = inspect.signature(bert_tf.pretrain).parameters["objective"].annotation
    assert "'sop'" in str(objective) and type(None) in objective.__args__


def test_common_arguments_come_first():
    """Oracle: what most calls give: a model, the data, the task, the place."""
    names = [*inspect.signature(bert_tf.finetune).parameters]
    assert names[:6] == ["init_checkpoint", "train", "dev", "test", "task", "output_dir"]
    assert names.index("learning_rate") < names.index("lora_rank") < names.index("tpu_zone")
    doc = bert_tf.finetune.__doc__
    assert doc.index("Example:") < doc.index("Args:")


def test_what_objects_say_of_themselves():
    """Oracles: the published sizes; 4 million parameters of the smallest, as in its paper."""
    encoder = bert_tf.BertEncoder("tiny")
    assert encoder.config == bert_tf.preset_config("tiny")
    assert repr(encoder) == "BertEncoder(encoder: 2 layers of 128, 4,385,920 parameters)"
    with pytest.raises(ValueError, match="tinny"):
        bert_tf.BertPretrainer("tinny")
    lines = repr(bert_tf.PRESETS).splitlines()
    assert lines[0].split() == ["name", "layers", "hidden_size", "heads", "parameters"]
    assert lines[1].split() == ["tiny", "2", "128", "2", "4,385,920"]
    run = bert_tf.TrainedRun("reviews", {"eval_accuracy": 0.8500000238418579, "global_step": 6})
    assert repr(run.metrics) == "{'eval_accuracy': 0.85, 'global_step': 6}"
    assert run.metrics["eval_accuracy"] == 0.8500000238418579


def test_names_of_other_libraries_are_answered():
    """Oracle: the arguments of this one."""
    for name, advice in {
        "lr": "learning_rate",
        "model": "init_checkpoint",
        "data": "train",
    }.items():
        message = f"{name} is not an argument of finetune: use {advice}$"
        with pytest.raises(ValueError, match=message):
            bert_tf.finetune("model", output_dir="unused", **{name: 1})
