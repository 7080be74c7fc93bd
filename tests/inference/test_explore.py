"""explore: what the page holds, against the model; the server, against requests of all kinds."""

import html.parser
import http.client
import json
import shutil
import socket
import struct
import threading
import webbrowser

import numpy as np
import pytest
import tensorflow as tf
from support import attention_of, one_line, save_run

import bert_tf
from bert_tf import extract_features
from bert_tf.config import EMBEDDING, Head
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.explore import Options, run
from bert_tf.inference.explorer import notebook_page
from bert_tf.inference.explorer.exploring import Explorer
from bert_tf.inference.explorer.server import MOST_BYTES, PageServer, page_of
from bert_tf.inference.presenting import drawing_of
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.runs.run import Run
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings, write_settings

HOSTILE = "</script><script>alert(1)</script><!-- <b>&amp;\"' @SCRIPT@ \u2028 \u202eאבג 中文 🙂"


def options(folder: str, **changes) -> Options:
    return Options(**{"checkpoint": folder, "texts": ("",), "output_file": "page.html"} | changes)


def test_an_exploration_is_what_the_model_computes(pretrained, vocab):
    """Oracle: the model itself on the tokens of the pair."""
    folder, model = pretrained
    tokens = ["[CLS]", "[MASK]", "cat", "##s", "[SEP]", "on", "[MASK]", "[UNK]", "[SEP]"]
    found = Explorer(options(folder, top_k=2)).explore("[MASK] cats ||| on[MASK] 中".encode())
    assert found["tokens"] == tokens
    assert found["segments"] == [0] * 5 + [1] * 4
    assert found["sources"] == ["", "[MASK]", "cat", "s", "", "on", "[MASK]", "中", ""]
    assert (found["layers"], found["heads"], found["truncated"]) == (3, 2, False)
    ids = np.array([[vocab.ids[token] for token in tokens]], np.int32)
    inputs = {"input_word_ids": ids, "input_mask": np.ones_like(ids)}
    inputs["input_type_ids"] = np.array([found["segments"]], np.int32)
    expected = bert_tf.attention_probabilities(model.encoder, inputs)[:, 0]
    np.testing.assert_allclose(attention_of(found)[:, :2], expected, atol=1 / 65535)
    np.testing.assert_allclose(attention_of(found)[:, 2], expected.numpy().mean(1), atol=1 / 65535)
    positions = {"masked_lm_positions": np.arange(9, dtype=np.int32)[None]}
    follows = tf.nn.softmax(model(inputs | positions)["next_sentence_logits"])[0, 0]
    np.testing.assert_allclose(found["next_sentence"], follows, atol=1e-5)
    assert [len(words) for words in found["words"]] == [0, 2, 2, 2, 0, 2, 2, 2, 0]
    for place, words in enumerate(found["words"]):
        masked = ids.copy()
        masked[0, place] = vocab.mask_id
        logits = model(inputs | positions | {"input_word_ids": masked})["mlm_logits"]
        row = tf.nn.softmax(logits[0, place, : len(vocab)]).numpy()
        best = np.argsort(-row)[: len(words)]
        assert [word["token"] for word in words] == [vocab.tokens[i] for i in best]
        np.testing.assert_allclose([word["probability"] for word in words], row[best], atol=1e-5)


@pytest.mark.parametrize("pair", ["the [MASK] ||| on", "[CLS] the [MASK] [SEP] on [SEP]"])
@pytest.mark.slow
def test_all_commands_read_a_text_in_one_way(pretrained, fine_tuned, tmp_path, pair):
    """Oracles: by hand, the tokens; what the explorer shows of them is what predict computes.

    Before fine-tuning, [MASK] is the token; afterwards, it is ordinary text, as in training.
    """
    folder = pretrained[0]
    found = Explorer(options(folder)).explore(pair.encode())
    assert found["tokens"] == "[CLS] the [MASK] [SEP] on [SEP]".split()
    predicted = bert_tf.load_predictor(folder)(pair)
    assert (predicted["text"], predicted["text_b"]) == ("the [MASK]", "on")
    assert predicted["probabilities"]["IsNext"] == pytest.approx(found["next_sentence"], abs=1e-5)
    assert len(bert_tf.load_mask_filler(folder)(pair)["masks"]) == 1
    (tmp_path / "pair.txt").write_text(pair)
    output = str(tmp_path / "vectors.jsonl")
    flags = dict(input_file=f"{tmp_path}/pair.txt", output_file=output)
    extract_features.run(extract_features.Options(checkpoint=folder, **flags))
    features = json.loads((tmp_path / "vectors.jsonl").read_text())["features"]
    assert [feature["token"] for feature in features] == found["tokens"]
    tuned = fine_tuned("rte", Head("classifier", ("no", "yes")))[0]
    found = Explorer(options(tuned)).explore(pair.encode())
    assert found["tokens"] == "[CLS] the [UNK] [UNK] [UNK] [SEP] on [SEP]".split()
    bars = {bar["token"]: bar["probability"] for bar in found["answer"]["bars"]}
    assert bars == bert_tf.load_predictor(tuned)(("the [MASK]", "on"))["probabilities"]


def test_an_encoder_alone_predicts_no_words(pretrained, vocab, tmp_path):
    """Oracles: the pre-trained model, whose encoder is saved without its heads; load_embedder."""
    folder, model = pretrained
    encoder = BertEncoder(model.config)
    encoder.set_weights(model.encoder.get_weights())
    save_run(tmp_path, encoder, vocab, lower_case=False)
    text = b"the [MASK] ||| sat"
    found = Explorer(options(str(tmp_path))).explore(text)
    expected = Explorer(options(folder)).explore(text)
    assert found["words"] is found["next_sentence"] is found["answer"] is None
    assert expected["words"] and expected["next_sentence"]
    np.testing.assert_array_equal(attention_of(found), attention_of(expected))
    assert Explorer(options(folder)).explore(b"the cat")["next_sentence"] is None
    vector = bert_tf.load_embedder(tmp_path).encode("the cat")
    found = Explorer(options(str(tmp_path))).explore(b"the cat")["vector"]
    np.testing.assert_allclose(found, vector / np.linalg.norm(vector), atol=1e-5)
    assert expected["vector"] is None


def test_a_folder_with_another_pooling_shows_all_but_vectors(pretrained, vocab, tmp_path, capsys):
    """Oracles: the folder without the files of sentence-transformers; load_embedder refuses it."""
    config, folder = pretrained[1].config, tmp_path / "folder"
    run = save_run(tmp_path / "run", BertEncoder(config), vocab, lower_case=False)
    convert(ConversionOptions(from_=run, to="huggingface", output_dir=str(folder)))
    expected = Explorer(options(str(folder))).explore(b"the cat")
    write_settings(EmbeddingSettings(), config.hidden_size, str(folder))
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode_weightedmean_tokens": true}')
    with pytest.raises(ValueError, match="'pooling_mode_weightedmean_tokens'. is not supported"):
        bert_tf.load_embedder(folder)
    capsys.readouterr()
    found = Explorer(options(str(folder))).explore(b"the cat")
    assert found == expected | {"vector": None} and expected["vector"]
    warning = f"WARNING: the page shows no vectors: {pooling}: ['pooling_mode_weightedmean_tokens']"
    assert f"{warning} is not supported, only cls, mean or max.\n" in capsys.readouterr().out


@pytest.mark.slow
def test_the_answer_of_a_fine_tuned_model(fine_tuned):
    """Oracle: the predictor's, with the effects of words; a text that is no pair has a note."""
    folder, _ = fine_tuned("rte", Head("classifier", ("no", "yes")))
    explorer = Explorer(options(folder))
    shares = bert_tf.load_predictor(folder)("the cat ||| on")["probabilities"]
    found = explorer.explore(b"the cat ||| on")["answer"]
    assert {bar["token"]: bar["probability"] for bar in found["bars"]} == shares
    assert found == drawing_of(bert_tf.load_predictor(folder).explain("the cat ||| on"))
    note = explorer.explore(b"the cat")["answer"]["note"]
    assert "the model needs text and text_b" in note
    explorer = Explorer(options(fine_tuned("sst2", Head("classifier", ("no", "yes")))[0]))
    found = explorer.explore(b"the cat ||| on [MASK]")
    assert found["sources"] == ["", *"the cat | | | on [ MASK ]".split(), ""]
    assert not any(found["segments"]) and "the cat |||" in "".join(
        part["text"] for part in found["answer"]["texts"][0]
    )


def test_examples_are_texts_of_the_run(fine_tuned, tmp_path):
    """Oracles: the file of predictions; without one, what pre-training wrote."""
    folder, _ = fine_tuned("rte", Head("classifier", ("no", "yes")))
    shutil.copytree(folder, tmp_path / "run")
    run = Run(str(tmp_path / "run"))
    run.write(run.spec, run.flags | {"some_texts": ["a ||| b"]})
    explorer = options(run.path)
    assert Explorer(explorer).examples == ["a ||| b"]
    rows = ["index\ttext_a\tp(no)\ttext_b", "0\tthe cat \t0.5\tsat", "1\ta\t0.5\tb"]
    (tmp_path / "run" / "predictions_dev.tsv").write_text("\n".join(rows) + "\n")
    assert Explorer(explorer).examples == ["the cat ||| sat", "a ||| b"]
    # An encoder reads the texts of a pair alone.
    embedder = Run(fine_tuned("stsb", Head(EMBEDDING))[0])
    embedder.write(embedder.spec, embedder.flags | {"some_texts": ["a ||| b"]})
    assert Explorer(options(embedder.path)).examples == ["a", "b"]


@pytest.mark.slow
def test_a_page_without_texts_shows_an_answer_to_two(pretrained, fine_tuned):
    """Oracle: the predictor's answer to a text as each kind of model takes it."""
    heads = [
        ("rte", Head("classifier", ("no", "yes"))),
        ("ner", Head("tagger", ("O", "B-PER"))),
        ("swag", Head("multiple_choice")),
        ("squad", Head("span")),
    ]
    for task, head in heads:
        folder = fine_tuned(task, head)[0]
        page = Page.of(notebook_page(folder).html)
        first, second = page.data["examples"][:2]
        assert [found["text"] for found in page.data["texts"]] == [first, second]
        predict = bert_tf.load_predictor(folder)
        explains = task in ("rte", "squad")
        answer = drawing_of(predict.explain(first) if explains else predict(first))
        assert page.data["texts"][0]["answer"] == answer
    first, second = Page.of(notebook_page(pretrained[0]).html).data["texts"]
    assert first["tokens"].count("[MASK]") == second["tokens"].count("[MASK]") == 1


def test_a_long_text_is_truncated_and_says_so(pretrained, tmp_path, capsys, monkeypatch):
    """Oracle: 24 positions of the model, and 6 as the flag has it. --open opens the page."""
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page, texts = str(tmp_path / "page.html"), ("the cat " * 5000, "the cat")
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(FileExistsError, match="page.html exists: .*--overwrite"):
        run(options(pretrained[0], texts=texts, output_file=page))
    assert (tmp_path / "page.html").read_text() == "mine"
    run(options(pretrained[0], texts=texts, output_file=page, overwrite=True, open=True))
    assert opened == [f"file://{page}"]
    shown = capsys.readouterr()
    assert shown.out == f"Wrote {page}: open it in a browser.\n"
    warning = "truncated 1 of 2 texts to 24 tokens: --max_seq_length may be up to 24."
    assert shown.err == f"WARNING: {warning}\n"
    long, short = Page.of((tmp_path / "page.html").read_text("utf-8")).data["texts"]
    assert (len(long["tokens"]), long["truncated"]) == (24, True)
    assert (len(short["tokens"]), short["truncated"]) == (4, False)
    explorer = Explorer(options(pretrained[0], max_seq_length=6))
    found = explorer.explore(b"the cat sat on the mat")["tokens"]
    assert found == "[CLS] the cat sat on [SEP]".split()
    pair = explorer.explore(b"the cat sat ||| on the mat")
    assert pair["tokens"] == "[CLS] the cat [SEP] on [SEP]".split() and pair["truncated"]
    with pytest.raises(ValueError, match="max_seq_length 25 is more than the max_position_embe"):
        Explorer(options(pretrained[0], max_seq_length=25))


class Page(html.parser.HTMLParser):
    """The elements of a page, as browsers read them."""

    @classmethod
    def of(cls, text: str) -> "Page":
        page = cls()
        page.elements, page.texts = [], {}
        page.feed(text)
        return page

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        kind = self.elements[-1][1].get("type") if self.elements else None
        key = "data" if kind == "application/json" else self.lasttag
        self.texts[key] = self.texts.get(key, "") + data

    @property
    def data(self) -> dict:
        return json.loads(self.texts["data"].partition("\n</script")[0])


def test_the_page_holds_texts_as_data_only():
    """Oracle: Python's HTML parser."""
    exploration = {"text": HOSTILE, "tokens": [HOSTILE], "sources": [HOSTILE]}
    page = Page.of(page_of([exploration], HOSTILE))
    plain = Page.of(page_of([], "m"))
    assert page.data["texts"] == [exploration] and page.data["model"] == HOSTILE
    assert page.elements == plain.elements
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    for _, attributes in page.elements:
        assert not {"src", "href", "style", "onclick"} & set(attributes)
    assert "default-src 'none';" in page.elements[3][1]["content"]


def test_a_notebook_shows_the_page_in_a_frame(pretrained):
    """Oracle: the page in the frame's attribute, as Python's HTML parser reads it."""
    page = notebook_page(pretrained[0], HOSTILE, top_k=2)
    ((tag, frame),) = Page.of(page._repr_html_()).elements
    assert (tag, frame["sandbox"]) == ("iframe", "allow-scripts") and len(repr(page)) < 100
    (text,) = Page.of(frame["srcdoc"]).data["texts"]
    assert text["text"] == HOSTILE and len(text["words"][1]) == 2
    for given, line in (
        ({"output_file": "page.html"}, "output_file is not an argument of notebook_page: choose"),
        ({"serve": True}, "serve is not an argument of notebook_page"),
        ({"top_k": 2.5}, "top_k is 2.5: it must be an integer"),
    ):
        with one_line(f"^{line}"):
            notebook_page(pretrained[0], "a", **given)
    with one_line(r"^texts is \(5,\): it must be strings"):
        notebook_page(pretrained[0], 5)


@pytest.fixture
def server():
    """A server of a page, which answers with the length of the text."""
    page = PageServer(0, "<p>page ✓", lambda text: {"text": text.decode(), "bytes": len(text)})
    thread = threading.Thread(target=page.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield page
    page.shutdown()
    thread.join()
    page.server_close()


def ask(server: PageServer, method: str, path: str = "/", body: bytes | None = None, **headers):
    """Returns the status and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_server_answers_two_requests_only(server):
    """Oracles: the page; the text, counted in bytes; RFC 9110's codes for everything else."""
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "GET") == (200, "<p>page ✓".encode())
    localhost = f"localhost:{server.server_port}"
    assert ask(server, "GET", Host=localhost)[0] == 200
    for path in ("/etc/passwd", "/../setup.cfg", "/%2e%2e/", "/page.js", "/?x"):
        assert ask(server, "GET", path)[0] == 404
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
        assert ask(server, "GET", Host=host)[0] == 403
        assert ask(server, "POST", body=b'{"text": "a"}', Host=host)[0] == 403
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(server, method)[0] == 501


def test_the_server_takes_texts_as_json_only(server):
    """Oracles: the text that was sent, and the error codes."""
    kind = "application/json"
    for text, size in (("é", 2), ("", 0), (HOSTILE, len(HOSTILE.encode()))):
        for sent in (kind, f"{kind}; charset=utf-8"):
            body = json.dumps({"text": text}, ensure_ascii=not size).encode()
            status, answer = ask(server, "POST", body=body, Content_Type=sent)
            assert (status, json.loads(answer)) == (200, {"text": text, "bytes": size})
    answer = ask(server, "POST", body=b'{"text": "\\ud800a"}', Content_Type=kind)[1]
    assert json.loads(answer)["text"] == "?a"
    for body in (b"", b"[1]", b'{"text": 3}', b'{"a": ""}', b"[" * 100_000, b"\xff\xfe"):
        status, answer = ask(server, "POST", body=body, Content_Type=kind)
        assert (status, json.loads(answer)) == (400, {"error": 'send {"text": "..."}'})
    for other in ("text/plain", "application/x-www-form-urlencoded"):
        status, answer = ask(server, "POST", body=b'{"text": "a"}', Content_Type=other)
        assert (status, json.loads(answer)) == (415, {"error": "send application/json"})


def test_the_server_reads_no_more_than_a_text(server):
    """Oracle: the lengths that requests state; nothing else of them is sent."""
    json_type = dict(Content_Type="application/json")
    for length in ("", "-1", "x", "1_0", "٣", "1" * 5000, "9" * 20, None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.putrequest("POST", "/")
        connection.putheader("Content-Type", "application/json")
        if length is not None:
            connection.putheader("Content-Length", length.encode())
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
    assert ask(server, "POST", Content_Length=str(MOST_BYTES + 1), **json_type)[0] == 413
    text = json.dumps({"text": "a" * (MOST_BYTES - 12)}).encode()
    assert len(text) == MOST_BYTES and ask(server, "POST", body=text, **json_type)[0] == 200
    with pytest.raises(OSError, match=rf"^--port={server.server_port}: .*: choose another, or 0$"):
        PageServer(server.server_port, "", dict)


def test_clients_that_break_off_leave_no_traceback(server, monkeypatch, capfd):
    """Oracles: nothing printed; the status of a timeout; the server still answers."""
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.2)
    head = f"POST / HTTP/1.1\r\nHost: {server.server_address[0]}:{server.server_port}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    for sent in ("", "POST", head, head + '{"text": "'):
        client = socket.create_connection(server.server_address, timeout=10)
        client.sendall(sent.encode())
        # Closes with a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    with socket.create_connection(server.server_address, timeout=10) as client:
        client.sendall(f'{head}{{"text": "'.encode())
        assert client.recv(64).startswith(b"HTTP/1.0 408 ")
    for nonsense in (b"\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000):
        with socket.create_connection(server.server_address, timeout=10) as client:
            client.sendall(nonsense)
            client.recv(64)
    assert ask(server, "GET")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_flags_that_do_not_go_together():
    """Oracle: the line."""
    for changes, line in (
        ({"serve": True}, "--output_file and --serve exclude each other: omit one"),
        # A file that the checkpoint consists of.
        ({"output_file": "run/vocab.txt"}, "vocab.txt: its name must end with .html"),
    ):
        with pytest.raises(ValueError, match=line):
            options("run", **changes)
    assert options("run", output_file=None, texts=()).port == 8000
