"""DistilBERT, ELECTRA and ERNIE in the folders of transformers."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import softmax
from support import assert_same_tensors

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from bert_tf.weights.checkpoint import OPTIONAL, load_weights
from bert_tf.weights.formats import huggingface
from bert_tf.weights.names import HEAD_BIAS
from bert_tf.weights.opening import open_checkpoint

FAMILY = pathlib.Path(__file__).parent / "family"
FOLDERS = sorted(path.name for path in FAMILY.iterdir() if path.is_dir())
IDS = np.array([[2, 5, 6, 7, 8, 3, 9, 10, 3], [2, 11, 12, 3, 0, 0, 0, 0, 0]])
MASK = (IDS > 0).astype(int)
INPUTS = {
    "input_word_ids": IDS,
    "input_mask": MASK,
    "input_type_ids": np.array([[0, 0, 0, 0, 0, 0, 1, 1, 1], [0] * 9]),
}


def outputs_of(folder: str) -> dict[str, np.ndarray]:
    """Returns what a model computes, by the names of transformers' outputs."""
    checkpoint = open_checkpoint(folder, any_encoder=True)
    config, tensors, head = checkpoint.spec.config, checkpoint.tensors, checkpoint.head
    if head:
        model = BertTaskModel(config, tensors[HEAD_BIAS].shape[0], head.kind)
        load_weights(folder, tensors, model.weights, optional_parts=OPTIONAL)
        if head.kind == "multiple_choice":
            return {"logits": model({name: x[None] for name, x in INPUTS.items()}).numpy()}
        logits = model(INPUTS).numpy()
        if head.kind == "span":
            return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        return {"logits": logits}
    model = BertPretrainer(config)
    load_weights(folder, tensors, model.weights, optional_parts=OPTIONAL)
    outputs = model(INPUTS | {"masked_lm_positions": np.tile(np.arange(9), (2, 1))})
    found = {"last_hidden_state": outputs["sequence_output"]}
    if "pooler" in checkpoint.parts:
        found["pooler_output"] = outputs["pooled_output"]
    if "masked_lm" in checkpoint.parts:
        found["logits"] = found["prediction_logits"] = outputs["mlm_logits"]
    if "next_sentence" in checkpoint.parts:
        found["seq_relationship_logits"] = outputs["next_sentence_logits"]
    return {name: x.numpy() for name, x in found.items()}


def assert_as_expected(folder: str, name: str) -> None:
    if name == "ElectraForPreTraining":  # it says which tokens were replaced
        return
    expected, found = np.load(FAMILY / name / "expected.npz"), outputs_of(folder)
    assert expected.keys() & found.keys()
    for key in expected.keys() & found.keys():
        each_token = expected[key].shape[:2] == MASK.shape
        here = MASK.astype(bool) if each_token else ...
        np.testing.assert_allclose(found[key][here], expected[key][here], atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", FOLDERS)
def test_outputs_are_those_of_transformers(name, tmp_path):
    """Oracle: transformers 5.24; also of what we write, with the same tensors under its names.

    An ERNIE is written as the BERT that computes the same. The head of ELECTRA's pre-training is
    left out.
    """
    assert_as_expected(str(FAMILY / name), name)
    checkpoint = open_checkpoint(str(FAMILY / name), any_encoder=True)
    huggingface.write(checkpoint, str(tmp_path))
    assert_as_expected(str(tmp_path), name)
    theirs, ours = (load_file(f"{path}/model.safetensors") for path in (FAMILY / name, tmp_path))
    if name.startswith("Ernie"):
        assert {x.removeprefix("bert.") for x in ours} == {
            x.removeprefix("ernie.") for x in theirs if "task_type" not in x
        }
        return
    if name == "ElectraForPreTraining":
        theirs = {x.removeprefix("electra."): theirs[x] for x in theirs if "discriminator" not in x}
    assert ours.keys() == theirs.keys()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key])
    before, after = (
        json.loads((path / "config.json").read_text()) for path in (FAMILY / name, tmp_path)
    )
    shared = before.keys() & after.keys() - {"architectures", "dtype"}
    assert {x: after[x] for x in shared} == {x: before[x] for x in shared}
    assert BertConfig.from_dict(checkpoint.spec.config.to_dict()) == checkpoint.spec.config


@pytest.mark.parametrize("name", ["DistilBert", "Electra", "Ernie"])
@pytest.mark.slow
def test_functions_take_the_family(name):
    """Oracle: the logits of the model, which are those of transformers."""
    folder = str(FAMILY / f"{name}ForSequenceClassification")
    texts, checkpoint = ["a good film", "the bad store"], open_checkpoint(folder)
    model = BertTaskModel(checkpoint.spec.config, 3)
    load_weights(folder, checkpoint.tensors, model.weights)
    tokenizer = bert_tf.load(folder).tokenizer
    inputs = bert_tf.pack_segments([tokenizer.tokenize(texts)], 9, tokenizer.vocab)
    expected = softmax(model(inputs).numpy(), axis=-1)
    answers = bert_tf.load_predictor(folder)(texts)
    np.testing.assert_allclose(
        [[answer["probabilities"][x] for x in "xyz"] for answer in answers], expected, atol=1e-6
    )


@pytest.mark.parametrize("name", ["DistilBert", "Electra"])
def test_a_masked_lm_becomes_a_run_with_a_new_pooler(name, tmp_path, capsys):
    """Oracle: the weights of transformers' class, which never has a pooler."""
    source, run = str(FAMILY / f"{name}ForMaskedLM"), str(tmp_path / "run")
    convert(ConversionOptions(from_=source, to="run", output_dir=run))
    random = "encoder/pooler/dense_kernel, encoder/pooler/dense_bias"
    assert f"Initialized randomly: {random}.\n" in capsys.readouterr().out
    tensors = dict(open_checkpoint(run).tensors)
    for path in random.split(", "):
        del tensors[path]
    assert_same_tensors(tensors, open_checkpoint(source).tensors)


def test_other_members_are_named(tmp_path):
    """Oracle: RoBERTa's type, which has another tokenizer."""
    shutil.copytree(FAMILY / "ErnieNoTaskModel", tmp_path / "roberta")
    path = tmp_path / "roberta" / "config.json"
    path.write_text(path.read_text().replace('"ernie"', '"roberta"'))
    with pytest.raises(ValueError, match="model_type is 'roberta', which has another tokenizer"):
        open_checkpoint(str(tmp_path / "roberta"))


def electra(folder: pathlib.Path, name: str, **values) -> str:
    """Copies a folder, with other values in config.json."""
    shutil.copytree(FAMILY / name, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return str(folder)


def test_the_masked_lm_head_of_electra_has_gelu(tmp_path):
    """Oracle: logits of transformers 5.24, whose head has GELU whatever `hidden_act` is."""
    folder = electra(tmp_path / "relu", "ElectraForMaskedLM", hidden_act="relu")
    expected = [0.49135100841522217, -0.5154491066932678, 0.5530204176902771, -0.3497876822948456]
    np.testing.assert_allclose(outputs_of(folder)["logits"][0, 1, :4], expected, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [("summary_type", "mean"), ("summary_use_proj", False), ("summary_activation", "tanh")],
)
def test_other_summaries_of_electra_are_errors(name, value, tmp_path):
    """Oracle: transformers' ElectraSequenceSummary computes something else for these values."""
    folder = electra(tmp_path / "other", "ElectraForMultipleChoice", **{name: value})
    with pytest.raises(ValueError, match=f"config.json: {name} is {value!r}: only .* supported"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["DistilBert", "Electra"])
def test_sentence_pair_heads_are_not_written(name, tmp_path):
    """Oracle: transformers has no DistilBertForPreTraining; ElectraForPreTraining is another head.

    Without the head, the rest is written.
    """
    checkpoint = open_checkpoint(str(FAMILY / f"{name}ForMaskedLM"))
    pair = open_checkpoint(str(FAMILY / "ErnieForPreTraining")).tensors
    head = {x: pair[x] for x in pair if x.startswith("pretrainer/next_sentence/")}
    both = dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **head})
    with pytest.raises(ValueError, match="sentence-pair head, .* --allow_extra='pretrainer/next_s"):
        huggingface.write(both, str(tmp_path))
    huggingface.write(checkpoint, str(tmp_path))
