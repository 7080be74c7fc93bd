"""Schemes of tags, and the words of raw text."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.tagging import tags as schemes
from bert_tf.finetuning.tagging.module import split_words
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

_ENTITIES = [  # of the sentence a b c d e f g: PER a-c, LOC d, LOC e-f
    ("BIO", "B-PER I-PER I-PER B-LOC B-LOC I-LOC O"),
    ("IOB1", "I-PER I-PER I-PER I-LOC B-LOC I-LOC O"),
    ("IOBES", "B-PER I-PER E-PER S-LOC B-LOC E-LOC O"),
    ("BILOU", "B-PER I-PER L-PER U-LOC B-LOC L-LOC O"),
    ("BMES", "B-PER M-PER E-PER S-LOC B-LOC E-LOC O"),
    ("BMES", "B-PER M-PER E-PER W-LOC B-LOC E-LOC O"),
    ("IOE", "I-PER I-PER E-PER E-LOC I-LOC E-LOC O"),
    ("IOE", "I-PER I-PER I-PER E-LOC I-LOC I-LOC O"),
    ("BIO", "B_PER I_PER I_PER B_LOC B_LOC I_LOC O"),
    ("BMES", "PER-B PER-M PER-E LOC-S LOC-B LOC-E O"),
    ("IOB1", "i:PER i:PER i:PER i:LOC b:LOC i:LOC o"),
    ("BIO", "(PER* * *) (LOC) (LOC* *) *"),
    ("BMES", "B M E S B E O"),
]


@pytest.mark.parametrize(("scheme", "tags"), _ENTITIES)
def test_schemes_become_bio(scheme, tags):
    """Oracle: the same entities in all schemes and spellings, written down."""
    tags = schemes.from_brackets(tags.split()) if "*" in tags else tags.split()
    tags = [schemes.spellings({*tags}).get(tag, tag) for tag in tags]
    assert schemes.tag_entities(tags) and not schemes.odd_tags({*tags})
    assert schemes.scheme_of([["O"], tags]) == scheme
    expected = _ENTITIES[0][1].split()
    assert schemes.to_bio(tags) == ([tag[0] for tag in expected] if "B" in tags else expected)


def test_what_breaks_bio():
    """Oracle: I-X is only right after B-X or I-X. Such tags do not make another scheme."""
    tags = "I-X O I-X B-X I-Y I-Y O B I".split()
    assert schemes.breaks(tags) == [0, 2, 4] and schemes.breaks("W-X W-X M-X".split()) == [2]
    assert schemes.scheme_of([["B-X", "O", "I-X"]]) == "BIO"
    assert schemes.tag_entities(["O", "B", "I"])
    for others in ("DET O", "S O", "PER LOC O", "S_a E_b", "NN-B VB-I JJ", "B_X LOC O"):
        assert not schemes.tag_entities(others.split()) and not schemes.spellings({*others.split()})


def _conlleval(gold, predicted):
    """Counts correct, predicted and gold entities of each type, as conlleval.pl does."""
    counts = {}

    def chunks(tags):
        found, begin = set(), None
        for i, tag in enumerate([*tags, "O"]):
            if begin is not None and (tag[0] in "OB" or tag[2:] != tags[begin][2:]):
                found.add((begin, i, tags[begin][2:]))
                begin = None
            if tag != "O" and begin is None:
                begin = i
        return found

    for right, answer in zip(gold, predicted, strict=True):
        right, answer = chunks(right), chunks(answer)
        for index, entities in enumerate((right & answer, answer, right)):
            for entity in entities:
                counts.setdefault(entity[2], [0, 0, 0])[index] += 1
    return counts


def test_scores_are_those_of_conlleval():
    """Oracle: conlleval's rules, sentence by sentence, on random tags, many of which break BIO."""
    random = np.random.default_rng(0)
    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    lengths = random.integers(1, 12, 60)
    gold = [random.choice(names, n).tolist() for n in lengths]
    predicted = [[t if random.random() < 0.8 else random.choice(names) for t in s] for s in gold]
    counts = _conlleval(gold, predicted)
    correct, found, right = np.sum(list(counts.values()), axis=0)
    expected = {
        "precision": correct / found,
        "recall": correct / right,
        "f1": 2 * correct / (found + right),
    } | {f"f1_{name}": 2 * c / (f + r) for name, (c, f, r) in counts.items()}
    assert schemes.entity_scores(gold, predicted) == pytest.approx(expected)
    assert schemes.entity_scores([["O"]], [["O"]]) == {"precision": 0, "recall": 0, "f1": 0}


_CASES = {
    "the U.N. and Jean-Luc, at AT&T": "the|U.N|.|and|Jean-Luc|,|at|AT&T",
    "(Paris's) O’Brien ... 1996-08-30!": "(|Paris|'s|)|O|’Brien|.|.|.|1996-08-30|!",
    "a--b 中国人 naïve é-a\x01x": "a|-|-|b|中|国|人|naïve|é-a\x01x",
    "": "",
    " \x01": "",
}


@pytest.mark.parametrize("lower_case", [True, False])
def test_words_are_those_of_annotated_corpora(lower_case):
    """Oracle: the words, written down, in the text at their offsets; each has its first token."""
    letters = [*"abcdefghijklmnopqrstuvwxyz.-&'"]
    vocab = Vocabulary((*SPECIAL_TOKENS, *letters, *(f"##{x}" for x in letters)))
    texts = [text.encode() for text in _CASES]
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    words = split_words(tf.constant(texts), tokenizer)
    spans = zip(texts, words.starts.to_list(), words.limits.to_list(), strict=True)
    found = ["|".join(t[a:b].decode() for a, b in zip(*x, strict=True)) for t, *x in spans]
    assert found == list(_CASES.values())
    firsts = [
        tokenizer.tokenize_flat([text[a : a + 1]])[0, 0]
        for text, (a, *_) in zip(texts[:2], words.starts.to_list(), strict=False)
    ]
    assert tf.gather(words.ids.values, words.first[:2, :1].values).numpy().tolist() == firsts
    assert words.ids.row_splits.numpy().tolist()[-3:-1] == [words.ids.values.shape[0]] * 2
