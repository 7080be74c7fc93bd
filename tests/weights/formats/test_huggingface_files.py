"""Other forms of Hugging Face's folders, and damaged ones."""

import dataclasses
import fnmatch
import json
import pathlib
import re
from unittest import mock

import huggingface_hub.constants
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from checkpoints import assert_equal, assert_refused, of_arrays, values, written
from safetensors.numpy import load_file, save_file
from support import edit_json

from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.formats import huggingface
from bert_tf.weights.formats.huggingface_config import config_json, rows
from bert_tf.weights.names import HEAD_BIAS
from bert_tf.weights.opening import DOWNLOADS, local_path, open_checkpoint
from bert_tf.weights.resolving import EncoderFlags, read_vocab_file, resolve_model, resolve_vocab
from bert_tf.weights.translation import entries
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b", "C"))
CONFIG = BertConfig(len(VOCAB), 4, 2, 2, 6, max_position_embeddings=10)
FILE = "model.safetensors"
WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    """A classifier with a masked-LM head, so with every kind of name."""
    return made_up(tmp_path / "model", "classifier")


def made_up(path: pathlib.Path, kind: str | None, config=CONFIG) -> pathlib.Path:
    random = np.random.default_rng(0)
    parts = ["encoder", "projection", "pooler", "masked_lm", "next_sentence"]
    found = entries(rows(config, kind), config, parts + ["head"] * bool(kind), 3)
    arrays = {entry.ours: random.normal(size=entry.our_shape).astype("f") for entry in found}
    head = Head(kind) if kind else None
    written(huggingface, of_arrays(arrays, ModelSpec(config, VOCAB, False), head), path)
    return path


def rewrite(folder: pathlib.Path, change) -> None:
    save_file(change(load_file(folder / FILE)), folder / FILE)


def without(tensors: dict[str, np.ndarray], beginning: str) -> dict[str, np.ndarray]:
    return {name: array for name, array in tensors.items() if not name.startswith(beginning)}


def test_old_names_and_copies(folder):
    """Oracle: the tensors without them. Files of 2019 have gamma and beta, and repeat tied ones."""
    expected = values(folder)

    tensors = load_file(folder / FILE)
    old = {
        "bert.embeddings.position_ids": np.arange(10)[None],
        "bert.embeddings.token_type_ids": np.zeros([1, 10], int),
        "cls.predictions.decoder.weight": tensors[WORDS].copy(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].copy(),
    }
    copies = set(old)
    for name, array in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old[name.replace("LayerNorm.bias", "LayerNorm.beta")] = array
    save_file(old, folder / FILE)
    assert_equal(values(folder), expected)
    assert set(open_checkpoint(str(folder)).unused) == copies
    # Without the originals, and as torch.compile and DistributedDataParallel name tensors.
    for name in (WORDS, "cls.predictions.bias"):
        del old[name]
    for beginning in ("module._orig_mod.", "0.auto_model."):
        save_file({beginning + name: array for name, array in old.items()}, folder / FILE)
        assert_equal(values(folder), expected)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_half_precision_is_read_exactly(folder, dtype):
    """Oracle: NumPy's own conversion, back and forth."""
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    expected = {n: array.astype(kind).astype(np.float32) for n, array in values(folder).items()}
    rewrite(folder, lambda t: {n: array.astype(kind) for n, array in t.items()})
    assert_equal(values(folder), expected)
    half = f", {dtype}" if "16" in dtype else ""
    assert open_checkpoint(str(folder)).format == f"Hugging Face{half}"


FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


def shard(folder: pathlib.Path, **changes) -> None:
    """Divides the tensors of a folder into two files; writes a changed index."""
    tensors = load_file(folder / FILE)
    (folder / FILE).unlink()
    names, index = sorted(tensors), {}
    for file, part in ((FIRST, names[:20]), (SECOND, names[20:])):
        save_file({name: tensors[name] for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / f"{FILE}.index.json").write_text(json.dumps({"weight_map": index | changes}))


def test_shards(folder):
    """Oracle: the same tensors in one file."""
    expected = values(folder)
    shard(folder)
    assert_equal(values(folder), expected)
    assert_equal(values(folder / f"{FILE}.index.json"), expected)


@pytest.mark.parametrize(
    ("changes", "damage", "message"),
    [
        ({WORDS: "../secret.safetensors"}, None, "which is not a .safetensors file beside it"),
        ({}, lambda f: (f / SECOND).unlink(), f"{SECOND} is missing: download or copy it again"),
        ({}, lambda f: (f / f"{FILE}.index.json").write_text("{}"), "has no 'weight_map'"),
    ],
)
def test_bad_shards(folder, changes, damage, message):
    shard(folder, **changes)
    if damage:
        damage(folder)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    "content, message", [(b"", "header too small"), (b"\5" + bytes(7) + b"{nope", "invalid JSON")]
)
def test_damaged_safetensors(folder, content, message):
    """Oracle: one line that names the file and says what is wrong."""
    (folder / FILE).write_bytes(content)
    pattern = f"{FILE} is damaged or incomplete .*({message}).*: download or copy it again$"
    assert_refused(folder, pattern)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t | {"extra": t[WORDS]}, "it also holds: extra"),
        (lambda t: t | {WORDS: t[WORDS][1:]}, r"word_embeddings.weight \[7, 4\], expected \[8, 4"),
        (lambda t: without(t, "classifier.bias"), "it lacks: classifier.bias"),
        (lambda t: without(t, "bert.pooler.dense.bias"), "it lacks: bert.pooler.dense.bias"),
        (lambda t: t | {WORDS: t[WORDS].astype(np.int8)}, f"{WORDS} has type I8: .* was quantized"),
        (lambda t: t | {"cls.predictions.decoder.weight": t[WORDS] + 1}, "differs from bert.emb"),
    ],
)
def test_tensors_that_do_not_fit(folder, change, message):
    rewrite(folder, change)
    assert_refused(folder, message)
    if "extra" in message:
        assert open_checkpoint(str(folder), ignored=["ex*"]).unused == ("extra",)
    if "differs" in message:
        open_checkpoint(str(folder), ignored=["cls.predictions.decoder.*"])


@pytest.mark.parametrize(
    "name", ["cls.predictions.transform.dense.weight", "classifier.weight", "classifier.bias"]
)
def test_missing_weights_of_heads_start_anew(folder, tmp_path, capsys, name):
    """Oracle: the folder before, but for the weight that the report names."""
    expected = values(folder)
    rewrite(folder, lambda t: without(t, name))
    flags = dict(from_=str(folder), to="run", output_dir=str(tmp_path / "run"))
    convert(ConversionOptions(**flags, allow_missing=name))
    found, anew = values(tmp_path / "run"), capsys.readouterr().out.split("randomly: ")[1]
    anew = anew.splitlines()[0].rstrip(".")
    assert found.pop(anew).shape == expected.pop(anew).shape
    assert_equal(found, expected)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"model_type": "roberta"},
            "config.json: model_type is 'roberta', which has another tokenizer",
        ),
        ({"model_type": "albert", "inner_group_num": 2}, "config.json: inner_group_num 2 is not"),
        ({"hidden_act": "quick_gelu"}, "config.json: hidden_act 'quick_gelu' is not one of"),
        ({"position_embedding_type": "relative_key"}, "config.json: position_embedding_type"),
        ({"architectures": None}, r"architectures is \[\], which does not tell what the head"),
        ({"problem_type": "regression"}, "problem_type is regression with 3 outputs"),
        ({"id2label": {"0": "a"}}, "id2label has 1 labels, but classifier has 3 outputs"),
        ({"id2label": {"0": "a", "1": "b", "2": "b"}}, "config.json: id2label: a label is empty"),
        ({"id2label": {"1": "a", "2": "b"}}, "the keys of id2label are not 0, 1, 2"),
        ({"id2label": ["a"]}, r"config.json is .*.id2label is \['a'\], not an object"),
        ({"architectures": 5}, "architectures is 5, not a list"),
        ({"architectures": [{}]}, r"architectures\[0\] is {}, not a string"),
        ({"model_type": ["bert"]}, r"model_type is \['bert'\], not a string"),
        ({"num_hidden_layers": 999}, "the configuration has 999 layers"),
    ],
)
def test_configurations_that_do_not_fit(folder, changes, message):
    edit_json(folder / "config.json", **changes)
    assert_refused(folder, message)


def test_activations_and_the_dropout_of_a_head(folder):
    """Oracles: the formulas in transformers' activations.py, of which "gelu" is the default; its
    BertConfig, in which null stands for hidden_dropout_prob."""
    edit_json(folder / "config.json", classifier_dropout=None)
    assert open_checkpoint(str(folder)).spec.config == CONFIG
    changes = dict(classifier_dropout=0.4, layer_norm_eps=1e-5, unknown_key=[3])
    for ours, names in (
        ("gelu", ("gelu_python", None)),
        ("gelu_new", ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")),
        ("relu", ("relu",)),
    ):
        for theirs in names:
            edit_json(folder / "config.json", hidden_act=theirs, **changes)
            config = (checkpoint := open_checkpoint(str(folder))).spec.config
            found = config.hidden_act, config.layer_norm_eps, config.head_dropout_prob
            assert found == (ours, 1e-5, 0.4)
    assert config_json(checkpoint)["classifier_dropout"] == 0.4


def test_labels_are_in_the_order_of_their_ids(folder, capsys):
    edit_json(folder / "config.json", id2label={"2": "c", "0": "a", "1": "b"})
    assert open_checkpoint(str(folder)).head == Head("classifier", ("a", "b", "c"))
    edit_json(folder / "config.json", problem_type="multi_label_classification")
    assert open_checkpoint(str(folder)).head == Head("classifier", ("a", "b", "c"), True)
    assert not capsys.readouterr().out
    # A configuration from a flag is used only where the folder has none.
    (folder / "config.json").unlink()
    assert_refused(folder, "has no config.json: convert it .* --bert_config_file")
    rewrite(folder, lambda t: without(t, "classifier"))
    assert open_checkpoint(str(folder), CONFIG).spec.config == CONFIG


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("pytorch_model.bin", "transformers: {}{})"),
        ("pytorch_model-00001-of-00002.bin", "transformers: {}{})"),
        ("tf_model.h5", "transformers before version 5: {}{}, from_tf=True)"),
        ("flax_model.msgpack", "transformers before version 5: {}{}, from_flax=True)"),
        ("adapter_model.safetensors", "adapter of peft, not a model: merge it"),
    ],
)
def test_other_forms_of_weights_are_refused(folder, file, how):
    """Oracle: the message says how to get safetensors."""
    (folder / FILE).rename(folder / file)
    message = how.format("BertForSequenceClassification.from_pretrained(", repr(str(folder)))
    for path in (folder, folder / file):
        assert_refused(path, re.escape(message))


def test_pointers_and_files_without_permission_are_named(folder, monkeypatch):
    """Oracle: the file that `git lfs` leaves; the error of TensorFlow for such a file."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    for name in ("vocab.txt", FILE):
        (folder / name).write_bytes(pointer)
        assert_refused(folder, f"{name} is .*a Git LFS pointer.*: run git")

    def refuse(self, size):
        raise tf.errors.PermissionDeniedError(None, None, f"{self.name}; Permission denied")

    monkeypatch.setattr(tf.io.gfile.GFile, "read", refuse)
    (folder / "config.json").unlink()
    with pytest.raises(OSError, match=f"cannot read .*/{FILE}; Permission denied$"):
        open_checkpoint(str(folder), CONFIG)


def test_a_vocabulary_that_is_too_short(folder, capsys):
    """Oracle: the numbers of its lines and of the rows of the table."""
    open_checkpoint(str(folder))
    assert not capsys.readouterr().out
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "vocab.txt").write_text("\n".join(VOCAB.tokens[:-2]) + "\n")
    assert len(open_checkpoint(str(folder)).spec.vocab) == 6
    warning = f"WARNING: {folder}/vocab.txt has 6 tokens, fewer than the vocab_size 8 .*\n$"
    assert re.match(warning, capsys.readouterr().out)


def test_a_vocabulary_in_tokenizer_json(folder):
    """Oracle: vocab.txt. Newer versions of transformers write tokenizer.json only."""
    whole = {
        "normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": None},
        "model": {"type": "WordPiece", "vocab": VOCAB.ids},
    }
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(whole))
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    checkpoint = open_checkpoint(str(folder))
    assert (checkpoint.spec.vocab, checkpoint.spec.lower_case) == (VOCAB, False)
    assert checkpoint.vocab_file == str(file)
    # The flag takes the file, or the folder.
    for path in (file, folder):
        assert read_vocab_file(str(path), None) == (VOCAB, False)
    with pytest.raises(ValueError, match="neither vocab.txt, spiece.model nor token"):
        read_vocab_file(str(folder.parent), None)
    for change, message in (
        ({"model": {"type": "BPE"}}, "json holds no vocabulary .*: its model is BPE, but BERT's"),
        ({"model": {"vocab": {"a": 0}}}, "tokenizer.json: not a BERT vocab"),
        ({"model": {"vocab": {"x\ny": 0}}}, r"its token 'x\\ny' cannot be a line"),
        ({"model": {"vocab": {"x ": 0}}}, "its token 'x ' cannot be a line of voc"),
        ({"model": {"vocab": VOCAB.ids | {"x": 10**9}}}, "its largest id is 1000000000"),
        ({"added_tokens": [{"id": 7, "content": 5}]}, ".added_tokens.0..content is 5, not"),
        ({"normalizer": {"lowercase": "no"}}, ".normalizer.lowercase is 'no', not true"),
        ({"model": 7}, "tokenizer.json is .*.model is 7, not an object"),
        ({"model": {}}, "tokenizer.json holds no vocabulary"),
    ):
        file.write_text(json.dumps(whole | change))
        assert_refused(folder, message)
    file.unlink()
    assert open_checkpoint(str(folder)).spec == ModelSpec(CONFIG)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json", "generic"])
def test_special_tokens_are_known_by_their_parts(folder, file):
    """Oracle: transformers' ids of its `cls_token` etc. for the same files."""
    roles = {"cls_token": "<s>", "sep_token": {"content": "</s>"}, "pad_token": "<pad>"}
    roles |= {"unk_token": "<unk>", "mask_token": "<mask>"}
    lines = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "##b", "[CLS]"]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    (folder / "tokenizer_config.json").unlink()
    if file == "generic":
        (folder / "vocab.txt").unlink()
        model = {"vocab": {line: index for index, line in enumerate(lines)}, "unk_token": "<unk>"}
        whole = {"model": model, "added_tokens": [{"id": 0, "content": "<s>", "special": True}]}
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        file, roles["tokenizer_class"] = "tokenizer_config.json", "PreTrainedTokenizerFast"
    (folder / file).write_text(json.dumps(roles))
    vocab = open_checkpoint(str(folder)).spec.vocab
    assert (vocab.cls_id, vocab.pad_id, vocab.sep_id, vocab.unk_id, vocab.mask_id) == (*range(5),)
    assert not vocab.added and len(vocab) == 8


def test_two_files_with_different_tokens(folder):
    """Oracle: the ids of both files; spaces around a token in vocab.txt are not part of it."""
    file = folder / "tokenizer.json"
    tokens = list(VOCAB.tokens)
    whole = {"model": {"type": "WordPiece", "vocab": {f"{t} ": i for i, t in enumerate(tokens)}}}
    file.write_text(json.dumps(whole))
    assert open_checkpoint(str(folder)).spec.vocab == VOCAB
    tokens[-2:] = tokens[:-3:-1]
    file.write_text(json.dumps({"model": {"vocab": {t: i for i, t in enumerate(tokens)}}}))
    index = len(tokens) - 2
    match = f"token {index} is '{VOCAB.tokens[index]}' in .*vocab.txt, but '{tokens[index]}' in .*t"
    assert_refused(folder, match)


def test_tokenizers_that_split_in_another_way(folder, capsys):
    """Oracle: what the values mean to transformers' BertTokenizer, and to its general class."""
    split, template = {"type": "BertPreTokenizer"}, {"type": "TemplateProcessing"}
    whole = {"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": split}
    whole |= {"post_processor": template, "model": {"vocab": VOCAB.ids}}
    twice = {"type": "Sequence", "pretokenizers": [split, {"type": "Digits"}]}
    file = folder / "tokenizer_config.json"
    edit_json(file, strip_accents=True, tokenizer_class="BertTokenizerFast")
    assert open_checkpoint(str(folder)).spec.vocab.strip_accents is True
    edit_json(file, strip_accents=False)
    assert open_checkpoint(str(folder)).spec.vocab == VOCAB
    assert open_checkpoint(str(folder)).spec.lower_case is False
    assert not capsys.readouterr().out
    for changes, message in (
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars is False"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class is BertJapaneseTokenizer"),
        ({"truncation_side": "left"}, "truncation_side is left"),
        ({"normalizer": {"type": "NFKC"}}, "the normalizer of tokenizer.json is NFKC"),
        ({"pre_tokenizer": None}, "the pre_tokenizer of tokenizer.json is null"),
        ({"pre_tokenizer": twice}, "the pre_tokenizer of tokenizer.json is BertPreTokenizer, Digi"),
        ({"post_processor": None}, "the post_processor of tokenizer.json is null"),
        ({"post_processor": template | {"single": []}}, "the template of tokenizer.json is not"),
    ):
        before = file.read_text()
        if changes.keys() & whole.keys():
            (folder / "tokenizer.json").write_text(json.dumps(whole | changes))
            changes = {"tokenizer_class": "PreTrainedTokenizerFast"}
        edit_json(file, **changes)
        open_checkpoint(str(folder))
        warning = f"WARNING: .*tokenizer_config.json: {message}.*\n$"
        assert re.match(warning, capsys.readouterr().out)
        file.write_text(before)
    edit_json(file, do_lower_case=None, strip_accents=None)
    assert open_checkpoint(str(folder)).stated_casing is None
    # Then transformers reads tokenizer.json alone.
    whole["normalizer"] = {"type": "BertNormalizer", "lowercase": True, "strip_accents": False}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    edit_json(file, do_lower_case=False, tokenizer_class="PreTrainedTokenizerFast")
    spec = open_checkpoint(str(folder)).spec
    assert (spec.lower_case, spec.vocab.strip_accents) == (True, False)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"num_hidden_groups": 1}, "embeddings as wide as its layers"),
        ({"embedding_size": 2, "is_decoder": True}, "is_decoder"),
        ({"embedding_size": 2}, "a sentence-order head without a masked-LM head"),
    ],
)
def test_models_that_transformers_cannot_express(tmp_path, keys, what):
    """Oracle: transformers' modeling_albert.py, which always projects and has no such class."""
    spec = ModelSpec(BertConfig(8, 4, 2, 2, 6, **keys))
    checkpoint = of_arrays({"pretrainer/next_sentence/dense_bias": np.zeros(2)}, spec)
    message = f"made up has {what}, which transformers' AlbertModel lacks"
    with pytest.raises(ValueError, match=message):
        huggingface.write(checkpoint, str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_sentencepiece_vocabularies_that_are_not_read(tmp_path):
    """Oracle: transformers' T5Tokenizer, which does not split at white space, and the messages."""
    folder = made_up(tmp_path / "model", None, dataclasses.replace(CONFIG, embedding_size=2))
    (folder / "vocab.txt").unlink()
    (folder / "spiece.model").write_bytes(b"no")
    edit_json(folder / "tokenizer_config.json", tokenizer_class="T5Tokenizer")
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.spec == ModelSpec(checkpoint.spec.config)
    message = f"^{folder}/spiece.model is a SentencePiece .* only the weights of {folder}"
    with pytest.raises(ValueError, match=message):
        resolve_vocab(checkpoint)
    sources = dict(vocabs={"the records": VOCAB}, init=checkpoint)
    with pytest.raises(ValueError, match=message):
        resolve_model(None, EncoderFlags(), **sources)
    (tmp_path / "words.txt").write_text("\n".join(VOCAB.tokens))
    flags = EncoderFlags(vocab_file=str(tmp_path / "words.txt"), replace_vocab=True)
    assert resolve_model(None, flags, **sources).vocab == VOCAB
    edit_json(folder / "tokenizer_config.json", tokenizer_class="AlbertTokenizer")
    assert_refused(folder, f"^{folder}/spiece.model: not a SentencePiece model")
    (folder / "spiece.model").unlink()
    for pieces in ({}, {"unk_id": 0, "vocab": [1]}, {"unk_id": 0, "vocab": [["a", 0.0]]}):
        model = {"model": {"type": "Unigram"} | pieces}
        (folder / "tokenizer.json").write_text(json.dumps(model))
        assert_refused(folder, f"^{folder}/tokenizer.json: (not|.* kind)")


@pytest.mark.parametrize("type_", ["multi_label_classification", "single_label_classification"])
def test_one_output_that_classifies(folder, type_):
    """Oracle: NumPy's sigmoid of the logit, as in transformers' pipeline."""
    names = {"problem_type": type_, "id2label": {"0": "toxic"}}
    edit_json(folder / "config.json", **names, initializer_range=1.0)
    rewrite(folder, lambda t: {n: x[:1] if n.startswith("classifier") else x for n, x in t.items()})
    checkpoint, task, length = open_fine_tuned(str(folder), None, None, pairs=False)
    model, tokenizer = load_task_model(task, checkpoint), WordPieceTokenizer(VOCAB, False)
    found = task.serving(model, tokenizer, length).serving(tf.constant(["a", "C a"]))
    inputs = pack_segments([tokenizer.tokenize(["a", "C a"])], length, VOCAB)
    expected = 1 / (1 + np.exp(-model(inputs).numpy()))
    np.testing.assert_allclose(found["probabilities"][:, 0], expected, rtol=1e-5)
    assert found["labels"].numpy().tolist() == [b"toxic" if p >= 0.5 else b"" for p in expected]


def test_what_a_head_predicts_is_stated(folder, tmp_path):
    """Oracles: the values of transformers' problem_type, by which it chooses the loss; the lines
    about heads that are not described."""
    checkpoint = open_checkpoint(str(folder))
    for head, classes, expected in (
        (Head("classifier", multi_label=True), 3, "multi_label_classification"),
        (Head("classifier"), 1, "regression"),
        (Head("classifier"), 3, None),
        (Head("tagger"), 1, None),
    ):
        tensors = {**checkpoint.tensors, HEAD_BIAS: Tensor((classes,), None)}
        found = config_json(dataclasses.replace(checkpoint, head=head, tensors=tensors))
        assert found.get("problem_type") == expected
    for head, message in (
        (None, "has no head.json beside it, which tells what its head predicts: write one, such"),
        (Head("tagger", ("a", "b")), "has 3 outputs, but its head.json 2 labels"),
    ):
        with pytest.raises(ValueError, match=message):
            huggingface.write(dataclasses.replace(checkpoint, head=head), str(tmp_path))


def test_a_vocabulary_of_unknown_casing(folder, tmp_path, capsys):
    checkpoint = open_checkpoint(str(folder))
    unknown = dataclasses.replace(checkpoint, spec=ModelSpec(CONFIG, VOCAB))
    again = open_checkpoint(written(huggingface, unknown, tmp_path / "again"))
    assert "WARNING: the casing of the vocabulary is unknown" in capsys.readouterr().out
    assert (again.spec.vocab, again.stated_casing) == (VOCAB, None)


def test_remote_folders(folder):
    """Oracle: the local folder. TensorFlow's ram:// stands for gs://."""
    expected = open_checkpoint(str(folder))
    remote = f"ram:/{folder}"
    tf.io.gfile.makedirs(remote)
    for file in folder.iterdir():
        tf.io.gfile.copy(str(file), f"{remote}/{file.name}")
    found = open_checkpoint(remote)
    assert (found.spec, found.head) == (expected.spec, expected.head)
    assert_equal(values(remote), values(folder))
    tf.io.gfile.makedirs(f"{remote}/again")
    huggingface.write(found, f"{remote}/again")
    assert_equal(values(f"{remote}/again"), values(folder))


def cached(folder: pathlib.Path, cache: pathlib.Path) -> None:
    """Lays out a model in the cache of huggingface_hub: blobs, links to them, revisions."""
    model, commit = cache / "models--org--name", "0" * 40
    for part in (f"snapshots/{commit}", "blobs", "refs"):
        (model / part).mkdir(parents=True)
    for name in ("main", "v2"):
        (model / "refs" / name).write_text(commit)
    for file in folder.iterdir():
        (model / "blobs" / file.name).write_bytes(file.read_bytes())
        link = model / "snapshots" / commit / file.name
        link.symlink_to(f"../../blobs/{file.name}")


@pytest.mark.parametrize("prefix", ["hf", "keras", "tfhub"])
def test_a_folder_is_no_download(prefix, tmp_path, monkeypatch):
    """Oracle: the name itself."""
    monkeypatch.chdir(tmp_path)
    for name in (prefix, f"./{prefix}", f"{prefix}/part", rf"C:\{prefix}"):
        assert local_path(name) == name
    monkeypatch.setitem(DOWNLOADS, prefix, "downloaded {}".format)
    assert local_path(f"{prefix}:x") == "downloaded x"
    (tmp_path / f"{prefix}:x").mkdir()
    assert local_path(f"{prefix}:x") == f"{prefix}:x"


def test_a_model_of_the_hub(folder, tmp_path, monkeypatch):
    """Oracle: huggingface_hub itself, without a network, on a cache with links as it makes them."""
    cached(folder, tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name in ("hf:org/name", "hf:org/name@v2"):
        checkpoint = open_checkpoint(name)
        assert checkpoint.head == Head("classifier")
        assert_equal({n: t.read() for n, t in checkpoint.tensors.items()}, values(folder))
    for name in ("org/other", "a b/c"):
        assert_refused(f"hf:{name}", f"^cannot download hf:{name}: .+")


@pytest.mark.parametrize(
    "function, name",
    [
        ("huggingface_hub.snapshot_download", "hf:org/name"),
        ("kagglehub.model_download", "keras:bert_base_en"),
        ("tensorflow_hub.resolve", "tfhub:https://tfhub.dev/x/1"),
    ],
)
def test_any_error_of_a_download_is_one_line(monkeypatch, function, name):
    """Oracle: the line; the libraries pass on the errors of their HTTP clients."""

    def fail(*_, **__):
        raise RuntimeError("Server disconnected\nwithout a response.")

    monkeypatch.setattr(function, fail)
    assert_refused(name, f"^cannot download {name}: .* disconnected without a response.; check")


def test_only_what_is_read_is_downloaded(folder, monkeypatch):
    """Oracle: the arguments of huggingface_hub's function; never pickles."""
    download = mock.Mock(return_value=folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for name, revision in (("org/name", None), ("org/name@v2", "v2")):
        huggingface.download(name)
        assert download.call_args.args == ("org/name",)
        assert download.call_args.kwargs["revision"] == revision
    read = ["config.json", "model.safetensors", "model-00001-of-00002.safetensors", "vocab.txt"]
    read += ["model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"]
    read += ["2_Dense/model.safetensors", "0_BERT/vocab.txt"]
    others = ["pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "onnx/model.safetensors"]
    others += ["0_BERT/pytorch_model.bin"]
    patterns = download.call_args.kwargs["allow_patterns"]
    assert [x for x in read + others if any(fnmatch.fnmatch(x, y) for y in patterns)] == read
    (folder / FILE).unlink()
    with pytest.raises(ValueError, match="hf:org/name has no model.safetensors: name a revision"):
        huggingface.download("org/name")
