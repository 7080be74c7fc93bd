"""The accuracy at whole phrases. Oracle: rows worked by hand."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.ablations.running import _within, choose_entities, entity_accuracy
from bert_tf.examples.documents import Lexicon
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.dynamic_masking import DynamicMasking
from tfrecords.reader import RecordSet
from tfrecords.vocabulary import Vocabulary

CLS, SEP, MASK, A, B, C = range(2, 8)
VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"))
# "a b" begins the first row and ends its segments; the second holds a single word and "c a b",
# of which data creation, which keeps to sentences, did not join "a b".
IDS = np.array([[CLS, A, B, C, SEP, A, B, SEP, 0, 0], [CLS, C, B, A, SEP, C, A, B, C, SEP]])
STARTS = np.array([[0, 1, 0, 1, 0, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 1, 1, 1, 1, 0]])


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon(["a b", "b c", "c"], WordPieceTokenizer(VOCAB))


@pytest.fixture
def batch() -> dict[str, np.ndarray]:
    return {
        "input_word_ids": IDS.astype(np.int32),
        "input_mask": (IDS > 0).astype(np.int32),
        "input_type_ids": np.zeros_like(IDS, np.int32),
        "word_starts": STARTS.astype(np.int32),
    }


def records(prob: float, predictions: int = 5) -> RecordSet:
    masking = DynamicMasking(MASK, CLS, SEP, len(VOCAB), masked_lm_prob=prob)
    return RecordSet(
        files=("unused",),
        max_seq_length=10,
        max_predictions_per_seq=predictions,
        vocab_size=8,
        masking=masking,
    )


def test_phrases_are_chosen_as_a_whole_within_the_budget(lexicon, batch):
    random = np.random.default_rng(0)
    first, second = choose_entities(batch, lexicon, records(0.5), random)
    assert (sorted(first), second) == ([(1, 3), (5, 7)], [])
    # Of 8 tokens, a quarter is one phrase and an eighth none; which one it is varies.
    chosen = [choose_entities(batch, lexicon, records(0.25), random)[0] for _ in range(20)]
    assert {tuple(spans) for spans in chosen} == {((1, 3),), ((5, 7),)}
    assert choose_entities(batch, lexicon, records(0.125), random) == [[], []]
    # 1.6 tokens are 2, and of 4 tokens, 3 may be predicted.
    for limits in (records(0.2), records(0.5, predictions=3)):
        assert len(choose_entities(batch, lexicon, limits, random)[0]) == 1
    assert _within(3, [(0, 4), (5, 7), (8, 10), (11, 12)]) == [(5, 7), (11, 12)]


def test_a_phrase_is_right_if_all_of_its_tokens_are(lexicon, batch):
    """The model finds both tokens of the first phrase, and of the second only the last one."""

    class Model:
        def __call__(self, inputs, training):
            assert not training, "no dropout"
            positions = inputs["masked_lm_positions"]
            answers = tf.gather([0, A, B, 0, 0, C, B, 0, 0, 0], positions)
            is_masked = tf.gather(inputs["input_word_ids"], positions, batch_dims=1) == MASK
            return {"mlm_logits": tf.one_hot(tf.where(is_masked, answers, 0), 8)}

    found = entity_accuracy(Model(), iter([batch]), lexicon, records(0.5))
    assert found == {"entity_accuracy": 0.5, "token_accuracy": 0.75, "entities": 2}
    batch["word_starts"][:] = 1
    assert entity_accuracy(Model(), iter([batch]), lexicon, records(0.5)) == {}
    # Every token counts the same, whatever the length of its phrase: 2 of 2, 1 of 2 and 1 of 3.
    batch["word_starts"] = STARTS * ~np.isin(np.arange(10), [6, 7])
    lexicon = Lexicon(["a b", "c a b"], WordPieceTokenizer(VOCAB))
    found = entity_accuracy(Model(), iter([batch]), lexicon, records(0.5))
    expected = {"entity_accuracy": 1 / 3, "token_accuracy": 4 / 7, "entities": 3}
    assert found == pytest.approx(expected)
