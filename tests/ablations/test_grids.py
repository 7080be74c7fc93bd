"""The rows of the ablations, their flags, the estimate of their memory; whole phrases, by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.ablations import plan
from bert_tf.ablations.ablation_options import GRIDS, PAPER_SIZES, columns, parse_size, select_rows
from bert_tf.ablations.plan import count_parameters, training_memory
from bert_tf.ablations.running import choose_entities, entity_accuracy
from bert_tf.base import process
from bert_tf.config import BertConfig, preset_config
from bert_tf.examples.documents import Lexicon
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.dynamic_masking import DynamicMasking
from tfrecords.reader import RecordSet
from tfrecords.vocabulary import Vocabulary

# BERT (arXiv:1810.04805v2) tables 6, 5 (without "+ BiLSTM"), 7 (base, dev) and 8, as printed.
TABLE_6 = """
3 768 12 5.84 77.9 79.8 88.4
6 768 3 5.24 80.6 82.2 90.7
6 768 12 4.68 81.9 84.8 91.3
12 768 12 3.99 84.4 86.7 92.9
12 1024 16 3.54 85.7 86.9 93.3
24 1024 16 3.23 86.6 87.8 93.7
"""
TABLE_5 = """
84.4 88.4 86.7 92.7 88.5
83.9 84.9 86.5 92.6 87.9
82.1 84.3 77.5 92.1 77.8
"""
TABLE_7 = {
    "fine-tuned": 96.4,
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "weighted_sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "weighted_sum_all": 95.5,
}
TABLE_8 = """
80 10 10 84.2 95.4 94.9
100 0 0 84.3 94.9 94.0
80 0 20 84.1 95.2 94.6
80 20 0 84.4 95.2 94.7
0 20 80 83.7 94.8 94.6
0 0 100 83.6 94.9 94.6
"""


def numbers_of(row) -> list[int]:
    return [row.size.num_hidden_layers, row.size.hidden_size, row.size.num_attention_heads]


def test_rows_are_those_of_the_paper():
    """Oracle: the tables of the paper; small sizes keep its order of layers, width and heads."""

    def numbers(table: str) -> list[list[float]]:
        return [list(map(float, line.split())) for line in table.strip().splitlines()]

    sizes = [[*numbers_of(row), *row.published.values()] for row in PAPER_SIZES]
    assert sizes == numbers(TABLE_6)
    assert list(PAPER_SIZES[0].published) == ["LM perplexity", "MNLI-m", "MRPC", "SST-2"]
    assert [parse_size(row.name) for row in PAPER_SIZES] == [row.size for row in PAPER_SIZES]
    small = GRIDS["sizes"].rows
    assert [row.beside for row in small] == [row.name for row in PAPER_SIZES]
    for index in range(3):
        ours, theirs = ([numbers_of(row)[index] for row in x] for x in (small, PAPER_SIZES))
        np.testing.assert_array_equal(np.sign(np.diff(ours)), np.sign(np.diff(theirs)))
    tasks = [list(row.published.values()) for row in GRIDS["tasks"].rows]
    assert tasks == numbers(TABLE_5)
    names = ["MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD F1"]
    assert list(GRIDS["tasks"].rows[0].published) == names
    masking = [
        [*map(float, row.flags["replacements"].split(",")), *row.published.values()]
        for row in GRIDS["masking"].rows
    ]
    assert masking == numbers(TABLE_8)
    layers = {row.name: row.published.get("NER F1") for row in GRIDS["layers"].rows}
    assert layers == TABLE_7 | {"sum_last_four": None}
    assert columns("layers", "ner")[0].name == "NER F1"
    assert [row.is_decoder for row in GRIDS["tasks"].rows] == [False, False, True]
    assert [(row.run, row.percent) for row in GRIDS["steps"].rows] == [
        (run, percent) for run in ("mlm", "ltr") for percent in (20, 40, 60, 80, 100)
    ]


def test_rows_and_columns_are_measured_as_in_the_paper():
    """Oracles: section 5.1 and appendix C.2, headings and captions of the tables, ERNIE's masks."""
    decoder = {"masking": "left_to_right", "objective": "mlm"}
    flags = [row.flags for row in GRIDS["tasks"].rows]
    assert flags == [{}, {"objective": "mlm"}, decoder]
    assert [row.flags for row in GRIDS["steps"].rows[::5]] == [{}, decoder]
    masks = [row.flags["masking"] for row in GRIDS["entities"].rows]
    assert masks == ["wordpiece", "whole_word"]
    accuracies = [columns("tasks", name) for name in ("mnli", "qnli", "mrpc", "sst2")]
    assert {column.metric for (column,) in accuracies} == {"eval_accuracy"}
    tuned, frozen = columns("masking", "ner")
    assert (tuned.metric, tuned.folder) == (frozen.metric, "ner") == ("eval_f1", "ner")
    assert frozen.folder == "ner-features" and len(columns("tasks", "ner")) == 1
    assert columns("sizes", "cola")[0][:3] == ("cola", "cola", None)
    names = [[*GRIDS["masking"].rows[0].published], ["MNLI-m", tuned.name, frozen.name]]
    assert names[0] == names[1]
    config = BertConfig(30, 8, 4, 2)
    deep = {"learning_rate": 1e-3, "feature_based": "concat_last_four"}
    row, options = GRIDS["masking"].rows[0], SimpleNamespace(finetuning_learning_rate=5e-5)
    assert plan._row_flags(row, frozen, config, options) == deep
    config = dataclasses.replace(config, num_hidden_layers=3)
    assert plan._row_flags(row, frozen, config, options) == deep | {"feature_based": "last"}
    labels = {row.name: row for row in GRIDS["labels"].rows}
    runs = ("bilstm", "scratch", "pre-trained")
    assert [*labels] == [f"{run}-{count}" for run in runs for count in (100, 1000, 10000)]
    for name, row in labels.items():
        epochs = labels[f"bilstm-{row.labels}"].finetuning["num_train_epochs"]
        flags = {"num_train_examples": row.labels, "num_train_epochs": epochs}
        assert name == f"{row.run}-{row.labels}" and row.finetuning.items() >= flags.items()
    rates = {row.name: [*row.flags.values()] for row in GRIDS["rates"].rows}
    assert rates == {str(share): [share / 100, 0.15] for share in (5, 15, 30, 50, 80)}


def test_rows_are_chosen_by_name():
    """Oracle: the rows, worked by hand."""
    assert select_rows("sizes", "paper") == PAPER_SIZES
    base, other = select_rows("sizes", "L-12_H-768_A-12, L-5_H-60_A-3")
    assert base.published["MRPC"] == 86.7 and not base.beside
    assert (numbers_of(other), other.published) == ([5, 60, 3], {})
    steps = [row.name for row in select_rows("steps", "ltr,mlm-40,ltr-20")]
    assert steps == "ltr-20 ltr-40 ltr-60 ltr-80 ltr-100 mlm-40".split()


@pytest.mark.parametrize(
    ("grid", "change", "message"),
    [
        ("sizes", {"rows": "base"}, "base is not a size: write .* as L-2_H-128_A-2"),
        ("tasks", {"rows": "gpt"}, "--rows=gpt: the rows of tasks are bert, no-nsp, ltr"),
        ("sizes", {"preset": "tiny"}, "--preset does not suit --grid=sizes: omit it"),
        ("masking", {"replacements": "100,0,0"}, "--replacements does not suit --grid=masking"),
        ("tasks", {"objective": "mlm"}, "--objective does not suit --grid=tasks"),
        ("sizes", {"replacements": "80,15,5"}, "--replacements=80,15,5: give three multiples"),
        ("steps", {"num_train_steps": 12}, "--grid=steps needs a multiple of 5"),
        ("entities", {"lexicon_file": None}, "--grid=entities needs --lexicon_file"),
        ("rates", {"masked_lm_prob": 0.2}, "--masked_lm_prob does not suit --grid=rates"),
        (
            "rates",
            {"init_checkpoint": "x"},
            "--init_checkpoint has no effect without --grid=layers",
        ),
        ("rates", {"input_file": None}, "--grid=rates needs --input_file"),
        ("layers", {"init_checkpoint": "x"}, "--input_file does not suit --grid=layers"),
        ("layers", {"input_file": None}, "--grid=layers needs --init_checkpoint"),
        ("labels", {"init_checkpoint": "x"}, "--input_file does not suit --grid=labels"),
        ("labels", {"input_file": None}, "--grid=labels needs --init_checkpoint"),
        *(
            (
                "labels",
                {"input_file": None, "init_checkpoint": "x", flag: "y"},
                f"--init_checkpoint and --{flag} exclude each other",
            )
            for flag in ("preset", "vocab_file")
        ),
        ("sizes", {"bert_config_file": "x"}, "--bert_config_file does not suit --grid=sizes"),
    ],
)
def test_impossible_flags_are_named(make_options, grid, change, message):
    """Oracle: the message names the flag."""
    with pytest.raises(ValueError, match=message):
        make_options(grid, **change)


@pytest.mark.parametrize(
    "changes",
    [{}, {"embedding_size": 4, "num_hidden_groups": 1}, {"pruned_heads": {1: [0]}}],
    ids=["bert", "albert", "pruned"],
)
def test_parameters_are_counted(changes):
    """Oracle: the model that Keras builds."""
    config = dataclasses.replace(BertConfig(30, 8, 3, 2, 32, max_position_embeddings=9), **changes)
    assert count_parameters(config) == BertPretrainer(config).count_params()


def test_memory_of_a_step(tmp_path, monkeypatch):
    """Oracles: arithmetic for base by hand; the TPU compiler's 1.32 GB of weights and moments."""
    base = preset_config("base")
    assert 12 * count_parameters(base) == pytest.approx(1.32e9, rel=0.01)
    layer = 32 * 128 * (17 * 768 + 2 * 12 * 128)
    logits = 2 * 32 * 20 * 30522
    expected = 10**9 + 16 * count_parameters(base) + 4 * (12 * layer + logits)
    assert training_memory(base, 32, 128, 20) == expected
    # 63 sequences in two parts.
    flags = SimpleNamespace(train_batch_size=63, gradient_accumulation_steps=2)
    limits = SimpleNamespace(max_seq_length=128, max_predictions_per_seq=20)
    values = dict(output_dir="x", do_train=True)
    runs = {
        "mrpc": FineTuningOptions(task="mrpc", **values),
        "squad": FineTuningOptions(task="squad", train_batch_size=12, **values),
        "swag": FineTuningOptions(task="swag", max_seq_length=64, **values),
        "ner": FineTuningOptions(task="ner", feature_based="last", **values),
    }
    row = SimpleNamespace(config=base, pretraining=flags, records=limits, finetuning=runs)
    # Four endings per example of swag, squad's own length, and a frozen encoder for ner.
    rows = [(32, 128), (12, 384), (4 * 32, 64)]
    fine_tuned = [training_memory(base, *sizes, 0) for sizes in rows]
    assert [needed for needed, _ in plan._needs(row)] == [expected, *fine_tuned]
    found = process.machine_memory()
    assert 1e8 < found < 1e14
    whole = range(found, 10**14)
    monkeypatch.setattr(process, "_CGROUP", tmp_path / "memory.max")
    for limit, expected in (("1000\n", {1000}), (f"{10**20}\n", whole), ("max\n", whole)):
        (tmp_path / "memory.max").write_text(limit)
        assert process.machine_memory() in expected


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
    # Of 10 tokens, a fifth has no room for three, whether they come first or not.
    batch["word_starts"] = STARTS * ~np.isin(np.arange(10), [3, 6, 7])
    longer = Lexicon(["b a", "c a b"], WordPieceTokenizer(VOCAB))
    chosen = [choose_entities(batch, longer, records(0.2), random)[1] for _ in range(20)]
    assert chosen == [[(2, 4)]] * 20
    assert sorted(choose_entities(batch, longer, records(0.5), random)[1]) == [(2, 4), (5, 8)]


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
