"""Added tokens against Hugging Face's tokenizers, whose way of finding them is the oracle."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import AddedToken as TheirToken
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_tf.text.bert_preprocessor import BertPreprocessor
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, AddedToken, Vocabulary

WORDS = "kub new york ss é 中 国".split()
PIECES = "##a ##b ##e ##u ##k ##ub ##i ##1".split()
LINES = (*SPECIAL_TOKENS, *WORDS, *PIECES, *"abexyzkuABKi1-._[]")
PARTS = (
    *("a", "b", "B", "ab", "[E1]", "[E10]", "É", "e", "é", "e\u0301", "中", "国", "kub", "KUB"),
    *("New York", "new\tyork", "New  York", " ", "  ", "\n", "_", "1", "-", ".", "ß", "İ", "##a"),
    *("\u00a0", "\u200b", "\u3000", "[MASK]", "ء", "ก็", "𝒜", "\0"),
)


def draw(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(PARTS, k=rng.randint(1, most)))


def tokenizers(rng: random.Random) -> tuple[WordPieceTokenizer, Tokenizer]:
    """A tokenizer with random settings and random added tokens, and theirs."""
    lower, strips = rng.random() < 0.6, rng.choice([None, True, False])
    theirs = Tokenizer(
        models.WordPiece({line: index for index, line in enumerate(LINES)}, unk_token="[UNK]")
    )
    theirs.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strips)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ours = {}
    for _ in range(rng.randint(1, 6)):
        content = draw(rng, 2)
        found = theirs.normalizer.normalize_str(content)
        # Of two that are the same in normalized text, theirs finds any.
        if "\0" in content or found in ours:
            continue
        names = ("single_word", "normalized", "special")
        flags = {name: rng.random() < 0.5 for name in names}
        flags["normalized"] &= content.strip() == content
        theirs.add_tokens([TheirToken(content, **flags)])
        ours[found] = AddedToken(theirs.token_to_id(content), content, **flags)
    added = tuple(sorted(ours.values(), key=lambda token: token.id))
    return WordPieceTokenizer(Vocabulary(LINES, added, strips), lower), theirs


@pytest.mark.parametrize("seed", range(12))
def test_random_tokens_in_random_text(seed):
    """Ids, where each token starts, and the same ids from the faster way."""
    rng = random.Random(seed)
    tokenizer, theirs = tokenizers(rng)
    texts = [*(draw(rng, 8) for _ in range(200)), ""]
    ids, starts, _ = (x.merge_dims(1, 2).to_list() for x in tokenizer.tokenize_with_offsets(texts))
    flat, splits = tokenizer.tokenize_lines([text.encode() for text in texts])
    fast = [flat[a:b].tolist() for a, b in itertools.pairwise(splits)]
    for text, got, begins, again in zip(texts, ids, starts, fast, strict=True):
        want = theirs.encode(text, add_special_tokens=False)
        assert got == again == want.ids, (text, tokenizer.vocab.added)
        at = np.cumsum([0, *(len(character.encode()) for character in text)])
        assert begins == [at[start] for start, _ in want.offsets], text


VOCAB = Vocabulary(
    (*SPECIAL_TOKENS, "a", "##b", "e", "1", "[", "]"),
    (
        AddedToken(11, "[E1]", normalized=False, special=True),
        AddedToken(12, "New York"),
        AddedToken(13, "kube", single_word=True),
    ),
)
TEXT = ["[E1]ab new\tYORK", "kube kubes [e1]", ""]
IDS = [[11, 5, 6, 12], [13, 1, 9, 1, 10], []]


def test_words():
    """Oracle: worked out by hand; what was found in text as written stays so."""
    words = WordPieceTokenizer(VOCAB).words(TEXT).to_list()
    assert words[0] == [b"[E1]", b"ab", b"new york"]
    assert words[1] == [b"kube", b"kubes", b"[", b"e1", b"]"]


def test_preprocessor_and_saved_model(tmp_path):
    """Oracle: ids worked out by hand, in the layer, made from its configuration, and saved."""
    layer = BertPreprocessor(VOCAB, True, 8)
    again = BertPreprocessor.from_config(layer.get_config())
    assert again.tokenizer == layer.tokenizer
    module = tf.Module()
    module.tokenizer = layer.tokenizer
    module.call = tf.function(layer.tokenizer.tokenize_flat, [tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    for tokenize in (
        layer.tokenizer.tokenize_flat,
        again.tokenizer.tokenize_flat,
        tf.saved_model.load(str(tmp_path / "saved")).call,
    ):
        assert tokenize(tf.constant(TEXT)).to_list() == IDS
    rows = layer(tf.constant(TEXT))["input_word_ids"].numpy().tolist()
    assert rows[0] == [2, *IDS[0], 3, 0, 0]
