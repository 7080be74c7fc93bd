"""Tests counting words. Oracle: the words that the tokenizer finds line by line."""

import gzip
import json
from collections import Counter

import pytest

from bert_tf.corpus.corpus_options import CorpusOptions
from bert_tf.corpus.sources import read_blocks
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.vocabulary import counting
from bert_tf.vocabulary.counting import count_words
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

WHALES = "Whales\nWhales are mammals that live in the sea.\nfin\n"
PLAIN = CorpusOptions().with_corpus_defaults()
TEXTS = {
    "english": "The cat's  tail.\tIt’s 3.5 m long, naïve!\r\nÇa va? ΟΔΟΣ ΣΑΣ İstanbul\r\n",
    "chinese": "我们今天学习自然语言处理。北京大学,2024年!\n這是一個測試𠀀\n",
    "thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ สวัสดีครับ ๑๒๓\n",
    "arabic": "اللُّغَةُ العَرَبِيَّةُ لغة جميلة، أليس كذلك؟\n",
    "emoji": "👍🏽 👩\u200d👩\u200d👧 ok😀😀 ❤\ufe0f\n",
    "hostile": "a\x0bb c\x0cd e\x00f g\x1fh i\u00a0j k\u3000l m\u2028n \ufeffo p\u200bq \x85r\n\n",
}


def reference(data: bytes, lower_case: bool) -> Counter[str]:
    tokenizer = WordPieceTokenizer(Vocabulary(SPECIAL_TOKENS), lower_case)
    return Counter(
        word.decode()
        for line in data.split(b"\n")
        for word in tokenizer.words([line]).values.numpy()
    )


@pytest.mark.parametrize("lower_case", [True, False])
def test_words_are_the_tokenizers(tmp_path, lower_case):
    damaged = b"ab\xff \xe4\xb8 x \xe4\x0b\xb8\x80 \xed\xa0\x80\nfine\n\xc3\n"
    texts = {name: (text * 2).encode() for name, text in TEXTS.items()} | {"damaged": damaged}
    for name, data in texts.items():
        (tmp_path / name).write_bytes(data)
    counts = count_words({name: [str(tmp_path / name)] for name in texts}, lower_case, PLAIN)
    for name, data in texts.items():
        assert counts.texts[name] == reference(data, lower_case), name
    assert counts.all() == reference(b"\n".join(texts.values()), lower_case)
    assert counts.invalid_lines == {str(tmp_path / "damaged"): 2}


def test_json_lines_hold_the_same_words(tmp_path):
    data = TEXTS["english"].encode() * 3
    lines = [json.dumps({"n": 1, "body": line}) for line in data.decode().split("\n")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("\n\n".join(lines).encode()))
    texts = {name: [str(tmp_path / name)] for name in ("a.jsonl", "b.jsonl.gz")}
    counts = count_words(texts, True, CorpusOptions(text_field="body").with_corpus_defaults())
    for name in texts:
        assert counts.texts[name] == reference(data, True), name
    with pytest.raises(ValueError, match=r"a\.jsonl.*'text'"):
        count_words({"": [str(tmp_path / "a.jsonl")]}, True, PLAIN)


@pytest.mark.parametrize(
    ("text", "flags", "dropped"),
    [
        (WHALES, {}, ""),
        (WHALES, {"split_sentences": True}, "whales fin"),
        (f'<doc id="1">\n{WHALES}</doc>\n', {}, '< doc id = " 1 " > < / doc >'),
        ("Fish\nfin\n", {"clean": True}, "fish fin"),
        ("One.\n\nTwo.\nfin\n***\nThree.\n", {"document_separator": r"\*\*\*"}, "* * *"),
        (
            f"{'One whale and many fish ' * 3}swam exam-\nple and example.\n",
            {"unwrap": True},
            "exam - ple",
        ),
    ],
)
def test_words_are_those_of_the_sentences_that_are_kept(tmp_path, text, flags, dropped):
    """Oracle: by hand, the words that the flags drop; what a hyphen divided is one word."""
    (tmp_path / "text.txt").write_text(text)
    options = CorpusOptions(**flags).with_corpus_defaults()
    found = count_words({"": [str(tmp_path / "text.txt")]}, True, options).texts[""]
    expected = reference(text.encode(), True) - Counter(dropped.split())
    assert found == (expected + Counter(["example"] if "unwrap" in flags else []))


def test_text_without_blank_lines_is_read_in_parts(tmp_path):
    """Oracle: the file itself. Every part ends with a line."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {i}\r\n" for i in range(1000)))
    blocks = [block.data for block in read_blocks([str(path)], 500, separator=None)]
    assert b"".join(blocks) == path.read_bytes()
    assert all(len(block) < 1000 and block.endswith(b"\r\n") for block in blocks)


@pytest.mark.slow
def test_workers_do_not_change_the_counts_or_the_pruning(tmp_path, monkeypatch):
    """Oracle: the counts of one process, for many blocks of different sizes."""
    monkeypatch.setattr(counting, "BYTES_PER_WORKER", 1)
    monkeypatch.setattr(counting, "BLOCK_BYTES", 500)
    files = []
    for number in range(3):
        words = [f"{'x' * (i * number % 5)}{i % (70 + 90 * number)}" for i in range(2000)]
        lines = [" ".join(words[i : i + 7]) + "\n" for i in range(0, 2000, 7)]
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text("".join(lines))
    texts = {"one": [str(files[0])], "two": [str(files[1]), str(files[2])]}
    alone = count_words(texts, True, PLAIN, max_words=300)
    assert alone.pruned > 0
    together = count_words(texts, True, PLAIN, num_workers=2, max_words=300)
    assert together == alone
    kept = sum(table.total() for table in alone.texts.values())
    assert kept + alone.pruned == 6000


def test_pruning_by_hand():
    """The median of 1 1 1 2 2 3 9 is 2. More frequent words stay."""
    tables = [Counter({"a": 1, "b": 2, "c": 9, "d": 1}), Counter({"a": 3, "b": 2, "e": 1})]
    assert counting._prune(tables) == 7
    assert tables == [Counter({"c": 9}), Counter({"a": 3})]
