"""Oracles: a worked example of the merges, and what the tokenizer makes of the text learnt from."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from bert_tf.build_vocab import Options, learn_vocabulary, run
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.text.vocab import Vocabulary, load_vocab

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PROSE = "Der Käse, die Käserei: der Käse-Laden! Les élèves étudient l'été.\n我们 学习。\n"


def build(folder, text: bytes, **options) -> Vocabulary:
    (folder / "text.txt").write_bytes(text)
    output = str(folder / "vocab.txt")
    defaults = {"vocab_size": 200, "num_unused": 0}
    run(Options(str(folder / "text.txt"), output, **(defaults | options)))
    return load_vocab(output)


def test_merges_by_hand():
    """Pairs: ##u ##g 20, then ##u ##n 16, h ##ug 15, p ##un 12; next would be hug ##s 5."""
    words = Counter({"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5})
    alphabet = ["b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u"]
    expected = [*SPECIAL, *alphabet, "##ug", "##un", "hug", "pun"]
    assert learn_vocabulary(words, len(expected), num_unused=0) == expected
    # Without b (4) and s (5): p ##u 17, then pu ##n 12. The rest is rarer, so that room stays.
    expected = [*SPECIAL, "g", "h", "n", "p", "u", "##g", "##n", "##u", "pu", "pun"]
    assert learn_vocabulary(words, 100, min_frequency=12, num_unused=0) == expected


def test_published_order_of_the_special_tokens():
    tokens = learn_vocabulary(Counter({"ab": 3}), 200)
    unused = [f"[unused{slot}]" for slot in range(99)]
    assert tokens == ["[PAD]", *unused, *SPECIAL[1:], "a", "b", "##b", "ab"]


def test_ties_are_always_decided_alike():
    """Many pieces of equal count, room for half: left alone, the trainer numbers at random."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = Counter({first + second: 5 for first in letters for second in letters})
    vocabularies = {tuple(learn_vocabulary(words, 400, num_unused=0)) for _ in range(6)}
    assert len(vocabularies) == 1
    assert len(vocabularies.pop()) == 400


def test_the_command_in_a_process_of_its_own_writes_the_same_bytes(tmp_path):
    build(tmp_path, PROSE.encode() * 3)
    flags = [f"--input_file={tmp_path}/*xt.txt", f"--output_file={tmp_path}/again/vocab.txt"]
    command = [sys.executable, "-m", "bert_tf.build_vocab", *flags]
    command += ["--vocab_size=200", "--num_unused=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].startswith("Wrote ")
    written = (tmp_path / "again" / "vocab.txt").read_bytes()
    assert written == (tmp_path / "vocab.txt").read_bytes()


@pytest.mark.parametrize("lower_case", [True, False])
def test_the_tokenizer_finds_what_was_learnt(tmp_path, lower_case):
    """With room for all, each word of the text is one piece: training equals serving."""
    vocab = build(tmp_path, PROSE.encode() * 2, vocab_size=1000, do_lower_case=lower_case)
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    words = tokenizer.words([PROSE]).to_list()[0]
    pieces = tokenizer.tokenize([PROSE]).to_list()[0]
    assert [[vocab.tokens[piece] for piece in word] for word in pieces] == [
        [word.decode()] for word in words
    ]
    assert ("kase" in vocab.ids) == lower_case
    assert ("Käse" in vocab.ids) == (not lower_case)


def test_coverage_is_reported(tmp_path, capsys):
    # "ab" is a piece, "ac" a ##c two, "q" too rare a character: 5 words, 6 pieces, 1 [UNK].
    vocab = build(tmp_path, b"ab ab ab\r\nac q\n", min_frequency=1, vocab_size=11)
    assert vocab.tokens == (*SPECIAL, "a", "b", "c", "q", "##b", "##c")
    assert "5 words, 3 different: 1.800 pieces per word, 0.0000%" in capsys.readouterr().out
    build(tmp_path, b"ab ab ab\r\nab q\n", vocab_size=20)
    output = capsys.readouterr().out
    assert "5 words, 2 different: 1.000 pieces per word, 20.0000% of the words [UNK]" in output
    assert "only 9 of 20 tokens" in output
    assert output.splitlines()[-1].startswith(f"Wrote 9 tokens to {tmp_path}/vocab.txt. Next: ")


def test_rare_characters_take_no_room():
    words = Counter({"ab": 100_000, "cd": 3, "aé": 3})
    tokens = learn_vocabulary(words, 100, num_unused=0)
    assert "a" in tokens and "ab" in tokens
    assert not {"c", "##d", "é", "##é"} & set(tokens)


def test_bytes_that_are_not_utf8_are_counted(tmp_path, capsys):
    vocab = build(tmp_path, b"\xef\xbb\xbfab\xff ab\nab\n\xc3\n", vocab_size=20)
    assert capsys.readouterr().out.startswith("2 lines held bytes that are not UTF-8")
    assert vocab.tokens[5:] == ("a", "b", "##b", "ab")


@pytest.mark.parametrize(
    "text, options, message",
    [
        (b" \n\t\n\x00\n", {}, "text.txt: the text holds no words"),
        (b"", {}, "text.txt is empty"),
        (b"abc abc", {"vocab_size": 9}, "--vocab_size=9 is too small: .* are 10 already"),
        (b"abc abc", {"min_frequency": 0}, "--min_frequency is 0; it must be 1 or more"),
    ],
)
def test_bad_input_is_named_and_nothing_written(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path, text, **options)
    assert os.listdir(tmp_path) == ["text.txt"]


def test_missing_input_is_named(tmp_path):
    for name in ("no.txt", "*.txt"):
        with pytest.raises(ValueError, match="no file matches"):
            run(Options(str(tmp_path / name), str(tmp_path / "vocab.txt")))
