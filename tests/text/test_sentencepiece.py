"""The tokenizer of SentencePiece models against two oracles.

(a) transformers' AlbertTokenizer: `albert_tokens.json` holds what version 5.24 gives some texts.
(b) Hugging Face `tokenizers`, put together as AlbertTokenizer does: for real and hostile text.
"""

import dataclasses
import itertools
import json
import lzma
import pathlib
import re
import tarfile
import unicodedata

import keras
import pytest
import tensorflow as tf
from hostile import hostile_lines
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

import bert_tf
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.sentencepiece import scored_pieces
from tfrecords.vocabulary import Vocabulary, load_vocab

FORMATS = pathlib.Path(__file__).parents[1] / "weights" / "formats"
MODEL = FORMATS / "family" / "AlbertForMaskedLM" / "spiece.model"
GOLDEN = json.loads((FORMATS / "albert_tokens.json").read_text("utf-8"))
VOCAB = load_vocab(str(MODEL))
CASINGS = {
    "published": (True, False),
    "cased": (False, False),
    "with accents": (True, True),
    "neither": (False, True),
}


def tokenizer(lower_case=True, keep_accents=False, special=True):
    vocab = dataclasses.replace(VOCAB, strip_accents=False if keep_accents else None)
    return make_tokenizer(vocab, lower_case, special)


def spell(text: str, special: bool = False) -> list[list[str]]:
    words = tokenizer(special=special).tokenize(tf.constant([text])).to_list()[0]
    return [[VOCAB.tokens[piece] for piece in word] for word in words]


def hugging_face(lower_case: bool, keep_accents: bool) -> Tokenizer:
    """Oracle (b): transformers' tokenization_albert.py and `AlbertConverter`."""
    pieces, charsmap = scored_pieces(MODEL.read_bytes())
    scores = [(x, y - 100 if re.fullmatch(r".*\d,", x) else y) for x, y in pieces]
    theirs = Tokenizer(models.Unigram(scores, unk_id=1, byte_fallback=False))
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lower_case:
        steps.append(normalizers.Lowercase())
    theirs.normalizer = normalizers.Sequence([*steps, normalizers.Precompiled(charsmap)])
    mark = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    split = [pre_tokenizers.WhitespaceSplit(), mark]
    theirs.pre_tokenizer = pre_tokenizers.Sequence(split)
    names = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    theirs.add_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    return theirs


@pytest.fixture(scope="module")
def real_lines(shared_data):
    """English Wikipedia, movie reviews, and the tokens of a vocabulary of 104 languages."""
    with lzma.open(shared_data / "corpus" / "wikipedia_en.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in itertools.islice(file, 300)]
    with tarfile.open(shared_data / "imdb" / "aclImdb_labelled.tar.xz") as tar:
        files = itertools.islice((member for member in tar if member.isfile()), 40)
        lines += [tar.extractfile(member).read().decode() for member in files]
    path = shared_data / "vocab" / "bert-base-multilingual-cased" / "vocab.txt"
    tokens = iter(load_vocab(str(path)).tokens[200::24])
    return lines + [" ".join(line) for line in zip(*[tokens] * 20, strict=False)]


@pytest.mark.parametrize("name", CASINGS)
def test_ids_are_those_of_transformers(name):
    """Oracle (a), and (b), which shows that (b) is made as transformers makes it."""
    ours, theirs = tokenizer(*CASINGS[name]), hugging_face(*CASINGS[name])
    for text, expected in zip(GOLDEN["texts"], GOLDEN[name]["ids"], strict=True):
        assert ours.tokenize_flat([text]).to_list() == [expected], ascii(text)
        assert theirs.encode(text, add_special_tokens=False).ids == expected, ascii(text)


def has_equal_divisions(text: str) -> bool:
    """Whether a letter occurs three times in a row, so that "oo" "o" is as likely as "o" "oo"."""
    plain = unicodedata.normalize("NFKD", text).lower()
    return bool(re.search(r"(\w)\1\1", re.sub(r"[\u0300-\u036f]", "", plain)))


@pytest.mark.parametrize("name", ["published", "cased"])
@pytest.mark.slow
def test_real_and_hostile_text(name, real_lines):
    """Oracle (b): ids, and where the tokens are, accents aside.

    Rounding decides between equally likely divisions. The library ends a text at NUL; ours removes
    it. U+1ABF and U+1AC0 are accents since Unicode 13.
    """
    lines = [
        line
        for line in real_lines + hostile_lines(600, seed=1)
        if not (has_equal_divisions(line) or re.search("[\0\u1abf\u1ac0]", line))
    ]
    assert len(lines) > 1000
    ids, starts, limits = (
        x.merge_dims(1, 2).to_list() for x in tokenizer(*CASINGS[name]).tokenize_with_offsets(lines)
    )
    wanted = hugging_face(*CASINGS[name]).encode_batch(lines, add_special_tokens=False)
    for line, found, first, last, want in zip(lines, ids, starts, limits, wanted, strict=True):
        assert found == want.ids, ascii(line)
        if line.isascii() and not re.search("[\\x00-\\x1f\\x7f]", line):
            spans = [*zip(first, last, strict=True)]
            same = [i for i, token in enumerate(want.tokens) if token != "\u2581"]
            assert [spans[i] for i in same] == [want.offsets[i] for i in same], line


@pytest.mark.parametrize(
    "text, words",
    [
        ("The sea, (full).", [["▁the"], ["▁sea"], [","], ["▁", "("], ["ful", "l"], [")"], ["."]]),
        ("don't", [["▁do", "n"], ["'"], ["t"]]),
        ("9, 1,000", [["▁9"], [","], ["▁1,000"]]),
        ("``a'' a\0b", [["▁", '"'], ["a"], ['"'], ["▁a", "b"]]),
        ("[MASK]", [["▁", "[UNK]", "m", "a", "s", "k", "[UNK]"]]),
        ("", []),
        (" \t\u200b", []),
    ],
)
def test_words(text, words):
    """Oracle: the words of BERT, which end at punctuation, with pieces worked out by hand."""
    assert spell(text) == words


def test_offsets_are_those_of_the_text():
    """Oracle: by hand; accents, two quotes and characters that become several keep their bytes."""
    text = "  ``Éá e\u0301'' (ﬁ) ½x "
    ids, starts, limits = tokenizer().tokenize_with_offsets([text, "(a) ''"])
    pairs = [x.merge_dims(1, 2).to_list() for x in (starts, limits)]
    found = [
        [line.encode()[first:last].decode() for first, last in zip(*spans, strict=True)]
        for line, *spans in zip([text, "(a) ''"], *pairs, strict=True)
    ]
    assert found[0] == [
        *("", "``", "É", "á", "", "e\u0301", "''", "", "(", "ﬁ", "ﬁ", ")"),
        *("½", "½", "½", "x"),
    ]
    assert found[1] == ["", "(", "a", ")", "", "''"]
    assert tokenizer().words([text]).to_list() == [
        [b'"', b"ea", b"e", b'"', b"(", b"fi", b")", "1\u20442x".encode()]
    ]


def test_texts_come_back():
    """Oracle: the normalized texts."""
    ours = tokenizer()
    texts = ["the (old) sea, it's full. [MASK] 1,000", "a good film [SEP] yes"]
    assert ours.decode(ours.tokenize_flat(texts)) == texts
    assert ours.decode([]) == ""


def test_lines_in_bulk_and_equality():
    """Oracle: `tokenize_flat`; the arguments."""
    lines = ["a good film", "", "été (9, 10)"]
    ids, splits = tokenizer().tokenize_lines([line.encode() for line in lines])
    expected = tokenizer().tokenize_flat(lines)
    assert (ids.tolist(), splits.tolist()) == (
        expected.values.numpy().tolist(),
        expected.row_splits.numpy().tolist(),
    )
    assert tokenizer() == tokenizer() != tokenizer(lower_case=False)
    assert tokenizer().starts_word.tolist() == [
        x[0] == "\u2581" or not any(c.isalnum() for c in x) or x[0] == "[" and x != "[UNK]"
        for x in VOCAB.tokens
    ]


def test_a_layer_keeps_its_model():
    """Oracle: the layer before; the tokens of (a); Keras frees what it calls its session."""
    layer = bert_tf.BertPreprocessor(str(MODEL), lower_case=True, seq_length=32)
    again = bert_tf.BertPreprocessor.from_config(json.loads(json.dumps(layer.get_config())))
    assert again.tokenizer == layer.tokenizer
    text, ids = tf.constant(GOLDEN["texts"][1:2]), GOLDEN["published"]["ids"][1]
    row = [VOCAB.cls_id, *ids, VOCAB.sep_id]
    row += [VOCAB.pad_id] * (32 - len(row))
    graph = tf.function(again)
    for _ in range(2):
        for call in (again, graph):
            assert call(text)["input_word_ids"].numpy().tolist() == [row]
        keras.utils.clear_session()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WordPieceTokenizer(VOCAB), "this takes word pieces only: give a vocab.txt"),
        (lambda: Vocabulary.from_sentencepiece(b"no"), "^not a SentencePiece model"),
        (lambda: Vocabulary.from_sentencepiece(b""), "lacks a piece for unknown characters"),
    ],
)
def test_what_cannot_be_read(make, message):
    """Oracle: the message."""
    with pytest.raises(ValueError, match=message):
        make()
