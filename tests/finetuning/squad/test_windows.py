"""Windows: their numbers, places and targets."""

import lzma

import numpy as np

from bert_tf.finetuning.squad.contexts import answer_tokens, make_features
from bert_tf.finetuning.squad.questions import Question, SquadExamples, read_squad_file
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import load_vocab


def _examples(context: str, question: str, span: tuple[int, int] | None) -> SquadExamples:
    rows = [Question("1", question, 0, ("x",) if span else (), span)]
    return SquadExamples([context.encode()], rows, True)


def test_worked_example(tokenizer):
    """Oracle: run_squad.py's sliding window by hand: 9 tokens, room for 5, stride 3."""
    examples = _examples("a b c d e f g h i", "p o n", (8, 11))  # "e f"
    features = make_features(examples, tokenizer, 10, 2, 3)
    ids = [[tokenizer.vocab.tokens[i] for i in row] for row in features.ids.to_list()]
    assert [" ".join(row) for row in ids] == [
        "[CLS] p o [SEP] a b c d e [SEP]",
        "[CLS] p o [SEP] d e f g h [SEP]",
        "[CLS] p o [SEP] g h i [SEP]",
    ]
    assert features.types.to_list() == [[0] * 4 + [1] * 6] * 2 + [[0] * 4 + [1] * 4]
    assert features.targets["start"].tolist() == [0, 5, 0]
    assert features.targets["end"].tolist() == [0, 6, 0]
    assert features.describe() == (
        "1 question on 1 context in 3 windows of up to 10 tokens, 1 question truncated to 2 tokens"
    )


def test_a_stride_longer_than_a_window_skips_no_token(tokenizer):
    """Oracle: the tokens themselves; run_squad.py moves by at most the length of a window."""
    features = make_features(_examples("a b c d e f g", "p", None), tokenizer, 6, 2, 100)
    tokens = np.concatenate([row[3:-1] for row in features.ids.to_list()])
    assert [tokenizer.vocab.tokens[i] for i in tokens] == [*"abcdefg"]


def test_contexts_without_tokens_have_an_empty_window(tokenizer):
    """Such contexts, and questions without tokens, have no windows in run_squad.py."""
    features = make_features(_examples("\u200b", "", None), tokenizer, 10, 2, 3)
    cls_id, sep_id = tokenizer.vocab.cls_id, tokenizer.vocab.sep_id
    assert features.ids.to_list() == [[cls_id, sep_id, sep_id]]


def _original_starts(length: int, room: int, stride: int) -> list[int]:
    """run_squad.py's `doc_spans`."""
    starts, start = [], 0
    while start < length:
        starts.append(start)
        part = min(length - start, room)
        if start + part == length:
            break
        start += min(part, stride)
    return starts


def _query_lengths(features) -> np.ndarray:
    _, first_windows = np.unique(features.windows.question, return_index=True)
    return features.windows.first[first_windows] - 2


def test_real_questions(shared_data, tmp_path):
    """Oracles: run_squad.py's loop over the starts of windows; the texts of the answers.

    32 of the first answers begin or end inside a word piece, such as "gold" in "golden".
    """
    vocab = load_vocab(str(shared_data / "vocab" / "bert-base-uncased" / "vocab.txt"))
    path = tmp_path / "dev.json"
    path.write_bytes(lzma.open(shared_data / "squad" / "dev-v1.1.json.xz").read())
    examples = read_squad_file(str(path), "train", False)
    features = make_features(examples, WordPieceTokenizer(vocab), 384, 64, 128)
    lengths = np.diff(features.starts.row_splits.numpy())
    expected = []
    for question, query in zip(examples.questions, _query_lengths(features), strict=True):
        expected += _original_starts(int(lengths[question.context]), 384 - int(query) - 3, 128)
    assert features.windows.offset.tolist() == expected
    first, last = answer_tokens(examples, features.starts, features.limits)
    starts, limits, differ = features.starts.to_list(), features.limits.to_list(), 0
    for question, start, end in zip(examples.questions, first, last, strict=True):
        index = question.context
        text = examples.contexts[index][starts[index][start] : limits[index][end]].decode()
        differ += text != question.answers[0].strip()
    assert differ == 32
    assert len({*features.windows.question[features.targets["start"] > 0]}) == len(examples)
