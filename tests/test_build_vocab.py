"""Tests the command. Oracles: coverage counted by hand, and the tokenizer on the same text."""

import gzip
import os
import re
import subprocess
import sys

import pytest
from support import edit_json

from bert_tf.base.process import embedded
from bert_tf.build_vocab import Options, run
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.job import make_job
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.vocabulary import building, learning
from bert_tf.weights.checkpoint import load_mapping
from bert_tf.weights.resolving import read_vocab_file
from tfrecords.vocabulary import Vocabulary, load_vocab

UNUSED = [f"[unused{slot}]" for slot in range(99)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PROSE = (
    "Der Käse, die Käserei: der Käse-Laden! Les élèves étudient l'été.\n我们今天学习。\n"
    "ภาษาไทยไม่มีช่องว่าง สวัสดีครับ\nاللُّغَةُ العَرَبِيَّةُ جميلة، أليس كذلك؟\n👍🏽 👩\u200d👧 ok😀\n"
)


def build(folder, text: bytes, **options) -> Vocabulary:
    (folder / "text.txt").write_bytes(text)
    output = str(folder / "vocab.txt")
    defaults = {"output_file": output}
    if not options.get("extend_vocab") and not options.get("report_vocab"):
        defaults |= {"vocab_size": 299}
    run(Options(input_file=str(folder / "text.txt"), **(defaults | options)))
    return load_vocab(options.get("output_file", output))


@pytest.mark.slow
def test_the_command_in_a_process_of_its_own_writes_the_same_bytes(tmp_path):
    """Oracle: the vocabulary of this process, which hashes strings with another seed."""
    build(tmp_path, PROSE.encode() * 3)
    flags = [f"--input_file={tmp_path}/*xt.txt", f"--output_file={tmp_path}/again/vocab.txt"]
    command = [sys.executable, "-m", "bert_tf.build_vocab", *flags]
    command += ["--vocab_size=299", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"Wrote \d+ tokens to .*\n", done.stdout) and done.stderr == ""
    written = (tmp_path / "again" / "vocab.txt").read_bytes()
    assert written == (tmp_path / "vocab.txt").read_bytes()


@pytest.mark.parametrize("lower_case", [True, False])
def test_the_tokenizer_finds_what_was_learned(tmp_path, lower_case):
    """With room for all, each word of the text is one token."""
    vocab = build(tmp_path, PROSE.encode() * 2, vocab_size=1000, do_lower_case=lower_case)
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    words = tokenizer.words([PROSE]).to_list()[0]
    token_ids = tokenizer.tokenize([PROSE]).to_list()[0]
    assert [[vocab.tokens[index] for index in word] for word in token_ids] == [
        [word.decode()] for word in words
    ]
    assert ("kase" in vocab.ids) == lower_case
    assert ("Käse" in vocab.ids) == (not lower_case)


def rows_of_table(output: str) -> dict[str, list[str]]:
    lines = (line.split() for line in output.splitlines())
    return {line[0]: line[1:] for line in lines if line and line[-1].endswith("%")}


def test_coverage_is_reported(tmp_path, capsys, monkeypatch):
    # "ab" and "ac" are two tokens each, "q" is one: 5 words and 9 tokens.
    with monkeypatch.context() as patch:
        patch.setattr(learning, "MIN_FREQUENCY", 1)
        vocab = build(tmp_path, b"ab ab ab\r\nac q\n", vocab_size=110)
    assert vocab.tokens == ("[PAD]", *UNUSED, *SPECIAL[1:], "a", "b", "c", "q", "##b", "##c")
    row = list(rows_of_table(capsys.readouterr().out).values())[0]
    assert row == ["5", "3", "1.800", "1.00", "0.0000%"]
    build(tmp_path, b"ab ab ab\r\nab q\n", vocab_size=119, overwrite=True)
    output = capsys.readouterr().out
    row = list(rows_of_table(output).values())[0]
    assert row == ["5", "2", "1.000", "1.80", "20.0000%"]
    assert "only 108 of 119 tokens" in output
    config = f"{tmp_path}/tokenizer_config.json"
    wrote = f"Wrote 108 tokens to {tmp_path}/vocab.txt and their casing to {config}.\n"
    assert f"{wrote}Next, create examples:\n" in output


def test_coverage_of_a_given_vocabulary_by_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.txt").write_text("\n".join([*SPECIAL, "a", "ab", "##b", "c"]))
    for name, text in {"x.txt": "ab abb", "y.txt": "cc c c c", "z.txt": "abb"}.items():
        (tmp_path / name).write_text(text)
    run(Options(input_file="x.txt,[yz].txt", report_vocab="v.txt"))
    rows = rows_of_table(capsys.readouterr().out)
    assert rows == {
        "x.txt": ["2", "2", "1.500", "1.67", "0.0000%"],
        "./y.txt": ["4", "2", "1.000", "1.25", "25.0000%"],
        "./z.txt": ["1", "1", "2.000", "1.50", "0.0000%"],
        "all": ["7", "4", "1.286", "1.44", "14.2857%"],
    }
    monkeypatch.setattr(building, "_MAX_REPORTED_FILES", 2)
    run(Options(input_file="x.txt,[yz].txt", report_vocab="v.txt"))
    rows = rows_of_table(capsys.readouterr().out)
    assert list(rows) == ["x.txt", "[yz].txt", "all"]
    assert rows["[yz].txt"] == ["5", "3", "1.200", "1.33", "20.0000%"]
    assert sorted(os.listdir()) == ["v.txt", "x.txt", "y.txt", "z.txt"]


@pytest.mark.parametrize(("times", "warns"), [(1, True), (20, False)])
def test_a_language_without_spaces_is_noticed(tmp_path, capsys, times, warns):
    """Oracle: the share of letters in words of more than 200, by hand: of 401 or 4,201."""
    build(tmp_path, f"{'ก' * 201} {'ab ' * 100 * times}".encode())
    message = "WARNING: 50% of the text is in words of more than 200 characters, each of which"
    assert (message in capsys.readouterr().out) == warns


@pytest.mark.parametrize("placement", ["append", "unused"])
def test_extending(tmp_path, capsys, placement):
    """Oracle: how the old vocabulary splits the words."""
    tokens = [*SPECIAL, "[unused0]", "a", "##b", "##c", "[unused1]"]
    (tmp_path / "old.txt").write_text("\n".join(tokens))
    options = {"extend_vocab": str(tmp_path / "old.txt"), "placement": placement}
    vocab = build(tmp_path, b"abc ab abc\n a " * 3, num_new_tokens=2, **options)
    new = ["abc", "ab"]
    expected = (
        [*tokens, *new] if placement == "append" else [*tokens[:5], new[0], *tokens[6:9], new[1]]
    )
    assert vocab.tokens == tuple(expected)
    mapping = load_mapping(str(tmp_path / "vocab.txt.mapping.json"))
    ids = (10, 11) if placement == "append" else (5, 9)
    assert mapping.starts_from == {ids[0]: (6, 7, 8), ids[1]: (6, 7)}
    assert (mapping.old_size, mapping.new_size) == (len(tokens), len(expected))
    output = capsys.readouterr().out
    assert "  2.250  " in output and "  1.000  " in output  # tokens per word, before and after
    assert "Added 2 tokens, such as abc, ab." in output
    assert f"--init_vocab_mapping={tmp_path}/vocab.txt.mapping.json" in output.splitlines()[-1]
    with embedded():
        building._say_next(Options(output_file="v.txt", input_file="x", extend_vocab="old.txt"))
    assert " init_vocab_mapping='v.txt.mapping.json'." in capsys.readouterr().out


def test_an_extension_keeps_added_tokens(tmp_path, capsys):
    """Oracle: worked out by hand; an added token is a word of its own, and one token."""
    old = tmp_path / "old" / "vocab.txt"
    old.parent.mkdir()
    old.write_text("\n".join([*SPECIAL, "a", "##b", "##c"]))
    (old.parent / "added_tokens.json").write_text('{"[E1]": 8, "New York": 9}')
    options = {"extend_vocab": str(old), "num_new_tokens": 2}
    text = b"[E1] abc new york [E1]\nabc\n" * 3
    with pytest.raises(ValueError, match="vocab.txt comes with .*named vocab.txt: give a path"):
        build(tmp_path, text, **options, output_file=str(tmp_path / "new.txt"))
    build(tmp_path, text, **options)
    assert re.search(r"15 +3 +1\.\d+ .*15 +3 +1\.000 ", capsys.readouterr().out, re.S)
    vocab, _ = read_vocab_file(str(tmp_path / "vocab.txt"), None)
    assert vocab.tokens == (*SPECIAL, "a", "##b", "##c", "[E1]", "New York", "abc")
    assert [(x.content, x.id) for x in vocab.added] == [("[E1]", 8), ("New York", 9)]
    ids = WordPieceTokenizer(vocab).tokenize_flat(["abc [E1]x New York"]).to_list()
    assert ids == [[10, 8, 1, 9]]


def test_the_casing_of_a_vocabulary_goes_with_it(tmp_path, capsys):
    """Oracle: the flag of the first command; later commands need none."""
    build(tmp_path, b"Ab Ab ab", do_lower_case=False)
    assert "--nodo_lower_case" not in capsys.readouterr().out
    text, written = str(tmp_path / "text.txt"), str(tmp_path / "vocab.txt")
    data = dict(input_file=text, output_file=str(tmp_path / "x.tfrecord"), vocab_file=written)
    assert make_job(DataOptions(**data)).options.do_lower_case is False
    with pytest.raises(ValueError, match="do_lower_case: --do_lower_case says True, but .*False"):
        make_job(DataOptions(**data, do_lower_case=True))
    # A file of another name cannot state it, so the next command must.
    build(tmp_path, b"Ab Ab ab", do_lower_case=False, output_file=str(tmp_path / "other.txt"))
    assert "other.txt --nodo_lower_case" in capsys.readouterr().out
    # What another program wrote stays.
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer_config.json exists and describes another"):
        build(tmp_path, b"a a", output_file=str(tmp_path / "theirs" / "vocab.txt"))


def test_a_casing_that_appears_meanwhile_stays(tmp_path, monkeypatch):
    """Oracle: the file of another program, written while the text is read."""
    theirs, learn = tmp_path / "tokenizer_config.json", building.learn_vocabulary
    patched = lambda *flags: theirs.write_text("{}") and learn(*flags)  # noqa: E731
    monkeypatch.setattr(building, "learn_vocabulary", patched)
    with pytest.raises(ValueError, match=f"{theirs} exists and describes another"):
        build(tmp_path, b"a a")
    assert theirs.read_text() == "{}" and not (tmp_path / "vocab.txt").exists()


def test_an_extension_keeps_the_casing_of_the_vocabulary(tmp_path, capsys):
    """Oracle: "Ab" is one token of a cased vocabulary, and none of an uncased one."""
    (tmp_path / "old.txt").write_text("\n".join([*SPECIAL, "A", "a", "##b"]))
    options = {"extend_vocab": str(tmp_path / "old.txt"), "output_file": str(tmp_path / "new.txt")}
    assert build(tmp_path, b"Ab Ab Ab\n", **options).tokens[-1] == "Ab"
    output = capsys.readouterr().out
    assert "old.txt, text keeps its capitals" in output and "WARNING" not in output
    options |= {"do_lower_case": True, "overwrite": True}
    assert build(tmp_path, b"Ab Ab Ab\n", **options).tokens[-1] == "ab"
    assert "old.txt is cased, but the text is lower-cased" in capsys.readouterr().out


def test_empty_files_and_bytes_that_are_not_utf8_are_counted(tmp_path, capsys):
    """Oracle: the files, by hand."""
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"\n"))
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbfab\xff ab\nab\n\xc3\n")
    run(Options(input_file=f"{tmp_path}/?.txt*", output_file=f"{tmp_path}/vocab.txt"))
    assert capsys.readouterr().out.startswith(
        f"WARNING: 2 of 3 files are empty: {tmp_path}/a.txt, {tmp_path}/b.txt.gz.\n"
        f"WARNING: dropped invalid bytes in 2 lines that are not UTF-8: {tmp_path}/c.txt (2). "
    )
    assert load_vocab(f"{tmp_path}/vocab.txt").tokens[104:] == ("a", "b", "##b", "ab")


def test_another_vocabulary_is_not_replaced(tmp_path, capsys, monkeypatch):
    """Oracle: the bytes of the file. The refusal comes before any word is counted."""
    build(tmp_path, b"ab ab ab q q\n")
    count_words = building.count_words
    monkeypatch.setattr(building, "count_words", None)
    # The contents count, not the time of the input or the version of the program.
    os.utime(tmp_path / "text.txt", (1, 1))
    edit_json(tmp_path / "vocab.txt.manifest.json", bert_tf="0.0.1")
    file, output = f"{tmp_path}/text.txt", f"{tmp_path}/vocab.txt"
    run(Options(input_file=file, output_file=output, vocab_size=299))
    assert f"{tmp_path}/vocab.txt is complete: nothing to do." in capsys.readouterr().out
    before = (tmp_path / "vocab.txt").read_bytes()
    for text, options in ((b"ab ab ab q q\n", {"vocab_size": 20}), (b"cd cd\n", {})):
        with pytest.raises(ValueError, match="vocab.txt was made from .* --overwrite"):
            build(tmp_path, text, **options)
    monkeypatch.setattr(building, "count_words", count_words)
    assert (tmp_path / "vocab.txt").read_bytes() == before
    assert "cd" in build(tmp_path, b"cd cd\n", overwrite=True).ids
    # The manifest of records whose name is that of a vocabulary; a link that leads nowhere.
    (other := tmp_path / "v.manifest.json").write_text('{"bert_tf": "1", "shards": []}')
    (tmp_path / "w").symlink_to("absent")
    for name, found in (("v", other), ("w", tmp_path / "w")):
        with pytest.raises(FileExistsError, match=f"{found} exists"):
            build(tmp_path, b"cd cd\n", output_file=f"{tmp_path}/{name}")
    assert "shards" in other.read_text() and (tmp_path / "w").is_symlink()
    # A run that was interrupted leaves at most the manifest.
    (tmp_path / "vocab.txt").unlink()
    assert "ef" in build(tmp_path, b"ef ef\n").ids
    (tmp_path / "vocab.txt").write_text("mine")
    with pytest.raises(ValueError, match="vocab.txt.* --overwrite"):
        build(tmp_path, b"ef ef\n")


@pytest.mark.parametrize("end", ["", ".manifest.json", ".mapping.json"])
@pytest.mark.parametrize("meanwhile", [False, True])
def test_what_others_wrote_is_not_replaced(tmp_path, monkeypatch, end, meanwhile):
    """Oracle: the user's file, there from the start or while the text is read; a folder."""
    (tmp_path / "old.txt").write_text("\n".join([*SPECIAL, "a", "##b"]))
    (mine := tmp_path / f"vocab.txt{end}").write_text("mine")
    options, count_words = {"extend_vocab": f"{tmp_path}/old.txt"}, building.count_words

    def count(*arguments, **flags):
        mine.write_text("mine")
        return count_words(*arguments, **flags)

    if meanwhile:
        mine.unlink()
        monkeypatch.setattr(building, "count_words", count)
    with pytest.raises((OSError, ValueError), match=f"vocab.txt{end} .*--overwrite"):
        build(tmp_path, b"ab ab\n", **options)
    assert mine.read_text() == "mine"
    monkeypatch.undo()
    build(tmp_path, b"ab ab\n", **options, overwrite=True)
    for path in tmp_path.glob("vocab.txt*"):
        path.unlink()
    mine.mkdir()
    (mine / "diary").touch()
    with pytest.raises(ValueError, match=f"vocab.txt{end} is a directory"):
        build(tmp_path, b"ab ab\n", **options, overwrite=True)
    assert (mine / "diary").exists()


@pytest.mark.parametrize(
    "text, options, message",
    [
        (b" \n\t\n\x00\n", {}, "text.txt: the text has no words"),
        (b"abc abc", {"vocab_size": 9}, "--vocab_size=9 is too small: .* need 109"),
        (b"abc", {"output_file": None}, "give --output_file, or --report_vocab to only"),
        (b"abc", {"report_vocab": "v.txt"}, "--output_file and --report_vocab exclude each other"),
        (b"a", {"num_new_tokens": 5}, "--num_new_tokens has no effect without --extend_vocab"),
        (b"a", {"extend_vocab": "v", "vocab_size": 9}, "--vocab_size and --extend_vocab exclude"),
        (b"a", {"text_field": "body"}, "--text_field has no effect without a JSON file"),
        (b"a", {"tfds": "wikipedia"}, "give either --input_file or --tfds"),
        (b"abc", {"extend_vocab": "absent.txt"}, "absent.txt: no such file"),
    ],
)
def test_bad_input_is_named_and_nothing_written(tmp_path, text, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        build(tmp_path, text, **options)
    assert os.listdir(tmp_path) == ["text.txt"]
