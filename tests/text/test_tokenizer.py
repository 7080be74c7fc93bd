"""The in-graph tokenizer against two oracles.

(a) `reference_tokenizer`: the original algorithm in plain Python. The tokenizer must always agree.
(b) Hugging Face `tokenizers`: independent and fast, for real text and offsets. Unlike (a), it drops
    unassigned and private characters (categories Cn and Co; the original drops Cc and Cf only) and
    has no final sigma (the original calls Python's str.lower()).
"""

import itertools
import lzma
import random
import tarfile
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hostile import hostile_lines
from reference_tokenizer import reference_pieces, reference_words
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab

PUBLISHED = [
    ("bert-base-uncased", True),
    ("bert-base-cased", False),
    ("bert-base-multilingual-cased", False),
    ("bert-base-chinese", True),
]


@pytest.fixture(scope="module", params=PUBLISHED, ids=lambda param: param[0])
def published(request, shared_data):
    """The (vocabulary, lower_case, tokenizer) of every published vocabulary."""
    name, lower_case = request.param
    vocab = load_vocab(str(shared_data / "vocab" / name / "vocab.txt"))
    return vocab, lower_case, WordPieceTokenizer(vocab, lower_case)


@pytest.fixture(scope="module")
def real_lines(shared_data):
    """English Wikipedia, movie reviews, and the tokens of a vocabulary of 104 languages."""
    with lzma.open(shared_data / "corpus" / "wikipedia_en.txt.xz", "rt", encoding="utf-8") as file:
        wikipedia = [line.rstrip("\n") for line in itertools.islice(file, 1000)]
    with tarfile.open(shared_data / "imdb" / "aclImdb_labelled.tar.xz") as tar:
        files = itertools.islice((member for member in tar if member.isfile()), 150)
        reviews = [tar.extractfile(member).read().decode() for member in files]
    path = shared_data / "vocab" / "bert-base-multilingual-cased" / "vocab.txt"
    tokens = iter(load_vocab(str(path)).tokens[200::8])
    words = [" ".join(line) for line in zip(*[tokens] * 20, strict=False)]
    return wikipedia + reviews + words


def vocabulary(*tokens: str) -> Vocabulary:
    return Vocabulary((*SPECIAL_TOKENS, *tokens))


def spell(tokenizer: WordPieceTokenizer, text: str) -> list[list[str]]:
    words = tokenizer.tokenize(tf.constant([text])).to_list()[0]
    return [[tokenizer.vocab.tokens[piece] for piece in word] for word in words]


def spans(tokenizer: WordPieceTokenizer, text: str) -> list[str]:
    """The part of a string that each of its tokens comes from."""
    _, starts, limits = tokenizer.tokenize_with_offsets([text])
    assert starts.dtype == limits.dtype == tf.int64
    offsets = zip(starts.flat_values.numpy(), limits.flat_values.numpy(), strict=True)
    return [text.encode()[start:limit].decode() for start, limit in offsets]


def check(tokenizer: WordPieceTokenizer, lines: list[str]) -> None:
    """Compares every line with oracle (a)."""
    vocab, lower_case = tokenizer.vocab, tokenizer.lower_case
    for line, words in zip(lines, tokenizer.tokenize(lines).to_list(), strict=True):
        expected = reference_pieces(line, vocab.ids, lower_case)
        assert [[vocab.tokens[piece] for piece in word] for word in words] == expected, ascii(line)


def hugging_face(vocab: Vocabulary, lower_case: bool) -> Tokenizer:
    """Oracle (b), with the original's limit of 200 characters and no special tokens in text."""
    model = models.WordPiece(vocab.ids, unk_token="[UNK]", max_input_chars_per_word=200)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


@pytest.mark.parametrize(
    "lower_case, text, words",
    [
        (True, "Unaffable, non?", [["un", "##aff", "##able"], [","], ["[UNK]"], ["?"]]),
        (False, "Unaffable", [["[UNK]"]]),
        (True, "éa E\u0301a", [["e", "##a"], ["e", "##a"]]),
        (False, "éa", [["é", "##a"]]),
        (False, "e\u0301", [["[UNK]"]]),
        (True, "a中a\u200ba", [["a"], ["中"], ["a", "##a"]]),
        (True, "a\u2028a\u00a0a\x85a\x1ca\ta", [["a"], ["a"], ["a", "##a", "##a"], ["a"]]),
        (True, "ΣΑΣ ΣΑΣ.Α", [["σ", "##α", "##ς"], ["σ", "##α", "##σ"], ["."], ["α"]]),
        (True, "ΑΣ", [["α", "##ς"]]),
        (True, "İIı", [["i", "##i", "##ı"]]),
        (True, "##a [MASK]", [["#"], ["#"], ["a"], ["["], ["[UNK]"], ["]"]]),
        (True, "a-a", [["a"], ["-"], ["a"]]),
        (True, "a\ufdd0 \ue000 \u0378 \ufffda\0", [["[UNK]"], ["[UNK]"], ["[UNK]"], ["a"]]),
        (True, "", []),
        (True, " \t\n\u200b\u3000", []),
    ],
)
def test_worked_examples(lower_case, text, words):
    """Oracle: tokens worked out by hand from the original's rules."""
    pieces = "un ##aff ##able , ? e é a ##a 中 σ ##α ##σ α ##ς i ##i ##ı # [ ] - . a-a ##- \u2028"
    tokenizer = WordPieceTokenizer(vocabulary(*pieces.split(" ")), lower_case)
    assert spell(tokenizer, text) == words


@pytest.mark.slow
def test_real_text_equals_hugging_face(published, real_lines):
    """Oracle (b): ids and offsets, with the accents that follow, which theirs leave out."""
    vocab, lower_case, tokenizer = published
    ids, starts, limits = tokenizer.tokenize_with_offsets(real_lines)
    ids, starts, limits = (x.merge_dims(1, 2).to_list() for x in (ids, starts, limits))
    expected = hugging_face(vocab, lower_case).encode_batch(real_lines, add_special_tokens=False)
    for line, *got, want in zip(real_lines, ids, starts, limits, expected, strict=True):
        if any(unicodedata.category(character) in ("Cn", "Co") for character in line):
            continue
        # Their offsets count characters.
        at = [0, *itertools.accumulate(len(character.encode()) for character in line)]
        lasts = [_after_accents(line, last) if lower_case else last for _, last in want.offsets]
        offsets = [[at[first] for first, _ in want.offsets], [at[last] for last in lasts]]
        assert got == [want.ids, *offsets], line


def _after_accents(line: str, place: int) -> int:
    while unicodedata.category(line[place : place + 1] or " ") == "Mn":
        place += 1
    return place


def test_real_and_hostile_text_equals_the_original(published, real_lines):
    """Oracle (a)."""
    check(published[2], real_lines[::40] + hostile_lines(200, seed=1))


def test_invalid_utf8_is_dropped():
    """Oracle (a), which decodes with errors="ignore"."""
    rng = random.Random(2)
    pool = [0x20, 0x41, 0xC3, 0xA9, 0xE2, 0xED, 0xA0, 0x80, 0xF0, 0x9F, *range(256)]
    lines = [bytes(rng.choices(pool, k=30)) for _ in range(2000)]
    words = WordPieceTokenizer(vocabulary()).words(lines).to_list()
    for line, got in zip(lines, words, strict=True):
        assert [word.decode() for word in got] == reference_words(line), line


@pytest.mark.parametrize("seed", range(6))
def test_strange_vocabularies(seed):
    """Oracle (a) for random vocabularies whose tokens contain punctuation, "#" and brackets."""
    rng = random.Random(seed)
    pieces = {"".join(rng.choices("ab-#[]中é'", k=rng.randint(1, 3))) for _ in range(40)}
    pieces = {rng.choice(["", "##"]) + piece for piece in sorted(pieces)}
    tokenizer = WordPieceTokenizer(vocabulary(*sorted(pieces)), lower_case=False)
    check(tokenizer, ["".join(rng.choices("aabb -#[]中é'", k=12)) for _ in range(100)])


# Characters of Unicode 14 and later. TensorFlow's tables (Unicode 13 for lower case, Unicode 15 and
# later for the rest) differ from Python 3.11's (Unicode 14), where most of them are unassigned.
NEWER = """
    ECE 1B4E-1B4F 1B7F 2C2F A7C0 A7D0 A7D6 A7D8 10570-10595 105C9 105E4 10D6E 10EFD-10EFF 11241
    11383-113D8 11B00-11B09 11BE1 11F00-11F4F 13439-13455 16121-16128 16D68-16D6F 1E08F 1E4EC-1E4EF
    1E5FF
"""


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="compares with Unicode 14")
@pytest.mark.parametrize("lower_case", [True, False])
def test_every_character(lower_case):
    """Oracle (a) for planes 0 and 1, each character between letters, except for NEWER."""
    ranges = [[int(end, 16) for end in part.split("-")] for part in NEWER.split()]
    newer = {code for part in ranges for code in range(part[0], part[-1] + 1)}
    # Every 50th of the many thousands of ideographs and syllables is enough.
    dense = [range(0x3400, 0xA000), range(0xAC00, 0xF900), range(0x17000, 0x18D00)]
    codes = [
        code
        for code in range(0x1FC00)
        if not 0xD800 <= code < 0xE000
        and (code % 50 == 0 or not any(code in part for part in dense))
    ]
    lines = [f"a{chr(code)}b" for code in codes]
    words = WordPieceTokenizer(vocabulary(), lower_case).words(lines).to_list()
    differ = {
        code
        for code, line, got in zip(codes, lines, words, strict=True)
        if [word.decode() for word in got] != reference_words(line, lower_case)
    }
    assert differ <= newer, [hex(code) for code in sorted(differ - newer)]


@pytest.mark.parametrize("letter", ["a", "é", "ก", "😀"])
def test_words_of_more_than_200_characters_are_unknown(letter):
    """Oracle: the original's limit; the span of such an [UNK] is its word."""
    tokenizer = WordPieceTokenizer(vocabulary(letter, f"##{letter}", "."), lower_case=False)
    longest, too_long = letter * 200, letter * 201
    text = f"{too_long} {longest}.{too_long}{letter} {letter * 900}."
    unknown, point, whole = [1], [7], [5] + [6] * 199
    words = [unknown, whole, point, unknown, unknown, point]
    assert tokenizer.tokenize([text, "", longest]).to_list() == [words, [], [whole]]
    expected = [too_long, *letter * 200, ".", f"{too_long}{letter}", letter * 900, "."]
    assert spans(tokenizer, text) == expected


def check_lines(tokenizer: WordPieceTokenizer, lines: list[str]) -> None:
    """Compares `tokenize_lines` with `tokenize_flat`, for all lines together and one by one."""
    lines = [line.encode() for line in lines]
    expected = tokenizer.tokenize_flat(lines)
    ids, splits = tokenizer.tokenize_lines(lines)
    assert (ids.dtype, splits.dtype) == (np.int32, np.int64)
    np.testing.assert_array_equal(splits, expected.row_splits)
    np.testing.assert_array_equal(ids, expected.values)
    for line, pieces in zip(lines[:20], expected.to_list()[:20], strict=True):
        ids, splits = tokenizer.tokenize_lines([line])
        assert ids.tolist() == pieces and splits.tolist() == [0, len(pieces)]


def test_lines_of_real_and_hostile_text(published, real_lines):
    """Oracle: `tokenize_flat`."""
    check_lines(published[2], real_lines)
    check_lines(published[2], hostile_lines(400, seed=4))


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("special_tokens_in_text", [True, False])
def test_lines_of_all_of_ascii(lower_case, special_tokens_in_text):
    """Oracle: `tokenize_flat`."""
    letters = [chr(code) for code in range(128) if not chr(code).isupper() or not lower_case]
    pieces = [letter for letter in letters if letter > " "] + ["##a", "##b", "##A"]
    tokenizer = WordPieceTokenizer(vocabulary(*pieces), lower_case, special_tokens_in_text)
    pairs = [chr(first) + chr(second) for first in range(128) for second in range(128)]
    check_lines(tokenizer, [f"[MASK]b{pair}a" for pair in pairs])
    ids, splits = tokenizer.tokenize_lines([])
    assert ids.tolist() == [] and splits.tolist() == [0]


@pytest.mark.parametrize("lower_case", [True, False])
def test_lines_of_long_words(lower_case):
    """Oracle: `tokenize_flat`, for about 200 characters or bytes, anywhere in a line."""
    pieces = "a ##a é ##é e ##e ก ##ก 😀 ##😀 中 \u5000 \u9fff \u4fff .".split()
    tokenizer = WordPieceTokenizer(vocabulary(*pieces), lower_case)
    counts = [1, 49, 50, 51, 66, 67, 99, 100, 101, 199, 200, 201, 202, 799, 800, 801]
    for letter in ("a", "É", "中", "\u5000", "\u9fff", "\u4fff", "ก", "😀", "e\u0301"):
        words = [letter * count for count in counts]
        check_lines(tokenizer, [*words, "", *[f"a.{word}\t{word}-a" for word in words], "a"])


def test_which_tokens_start_words():
    """Oracle: by hand; "##" alone is no continuation."""
    tokenizer = WordPieceTokenizer(vocabulary("a", "##a", "##", "#", "a##"))
    assert tokenizer.starts_word.tolist() == [True] * 6 + [False] + [True] * 3


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Crème brûlée!", ["Crème", "br", "ûlée", "!"]),
        ("cre\u0301me\u0301 bru", ["cre\u0301me\u0301", "br", "u"]),
        ("a\u0301\u0302 \u0301br\u0301", ["a\u0301\u0302", "br\u0301"]),
        ("\u200bcr\xade\0me 中国", ["cr\xade\0me", "中", "国"]),
        ("x👩‍🚀x été", ["x👩‍🚀x", "été"]),
        ("\ufeff각\u11a8 a", ["각\u11a8", "a"]),
        ("İa ΑΣ", ["İ", "a", "Α", "Σ"]),
    ],
)
def test_offsets_by_hand(text, expected):
    """Oracle: the spans, marked by hand."""
    pieces = "creme br ##ulee ##u ! 中 国 a i ##a α ##ς".split()
    assert spans(WordPieceTokenizer(vocabulary(*pieces)), text) == expected


@pytest.mark.parametrize("lower_case", [True, False])
def test_offsets_of_hostile_words(lower_case):
    """Oracle: (a) turns the span of a word, cut out of the original, into that word."""
    tokenizer = WordPieceTokenizer(vocabulary("a", "b", "##b"), lower_case)
    lines = [line.encode() for line in hostile_lines(150, seed=3)]
    words = tokenizer.words(lines).to_list()
    _, starts, limits = tokenizer.tokenize_with_offsets(lines)
    for line, *rows in zip(lines, words, starts.to_list(), limits.to_list(), strict=True):
        end = 0
        for word, start, limit in zip(*rows, strict=True):
            assert end <= start[0] < limit[-1]
            end = limit[-1]
            again = "".join(reference_words(line[start[0] : end], lower_case))
            # Whether a sigma is final depends on its context, which the span lacks.
            assert again.replace("ς", "σ") == word.decode().replace("ς", "σ"), line


def test_special_tokens_in_text():
    """Oracle: tokens and spans worked out by hand."""
    vocab = vocabulary("a", "[", "]", "mask", "cls", "##b")
    text = "a[MASK]b[CLS] [mask][[SEP]\x01[MA\0SK] \x05 [PAD][UNK]"
    tokenizer = WordPieceTokenizer(vocab, special_tokens_in_text=True)
    words = "a [MASK] [UNK] [CLS] [ mask ] [ [SEP] [ mask ] [PAD] [UNK]".split()
    assert spell(tokenizer, text) == [[word] for word in words]
    original = "a [MASK] b [CLS] [ mask ] [ [SEP] [ MA\0SK ] [PAD] [UNK]".split()
    assert spans(tokenizer, text) == original
    assert spell(WordPieceTokenizer(vocab), "[MASK]") == [["["], ["mask"], ["]"]]


def test_in_tf_data_and_created_inside_a_function():
    """Oracle: the ids by hand."""
    made = []

    @tf.function
    def function(text):
        made.append(WordPieceTokenizer(vocabulary("a", "##b")))
        return made[-1].tokenize(text)

    assert function(tf.constant(["ab a", ""])).to_list() == [[[5, 6], [5]], []]
    dataset = tf.data.Dataset.from_tensors(["ab a", ""]).map(made[-1].tokenize)
    assert next(iter(dataset)).to_list() == [[[5, 6], [5]], []]


def test_one_string_and_back():
    """Oracle: the ids of a batch of one; text by hand."""
    tokenizer = WordPieceTokenizer(vocabulary("my", "play", "##ing", "!"))
    text = "My playing !"
    words = tokenizer.tokenize(tf.constant(text))
    assert words.to_list() == tokenizer.tokenize([text]).to_list()[0]
    ids = tokenizer.tokenize_flat(text)
    assert ids.numpy().tolist() == tokenizer.tokenize_flat([text]).to_list()[0]
    for given in (ids, ids.numpy().tolist(), tuple(ids.numpy())):
        assert tokenizer.decode(given) == "my playing !"
    assert tokenizer.decode(words) == ["my", "playing", "!"]
    assert tokenizer.decode(tokenizer.tokenize_flat(["", text, "my"])) == ["", "my playing !", "my"]
    for index in (-1, 9):
        with pytest.raises(ValueError, match=f"^{index} is not an id of the 9 tokens$"):
            tokenizer.decode([index])
    assert tokenizer.decode([]) == ""
    padded = tf.pad(ids[tf.newaxis], [[0, 1], [0, 2]], constant_values=tokenizer.vocab.pad_id)
    assert tokenizer.decode(padded) == ["my playing !", ""]


def test_what_people_type():
    """Oracles: the tokens by hand; transformers' names of the same ids."""
    vocab = Vocabulary((*SPECIAL_TOKENS, "replay", "##ing", "the", "song"))
    tokenizer = WordPieceTokenizer(vocab)
    assert tokenizer.tokenize("Replaying the song") == ["replay", "##ing", "the", "song"]
    assert tokenizer.tokenize("") == [] and tokenizer.tokenize("x") == ["[UNK]"]
    assert tokenizer.encode("replaying the song") == [5, 6, 7, 8]
    assert tokenizer.decode(tokenizer.encode("replaying the song")) == "replaying the song"
    one = {"input_ids": [2, 5, 6, 3], "token_type_ids": [0] * 4, "attention_mask": [1] * 4}
    assert tokenizer("replaying") == one
    assert tokenizer(["song", "replaying"])["input_ids"] == [[2, 8, 3], one["input_ids"]]
    assert tokenizer(["song", "replaying"])["attention_mask"] == [[1] * 3, [1] * 4]
    assert tokenizer.tokenize(["song"]).to_list() == [[[8]]]
