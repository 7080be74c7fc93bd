"""bert_tf.load_predictor, against what the command prints, and what notebooks show."""

import copy
import html.parser
import json
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.special import softmax
from support import one_line

import bert_tf
from bert_tf import extract_features
from bert_tf.config import Head
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.inference.presenting import Prediction, Predictions, drawing_of
from bert_tf.predict import Options, run
from bert_tf.text.tokenizer import WordPieceTokenizer
from export import classifier

NAN, NO = float("nan"), ("no", "yes")
LOOP = []
LOOP.append(LOOP)
PAIRS = [("the cat sat", "on"), ("a", "b"), ("the mat", "c " * 30), ("é", "d")]
ROWS = [{"text": a, "text_b": b, "id": number} for number, (a, b) in enumerate(PAIRS)]


@pytest.fixture(scope="module")
def folder(fine_tuned) -> str:
    """A run that classifies pairs."""
    columns = dict(text_column="first", text_b_column="Second")
    return fine_tuned("csv", Head("classifier", NO), label_type="class", **columns)[0]


@pytest.fixture(scope="module")
def predict(folder):
    return bert_tf.load_predictor(folder, batch_size=2)


@pytest.fixture(scope="module")
def classify(fine_tuned):
    return bert_tf.load_predictor(fine_tuned("sst2", Head("classifier", NO))[0])


def printed(capsys, *texts: str, **flags) -> list[dict]:
    """Returns what the command prints, as JSON."""
    capsys.readouterr()
    run(Options(texts=texts, json=True, **flags))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_pairs_in_every_form_are_those_of_the_command(folder, predict, capsys):
    """Oracle: what the command prints. Alone, a pair is computed with other rounding errors."""
    texts = [f"{a} ||| {b}" for a, b in PAIRS]
    expected = printed(capsys, *texts, checkpoint=folder, batch_size=2)
    arrays = (np.array(texts), np.array(PAIRS), pd.Series(texts), pd.Series(PAIRS))
    objects = [{"text": a, "text_b": b} for a, b in PAIRS]
    for given in (texts, PAIRS, iter(PAIRS), [*map(list, PAIRS)], (*PAIRS,), objects, *arrays):
        assert predict(given) == expected
    assert predict(ROWS) == [{"id": n} | answer for n, answer in enumerate(expected)]
    assert json.loads(json.dumps(predict(PAIRS))) == expected
    one = predict(PAIRS[0])
    assert one == predict(texts[0]) == predict(objects[0]) == predict(PAIRS[:1])[0]
    assert type(one) is Prediction and one["label"] == expected[0]["label"]
    assert predict([]) == [] == predict(np.array([], str)) and type(predict([])) is Predictions
    assert repr(predict) == f"Predictor({folder!r}: text, text_b -> no, yes)"


@pytest.mark.slow
def test_texts_in_another_language_are_noticed_once(
    fine_tuned, pretrained, classify, tmp_path, capsys
):
    """Oracle: the vocabulary, which has the words of one text and none of the other."""
    tuned, tables = classify.path, {}
    for name, text in (("known", "the cat sat"), ("other", "나는 오늘 학교에 갔다")):
        tables[name] = tmp_path / f"{name}.csv"
        pd.DataFrame({"text": [text] * 3}).to_csv(tables[name], index=False)

    def vectors(file):
        output = str(tmp_path / f"{file.stem}.npz")
        extract_features.run(
            extract_features.Options(
                checkpoint=pretrained[0], input_file=str(file), output_file=output
            )
        )

    def of_a_file(file, **flags):
        run(Options(checkpoint=tuned, input_file=str(file), **flags))

    embed = bert_tf.load_embedder(pretrained[0]).encode
    fill = bert_tf.load_mask_filler(pretrained[0])
    ways = [
        lambda file: [classify(pd.read_csv(file)), classify(pd.read_csv(file))],
        of_a_file,
        lambda file: of_a_file(file, output_file=f"{file}.jsonl"),
        vectors,
        lambda file: embed(pd.read_csv(file)["text"]),
        lambda file: fill([f"[MASK] {text}" for text in pd.read_csv(file)["text"]]),
    ]
    for way in ways:
        noticed = []
        for file in (tables["known"], tables["other"]):
            for check in (classify._engine._check, embed.__self__._engine._check, fill._check):
                check._is_done = False
            capsys.readouterr()
            way(file)
            noticed.append("".join(capsys.readouterr()).count("WARNING: the vocabulary hardly"))
        assert noticed == [0, 1]


@pytest.mark.slow
def test_threads_share_a_predictor(folder, capsys):
    """Oracles: the answers to a single call; one row of four is truncated, by hand."""
    predict = bert_tf.load_predictor(folder, batch_size=2)
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(predict, [ROWS] * 24)]
        counts = [truncated for _, truncated in pool.map(predict.predict, [ROWS] * 24)]
    assert answers == [predict(ROWS)] * 24 and counts == [1] * 24
    shown = capsys.readouterr().out
    assert (
        shown == "WARNING: truncated 1 example: max_seq_length sets how many tokens the model "
        "reads.\n"
    )


@pytest.mark.slow
def test_questions_and_choices(fine_tuned, tmp_path, capsys):
    """Oracles: what the command prints for the same JSON lines; a dict in place of a tuple."""
    row = {"id": "x", "question": "on", "context": "the cat sat\non the mat"}
    checkpoint, _ = fine_tuned("squad", Head("span"))
    predict = bert_tf.load_predictor(checkpoint)
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    expected = printed(capsys, checkpoint=checkpoint, input_file=f"{tmp_path}/a.jsonl")
    assert predict([row]) == expected == [{"id": "x"} | predict(("on", row["context"]))]
    assert repr(predict).endswith(": question, context -> answer)")
    choose = bert_tf.load_predictor(fine_tuned("swag", Head("multiple_choice"))[0])
    found = choose({"text": "the cat", "choices": ["sat", "a b c"]})
    assert found == choose(("the cat", ["sat", "a b c"])) and found["index"] in (0, 1)
    with pytest.raises(ValueError, match="the input, row 1: 'choices' holds no choice"):
        choose(("the cat", []))


def test_an_example_needs_no_id_beside_others_with_one(classify, capsys):
    """Oracle: the rows; only a column has places that are empty."""
    given = ["the cat", {"id": 7, "text": "sat"}]
    assert [row.get("id") for row in classify(given)] == [None, 7]
    assert "without 'id'" not in capsys.readouterr().out
    classify(pd.DataFrame({"id": ["", "7"], "text": ["the cat", "sat"]}))
    assert "1 row without 'id'" in capsys.readouterr().out


def test_a_data_frame_comes_back_with_the_answers(predict):
    """Oracles: the answers to the same rows; the columns of the run, or of the arguments."""
    answers = predict(PAIRS)
    frame = pd.DataFrame(PAIRS, columns=["FIRST", "second"], index=[*"wxyz"])
    frame["label"], before = 1, frame.copy()
    before["label"] = 1
    found = predict(frame)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(found[[*frame.columns]], frame)
    assert [*found.columns[3:]] == ["p(no)", "p(yes)", "predicted_label"]
    assert [*found["predicted_label"]] == [answer["label"] for answer in answers]
    assert [*found["p(yes)"]] == [answer["probabilities"]["yes"] for answer in answers]
    names = dict(zip(frame.columns, ("A", "B", "id"), strict=True))
    other = predict(frame.rename(columns=names), text_column="a", text_b_column="B")
    assert [*other.columns] == ["A", "B", "id", "p(no)", "p(yes)", "label"]
    np.testing.assert_array_equal(other["p(no)"], found["p(no)"])
    pd.testing.assert_frame_equal(predict(frame[:0]), found[:0], check_index_type=False)
    # Another model's answers, or a column of the user's, are not replaced.
    both = predict(other, text_column="A", text_b_column="B")
    names = ["predicted_p(no)", "predicted_p(yes)", "predicted_label"]
    assert [*both.columns] == [*other.columns, *names]
    for full in (found, frame.assign(predicted_label="mine"), frame[:0].assign(predicted_label=1)):
        with one_line("has the columns 'label' and 'predicted_label': rename the second one"):
            predict(full)


def test_the_effect_of_a_word_is_that_of_leaving_it_out(predict):
    """Oracle: the answers to the pairs without each of the words, written by hand."""
    found = predict.explain(("the cat  sat.", "é 中文"))
    without = {
        ("text", "the", 0, 3): (" cat  sat.", "é 中文"),
        ("text", "cat", 4, 7): ("the   sat.", "é 中文"),
        ("text", "sat.", 9, 13): ("the cat  ", "é 中文"),
        ("text_b", "é", 0, 2): ("the cat  sat.", " 中文"),
        ("text_b", "中", 3, 6): ("the cat  sat.", "é 文"),
        ("text_b", "文", 6, 9): ("the cat  sat.", "é 中"),
    }
    answer = predict(("the cat  sat.", "é 中文"))
    assert found == answer | {"explained": answer["label"], "effects": found["effects"]}
    shares = [predict(pair)["probabilities"][answer["label"]] for pair in without.values()]
    effects = [answer["probabilities"][answer["label"]] - share for share in shares]
    assert max(map(abs, effects)) > 0.01
    assert [tuple(x.values())[:4] for x in found["effects"]] == [*without]
    assert [x["effect"] for x in found["effects"]] == pytest.approx(effects, abs=1e-5)


@pytest.mark.slow
def test_where_an_answer_starts_and_ends(fine_tuned, vocab):
    """Oracle: the model on windows by hand, and the original's rule for tokens of several."""
    folder, _ = fine_tuned("squad", Head("span"))
    context = "the cats sat on é mat. the cat a b c d e f g h"
    predict = bert_tf.load_predictor(folder)
    found, tokenizer = predict.explain(("on", context)), WordPieceTokenizer(vocab, False)
    assert found | {"tokens": 0} == predict(("on", context)) | {"tokens": 0}
    checkpoint, task, length = open_fine_tuned(folder, None)
    model = load_task_model(task, checkpoint)
    (query,), (ids,) = (tokenizer.tokenize_flat([x]).to_list() for x in ("on", context))
    best, room = {}, length - 3 - len(query)
    for begin in range(0, len(ids) - room + 4, 4):  # the stride of the run
        part = ids[begin : begin + room]
        row = np.array([[vocab.cls_id, *query, vocab.sep_id, *part, vocab.sep_id]])
        types = np.arange(row.size)[None] >= len(query) + 2
        inputs = {"input_word_ids": row, "input_mask": row > 0, "input_type_ids": types}
        inputs = {name: values.astype("int32") for name, values in inputs.items()}
        logits = model(inputs, training=False)[0].numpy()[len(query) + 2 : -1]
        for i, own in enumerate(logits):
            score = min(i, len(part) - 1 - i) + 0.01 * len(part)
            earlier = best.get(begin + i, (-1, ()))
            best[begin + i] = max(earlier, (score, own), key=lambda pair: pair[0])
    expected = softmax([best[i][1] for i in range(len(ids))], axis=0)
    shares = [[token["starts"], token["ends"]] for token in found["tokens"]]
    assert len(ids) > room and max(map(max, shares)) > 0.1
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    spans = [(x["start"], x["end"], x["token"]) for x in found["tokens"]]
    assert all(context.encode()[a:b].decode() == token for a, b, token in spans)
    assert spans[1:3] == [(4, 7, "cat"), (7, 8, "s")]
    drawn = "".join(part["text"] for part in drawing_of(found)["texts"][1])
    assert drawn == context and predict.explain(("on", ""))["tokens"] == []


@pytest.mark.slow
def test_explanations_need_a_classifier_and_one_text(classify, fine_tuned, tmp_path):
    """Oracle: the messages; of several classes at once, the likeliest is explained."""
    with pytest.raises(ValueError, match="takes one text or pair: call it for each"):
        classify.explain(["a", "b"])
    folder = fine_tuned("ner", Head("tagger", ("O", "B-X", "I-X")))[0]
    bert_tf.export_classifier(folder, tmp_path / "tagger")
    for tagger in (bert_tf.load_predictor(folder), bert_tf.load_predictor(tmp_path / "tagger")):
        with pytest.raises(ValueError, match="only classifiers are explained"):
            tagger.explain("the cat")
    head = Head("classifier", ("a", "b", "c"), multi_label=True)
    several = bert_tf.load_predictor(fine_tuned("csv", head, label_type="classes")[0])
    found = several.explain("the cat")
    assert found["explained"] == max(found["probabilities"], key=found["probabilities"].get)


def test_notebooks_and_pages_color_words_by_their_effects():
    """Oracle: parts and colors by hand: blue for, orange against, pale if small."""
    effects = [
        {"input": "text", "word": "é", "start": 0, "end": 2, "effect": 0.8},
        {"input": "text", "word": "b", "start": 3, "end": 4, "effect": 0.001},
        {"input": "text_b", "word": "c", "start": 0, "end": 1, "effect": -0.3},
    ]
    row = {"text": "é b", "text_b": "c", "probabilities": {"no": 0.9, "yes": 0.1}, "label": "no"}
    drawing = drawing_of(row | {"explained": "no", "effects": effects})
    assert [[tuple(part.values()) for part in text] for text in drawing["texts"]] == [
        [("é", "+80.0%", "#56b4e9"), (" b", "", "")],
        [("c", "-30.0%", "#f2cf80")],
    ]
    assert drawing["note"] == "Blue words speak for no, orange ones against it."


def test_loading_draws_no_weights_that_it_replaces(folder, predict, monkeypatch):
    """Oracle: the same model, loaded before drawing became an error."""
    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", None)
    assert bert_tf.load_predictor(folder)(PAIRS[:2]) == predict(PAIRS[:2])


@pytest.mark.slow
def test_a_process_that_only_predicts_says_so_to_tensorflow(folder, predict):
    """Oracle: the predictor of this process, which may train; the environment of the other."""
    code = """if True:
        import atexit, os
        from bert_tf.__main__ import main
        atexit.register(lambda: print(os.environ["TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"]))
        main()
    """
    texts = [" ||| ".join(pair) for pair in PAIRS]
    command = [sys.executable, "-c", code, "predict", f"--checkpoint={folder}", "--json"]
    done = subprocess.run([*command, *texts], capture_output=True, text=True, check=True)
    *lines, frozen = done.stdout.splitlines()
    assert frozen == "1"
    for line, expected in zip(lines, predict(texts), strict=True):
        assert json.loads(line) == expected | {
            "probabilities": pytest.approx(expected["probabilities"], abs=2e-6)
        }


@pytest.mark.parametrize(
    ("names", "several", "dtype"),
    [(("0", "1"), False, int), (("false", "true"), False, bool), (("3", "4"), True, object)],
)
@pytest.mark.slow
def test_labels_have_the_types_of_the_training_data(fine_tuned, capsys, names, several, dtype):
    """Oracles: the names that the exported module gives; what the command prints."""
    head = Head("classifier", names, several, json_labels=True, listed_labels=several)
    folder, module = fine_tuned("csv", head, label_type="classes" if several else "class")
    predict, texts = bert_tf.load_predictor(folder), ["the cat", "on", "mat é a b"]
    key = "labels" if several else "label"
    served = [x.decode() for x in module.serving(tf.constant(texts))[key].numpy()]
    expected = [json.loads(f"[{name}]" if several else name) for name in served]
    answers = predict(texts)
    assert [answer[key] for answer in answers] == expected and predict.labels == names
    assert {type(answer[key]) for answer in answers} == {list if several else dtype}
    assert printed(capsys, *texts, checkpoint=folder) == answers
    run(Options(checkpoint=folder, texts=(texts[0],)))
    shown = capsys.readouterr().out
    assert several or shown.startswith(f"{served[0]} ")
    frame = pd.DataFrame({"text": texts, key: expected})
    found = predict(frame)
    assert (found[f"predicted_{key}"] == frame[key]).all()
    assert found[f"predicted_{key}"].dtype == predict(frame[:0])[f"predicted_{key}"].dtype == dtype


@pytest.mark.slow
def test_a_tagger_takes_lists_of_words(fine_tuned, tmp_path, capsys):
    """Oracles: the module on these words; by hand, the words, where they are, and the errors."""
    head = Head("tagger", ("0", "7"), json_labels=True)
    folder, module = fine_tuned("csv", head, label_type="tags")
    predict, rows = bert_tf.load_predictor(folder), [["the", "cat-sat."], ["é b", "on", "mat"]]
    answers = predict(rows)
    for row, answer in zip(rows, answers, strict=True):
        served = module.serve_words(tf.constant([row]))
        found = [{**word} for word in answer["words"]]
        assert [word["word"] for word in found] == answer["text"] == row
        assert [word["tag"] for word in found] == [*map(int, served["tag"][0].numpy())]
        assert [word["end"] for word in found] == served["end"][0].numpy().tolist()
    assert {type(word["tag"]) for answer in answers for word in answer["words"]} == {int}
    frame = pd.DataFrame({"text": "no", "tokens": rows, "tags": [["0"] * 2, ["0"] * 3]})
    columns = frame.to_dict("records")
    for given in (columns, [{"tokens": row} for row in rows], pd.Series(rows)):
        assert predict(given) == answers
    assert [*predict(frame)["words"]] == [answer["words"] for answer in answers]
    assert predict({"tokens": rows[0]}) == predict(rows[:1])[0]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [*columns, {"tokens": "a b"}])))
    flags = dict(checkpoint=folder, input_file=f"{tmp_path}/a.jsonl")
    assert printed(capsys, **flags) == [*answers, predict("a b")] == predict([*rows, "a b"])
    run(Options(**flags))
    assert capsys.readouterr().out.splitlines()[0].split(" ")[0] == "[the"
    assert Shown(answers).text.startswith(("[the", "the"))
    # Cells of .csv files state lists, as in training; other texts in brackets are texts.
    cells = [*map(json.dumps, rows), str(tuple(rows[0])), "[the] cat", "(on)", "[]"]
    pd.DataFrame({"tokens": cells}).to_csv(tmp_path / "a.csv", index=False)
    expected = [*answers, answers[0], *predict(["[the] cat", "(on)"])]
    found = printed(capsys, checkpoint=folder, input_file=f"{tmp_path}/a.csv")
    assert found[:-1] == expected and found[-1]["text"] == "[]"
    assert predict(cells[:-1]) == expected
    for given, line in (
        ([rows[0], []], "the input, row 2: 'text' holds no word"),
        ([["a", 5.5]], "the input, row 1: 'text' is not a list of strings"),
        ([["a", ""]], "the input, row 1: word 2 of 'text' is empty"),
    ):
        with one_line(line):
            predict(given)


@pytest.mark.slow
def test_a_predictor_is_pickled_by_its_paths(folder, predict, tmp_path, monkeypatch):
    """Oracles: the answers of the first; those of the ensemble of its members."""
    for name in ("ft,1", "ft2"):
        shutil.copytree(folder, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    loaded = bert_tf.load_predictor("ft2", batch_size=np.int64(2))
    both = bert_tf.load_predictor(["ft,1", tmp_path / "ft2"], batch_size=2)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    expected = predict(PAIRS)
    for found in (loaded, pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        assert found(PAIRS) == expected
    shares = [[*x["probabilities"].values()] for x in pickle.loads(pickle.dumps(both))(PAIRS)]
    np.testing.assert_allclose(shares, [[*x["probabilities"].values()] for x in expected], 1e-4)
    with one_line(r"checkpoint is \('ft2', 5\): it must be a string"):
        bert_tf.load_predictor(["ft2", 5])


FORKED = """
import os, signal
import bert_tf

def fork(work):
    if not os.fork():
        signal.alarm(60)
        try:
            print(work()["label"], flush=True)
        except OSError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()

folder = {!r}
fork(lambda: bert_tf.load_predictor(folder)("a ||| b"))
predict = bert_tf.load_predictor(folder)
print(predict("a ||| b")["label"], flush=True)
fork(lambda: predict("a ||| b"))
fork(lambda: bert_tf.load_predictor(folder)("a ||| b"))
"""


@pytest.mark.slow
def test_a_process_that_was_forked_says_so(folder, predict):
    """Oracles: the label, also in a process that was forked before; one line, not a hang."""
    command = [sys.executable, "-c", FORKED.format(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    label, line = predict("a ||| b")["label"], "this process was forked after TensorFlow had start"
    first, second, *others = done.stdout.splitlines()
    assert (first, second) == (label, label) and len(others) == 2
    assert all(text.startswith(line) and "spawn" in text for text in others)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([PAIRS[0], None], "the input, row 2 is missing: the model needs text and text_b"),
        (pd.Series(["a ||| b", pd.NA], dtype="string"), "row 2 is missing: "),
        ([PAIRS[0], ("a", NAN)], "the input, row 2: 'text_b' is missing or null"),
        (
            [PAIRS[0], ("a", "b", "c")],
            r"row 2 is \('a', 'b', 'c'\): the model needs text and text_b$",
        ),
        (["a"], "row 1 is 'a': the model needs text and text_b: separate them with a tab or"),
        (["a", "b"], "row 1 is 'a': the model needs"),
        ([*ROWS, PAIRS[0], {"text": "a"}], "the input, row 6: 'text_b' is missing or null"),
        (pd.DataFrame({"text": ["a", NAN], "text_b": "b"}), "row 2: 'text' is missing or null"),
        (pd.DataFrame({"text": [1], "text_b": "b"}), "the input, row 1: 'text' is 1, not a string"),
        ({"text": "a"}, "^the input has no column 'Second', only 'text': name .* text_b_column$"),
        (3, "the input is 3: give a text, a dict, a list or a data frame"),
        ({"train": pd.DataFrame({"text": ["a"]})}, r"^the input holds several data sets: give one"),
        ([PAIRS[0], LOOP], "row 2 of the input holds itself, or too many lists in lists"),
    ],
)
def test_errors_name_the_row(predict, given, message):
    with pytest.raises(ValueError, match=message):
        predict(given)


def test_settings_are_checked_as_flags_are(folder, classify):
    """Oracle: the line, without the dashes of a flag."""
    for settings, line in (
        ({"max_seq_length": 4}, "^max_seq_length is 4: it must be"),
        ({"batch_size": "8"}, "^batch_size is '8': it must be an integer"),
        ({"batchsize": 8}, "^batchsize is not an argument of .*: did you mean batch_size"),
        ({"pairs": True}, "^pairs is only for classifiers of other programs"),
    ):
        with pytest.raises(ValueError, match=line):
            bert_tf.load_predictor(folder, **settings)
    with pytest.raises(ValueError, match="^text_b_column is only for models of pairs"):
        classify(["a"], text_b_column="x")
    with pytest.raises(ValueError, match="row 1 is .'a', 'b'.: the model needs text$"):
        classify([("a", "b")])
    assert classify(["a\ud800", b"a\xff"]) == [classify("a")] * 2


@pytest.mark.slow
def test_an_exported_classifier_gives_the_same_answers(folder, predict, tmp_path):
    """Oracles: those of the run; those that the command writes to a file."""
    exported = str(tmp_path / "classifier")
    classifier.export_classifier(folder, exported)
    loaded, expected = bert_tf.load_predictor(exported), predict(ROWS)
    for answer, other in zip(loaded(ROWS), expected, strict=True):
        assert answer["label"] == other["label"] and [*answer] == [*other]
        shares = [[*x["probabilities"].values()] for x in (answer, other)]
        np.testing.assert_allclose(*shares, atol=1e-5)
    file, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    run(Options(checkpoint=exported, input_file=str(file), output_file=str(output)))
    assert [*map(json.loads, output.read_text().splitlines())] == loaded(ROWS)
    with pytest.raises(ValueError, match="^max_seq_length has no effect, as .* states its own"):
        bert_tf.load_predictor(exported, max_seq_length=8)
    shutil.rmtree(f"{exported}/variables")
    with pytest.raises(OSError, match="variables"):
        bert_tf.load_predictor(exported)


class Shown(html.parser.HTMLParser):
    """The elements and the text of what a notebook shows."""

    def __init__(self, value):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(value._repr_html_())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes).get("style", "")))
        self.text += "[" if tag == "mark" else ""

    def handle_endtag(self, tag):
        self.text += "]" if tag == "mark" else ""

    def handle_data(self, data):
        self.text += data


HOSTILE = "<script>alert(1)</script>&amp;\"'"
TAGGED = {"text": f"é {HOSTILE} Bonn", "words": [], "entities": []}
TAGGED["entities"] = [{"type": "LOC", "start": 36, "end": 40, "probability": 0.9}]
ANSWERED = {"question": HOSTILE, "context": "é in Bonn.", "text": "Bonn", "score": 0.5}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (TAGGED, f"é {HOSTILE} [Bonn LOC]"),
        (ANSWERED | {"start": 6, "end": 10}, f"{HOSTILE}é in [Bonn 50.0%]."),
        (ANSWERED | {"text": "", "start": 0, "end": 0}, f"{HOSTILE}é in Bonn.(no answer) 50.0%"),
        ({"text": HOSTILE, "id": 7, "value": 3.5}, f"{HOSTILE}3.5"),
        ({"text": "a", "probabilities": {HOSTILE: 0.2, "x": 0.8}, "label": "x"}, None),
        ({"text": "a", "choices": [HOSTILE, "x"], "probabilities": [0.2, 0.8], "index": 1}, None),
    ],
)
def test_notebooks_show_answers_and_never_run_texts(row, text):
    """Oracle: Python's HTML parser; the texts and shares, by hand."""
    shown = Shown(Prediction(row))
    tags = [tag for tag, _ in shown.elements]
    assert {*tags} <= {"div", "mark", "small", "i", "table", "tr", "td", "bdi"}
    assert shown.text == (text or f"ax80.0%{HOSTILE}20.0%")
    bars = [style for _, style in shown.elements if style.startswith("width: ") and "#" in style]
    widths = [] if text else ["width: 80.0%", "width: 20.0%"]
    assert [style.partition(";")[0] for style in bars] == widths


@pytest.mark.slow
def test_long_lists_are_cut():
    """Oracle: the numbers that are left out."""
    row = {"text": "a" * 5000, "probabilities": {f"c{n}": 0.01 for n in range(30)}, "label": "c1"}
    text = Shown(Predictions([Prediction(row)] * 25)).text
    assert text.endswith("... and 5 more") and text.count("... and 20 more") == 20
    assert text.count("1.0%") == 200 and text.count("a") < 25_000
