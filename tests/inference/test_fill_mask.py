"""fill_mask, against the model itself."""

import io
import json
import pickle
import re
import sys

import numpy as np
import pandas
import pytest
import tensorflow as tf
from support import save_run

import bert_tf
from bert_tf.fill_mask import Options, run
from bert_tf.inference.masks import target_ids
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.text.tokenizer import WordPieceTokenizer


def probabilities(model, vocab, tokens: list[str], *positions: int) -> np.ndarray:
    """Returns the model's probabilities for masked tokens of a single, unpadded sequence.

    What follows a [SEP] is the second segment.
    """
    ids = tf.constant([[vocab.ids[token] for token in ("[CLS]", *tokens, "[SEP]")]])
    inputs = dict(input_word_ids=ids, input_mask=tf.ones_like(ids), input_type_ids=0 * ids)
    if "[SEP]" in tokens:
        inputs["input_type_ids"] = tf.cast(
            [np.arange(ids.shape[1]) > tokens.index("[SEP]") + 1], "int32"
        )
    inputs["masked_lm_positions"] = [[position + 1 for position in positions]]
    logits = model(inputs, training=False)["mlm_logits"][0, :, : len(vocab)]
    return np.squeeze(tf.nn.softmax(logits), axis=0 if len(positions) == 1 else ())


def answers(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


TEXTS = {
    "[MASK] cats[MASK] on": ["[MASK]", "cat", "##s", "[MASK]", "on"],
    "the [MASK]": ["the", "[MASK]"],
}


@pytest.mark.parametrize(
    ("targets", "top_k", "allowed"),
    [
        ((), 3, ()),
        (("cat, on",), None, ["cat", "on"]),
        (("cat", "##s", "[UNK]", "on"), None, ["cat", "##s", "[UNK]", "on"]),
        (("the,cat,cat", "on"), 2, ["the", "cat", "on"]),
    ],
)
def test_every_mask_gets_the_likeliest_tokens(pretrained, vocab, capsys, targets, top_k, allowed):
    """Oracle: the model on each text alone, without padding; probabilities among all tokens."""
    folder, model = pretrained
    run(Options(checkpoint=folder, texts=tuple(TEXTS), targets=targets, top_k=top_k, json=True))
    for answer, (text, tokens) in zip(answers(capsys), TEXTS.items(), strict=True):
        assert answer["text"] == text
        positions = [i for i, token in enumerate(tokens) if token == "[MASK]"]
        for guesses, position in zip(answer["masks"], positions, strict=True):
            values = probabilities(model, vocab, tokens, position)
            expected = {token: values[vocab.ids[token]] for token in allowed or vocab.tokens}
            best = sorted(expected, key=expected.get, reverse=True)[:top_k]
            assert [guess["token"] for guess in guesses] == best
            found = [guess["probability"] for guess in guesses]
            np.testing.assert_allclose(found, [expected[token] for token in best], rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the cat ||| [MASK] mat", ["the", "cat", "[SEP]", "[MASK]", "mat"]),
        (" [CLS] the cat [SEP] [MASK] mat [SEP]", ["the", "cat", "[SEP]", "[MASK]", "mat"]),
        ("[CLS] the [MASK] [SEP]", ["the", "[MASK]"]),
    ],
)
def test_pairs_and_pasted_inputs(pretrained, vocab, capsys, text, tokens):
    """Oracle: the model on these tokens, with a second segment."""
    folder, model = pretrained
    run(Options(checkpoint=folder, texts=(text,), targets=("on", "sat"), json=True))
    (answer,) = answers(capsys)
    values = probabilities(model, vocab, tokens, tokens.index("[MASK]"))
    found = {guess["token"]: guess["probability"] for guess in answer["masks"][0]}
    assert found == pytest.approx({x: values[vocab.ids[x]] for x in ("on", "sat")}, rel=1e-4)


@pytest.mark.parametrize(
    ("targets", "named"),
    [("cats", "'cats' (cat ##s) is"), ("on,,中", "'' (no token), '中' ([UNK]) are")],
)
def test_a_target_of_several_tokens_is_an_error(pretrained, vocab, targets, named):
    """Oracle: the tokens, which the line names. An uncased model lower-cases."""
    uncased = WordPieceTokenizer(vocab, lower_case=True)
    assert target_ids(uncased, ["CAT", "The"]) == [vocab.ids["cat"], vocab.ids["The"]]
    with pytest.raises(ValueError, match=re.escape(named)):
        run(Options(checkpoint=pretrained[0], texts=("[MASK]",), targets=(targets,)))


def test_in_a_long_text_the_tokens_around_each_mask_decide(pretrained, vocab, capsys):
    """Oracle: the model on the 22 tokens around the mask, of the 24 positions that it has."""
    folder, model = pretrained
    tokens = [*"abcdefgh" * 8]
    for position in (0, 30, 63):
        tokens[position] = "[MASK]"
    run(Options(checkpoint=folder, texts=(" ".join(tokens),), top_k=1, json=True))
    (answer,) = answers(capsys)
    for guesses, position, first in zip(answer["masks"], (0, 30, 63), (0, 19, 42), strict=True):
        window = tokens[first : first + 22]
        expected = probabilities(model, vocab, window, position - first)
        assert guesses[0]["token"] == vocab.tokens[expected.argmax()]
        assert guesses[0]["probability"] == pytest.approx(expected.max(), abs=1e-5)


def test_more_masks_than_one_pass_takes(pretrained, vocab, capsys):
    """Oracle: the model on all 20 masks at once."""
    folder, model = pretrained
    run(Options(checkpoint=folder, texts=("[MASK]" * 20,), top_k=1, json=True))
    (answer,) = answers(capsys)
    expected = probabilities(model, vocab, ["[MASK]"] * 20, *range(20)).max(axis=1)
    found = [guesses[0]["probability"] for guesses in answer["masks"]]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_lines_of_a_file_or_of_standard_input(pretrained, tmp_path, capsys, monkeypatch):
    """Oracle: the lines, all of which appear; those without [MASK] are counted."""
    folder, _ = pretrained
    (tmp_path / "texts.txt").write_bytes(b"\xef\xbb\xbfthe [MASK]\r\n\na [mask]\nb [MASK]")
    run(Options(checkpoint=folder, input_file=str(tmp_path / "texts.txt"), top_k=2))
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [lines[i] for i in (0, 2, 3, 4)] == ["the [MASK]", "", "a [mask]", "b [MASK]"]
    assert lines[1].count("%, ") == 1 and len(lines) == 6
    advice = "write it with brackets and in capital letters."
    warning = "WARNING: no [MASK] in 1 of {}, such as '{}': " + advice + "\n"
    assert shown.err.endswith(warning.format("4 texts", "a [mask]"))
    bert_tf.load_mask_filler(folder)("no mask")
    assert capsys.readouterr().out == warning.format("1 text", "no mask")
    data = io.TextIOWrapper(io.BytesIO("é [MASK] [MASK]\n".encode()))
    monkeypatch.setattr(sys, "stdin", data)
    run(Options(checkpoint=folder))
    first, one, two = capsys.readouterr().out.splitlines()
    assert (first, one[:12], two[:12]) == ("é [MASK] [MASK]", "  [MASK] 1: ", "  [MASK] 2: ")


def test_ids_of_a_table(pretrained, tmp_path, capsys):
    """Oracle: the rows."""
    (tmp_path / "a.csv").write_text("id,text\n7,the [MASK]\n,a\n")
    run(Options(checkpoint=pretrained[0], input_file=f"{tmp_path}/a.csv", json=True))
    first, second = answers(capsys)
    assert (first["id"], first["text"]) == ("7", "the [MASK]") and len(first["masks"][0]) == 5
    assert second == {"text": "a", "masks": []}


def test_in_python(pretrained, capsys):
    """Oracle: the command; the most likely token, which a notebook must name."""
    folder, _ = pretrained
    run(Options(checkpoint=folder, texts=tuple(TEXTS), top_k=2, json=True))
    fill = bert_tf.load_mask_filler(folder, top_k=2)
    found = fill([*TEXTS])
    assert found == answers(capsys) == pickle.loads(pickle.dumps(fill))([*TEXTS])
    first = fill([*TEXTS][0])
    for mask, expected in zip(first["masks"], found[0]["masks"], strict=True):
        assert mask[0]["token"] == expected[0]["token"]
        assert mask[0]["token"] in first._repr_html_()
    assert fill("no mask")._repr_html_().count("<tr>") == 0
    named = bert_tf.load_mask_filler(folder, targets=["cat", "on"])("the [MASK]")
    assert {x["token"] for x in named["masks"][0]} == {"cat", "on"}
    frame = pandas.DataFrame({"id": [7], "text": ["the [MASK]"]})
    assert fill(frame) == fill([{"id": 7, "text": "the [MASK]"}])
    assert fill(frame)[0]["masks"] == fill("the [MASK]")["masks"]
    for wrong, message in ((None, "the input is None: give a"), (["a", None], "row 2 is missing")):
        with pytest.raises(ValueError, match=message):
            fill(wrong)
    with pytest.raises(ValueError, match="^topk is not an argument of load_mask_filler: .* top_k"):
        bert_tf.load_mask_filler(folder, topk=2)


def test_a_checkpoint_without_masked_lm_head_is_an_error(pretrained, vocab, tmp_path):
    """Oracle: the line."""
    save_run(tmp_path, BertEncoder(pretrained[1].config), vocab, lower_case=False)
    with pytest.raises(ValueError, match=f"{tmp_path} has no masked-LM head, which predicts the"):
        run(Options(checkpoint=str(tmp_path), texts=("[MASK]",)))
    with pytest.raises(ValueError, match="--input_file and --texts exclude each other: omit one"):
        Options(checkpoint=str(tmp_path), texts=("[MASK]",), input_file="texts.txt")
