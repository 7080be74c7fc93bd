"""The explorer page in a browser."""

import os
import re
import shutil
import threading

import pytest
from support import attention_of

from bert_tf.explore import Options, run
from bert_tf.inference.explorer import notebook_page
from bert_tf.inference.explorer.exploring import Explorer
from bert_tf.inference.explorer.server import PageServer, page_of

sync_api = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
if not CHROMIUM:
    pytest.skip("needs a Chromium: install it, or name it in CHROMIUM", allow_module_level=True)
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync".split()
FLAGS += ["--disable-background-networking", "--disable-component-update"]
HOSTILE = "<script>document.title = 'run'</script> \u202eאבג 中文 🙂 [MASK]"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page whose errors, and whatever it loads besides itself, fail the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 1600}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(10_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    yield page
    context.close()
    assert problems == [] and len(set(requests)) == 1


@pytest.fixture(scope="module")
def file(pretrained, tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("page") / "page.html")
    texts = ("the [MASK] sat ||| on the mat", HOSTILE, "the cat " * 20)
    run(Options(checkpoint=pretrained[0], texts=texts, output_file=path, top_k=3))
    return path


@pytest.fixture(scope="module")
def expected(pretrained, file) -> dict:
    """The exploration of the first text."""
    options = Options(checkpoint=pretrained[0], texts=("a",), output_file=file, top_k=3)
    return Explorer(options).explore(b"the [MASK] sat ||| on the mat")


def words_of(exploration: dict, place: int) -> list[str]:
    return [f"{x['token']} {x['probability'] * 100:.1f}%" for x in exploration["words"][place]]


def shown_words(panel) -> list[str]:
    return [" ".join(text.split()) for text in panel.locator(".words li").all_inner_texts()]


def column(panel, side: str):
    return panel.locator(f".{side} button")


def test_the_page_shows_what_the_model_does(page, file, expected):
    """Oracle: the exploration that the page was made from."""
    page.goto(f"file://{file}")
    left, right = page.locator("article").all()
    assert left.locator(".tokens li").all_inner_texts() == expected["tokens"]
    assert left.locator(".tokens .second").count() == expected["segments"].count(1)
    assert shown_words(left) == words_of(expected, 2)
    assert left.locator(".note").inner_text() == "The second segment is shaded."
    assert f" {expected['next_sentence']:.1%}." in left.locator(".next-sentence").inner_text()
    missing = "[UNK] stands for what is not in the vocabulary: \u2068<\u2069, "
    assert missing in right.locator(".note").inner_text()
    # Texts are shown as they are, and never run.
    assert page.title() == "bert_tf explorer"
    assert HOSTILE[:30] in left.locator("select").inner_text()
    # A longer text replaces the one on the right.
    right.locator("select").select_option("2")
    assert "The text is longer: the model reads 24 of" in right.locator(".note").inner_text()
    assert right.locator(".words").count() == 0


def test_the_page_shows_the_answer(page, expected, tmp_path):
    """Oracle: the drawing, whose texts are never run; a model without a head has none."""
    part = {"text": HOSTILE, "kind": "", "color": ""}
    mark = {"text": "é", "kind": "LOC", "color": "#ffd8a8"}
    bars = [{"token": "<b>", "probability": 0.75}, {"token": "x", "probability": 0.25}]
    answer = {"texts": [[part, mark]], "bars": bars, "note": "(none)"}
    texts = [expected | {"answer": answer, "words": None}, expected]
    (tmp_path / "page.html").write_text(page_of(texts, "run"), "utf-8")
    page.goto(f"file://{tmp_path}/page.html")
    shown, other = page.locator(".answer").all()
    assert shown.locator(".texts p").inner_text() == f"{HOSTILE}é LOC"
    assert shown.locator("mark").inner_text() == "é LOC" and page.title() == "bert_tf explorer"
    assert shown_words(shown) == ["<b> 75.0%", "x 25.0%"]
    assert shown.locator(".reply").inner_text() == "(none)" and not other.is_visible()
    # Nor has a model without a masked-LM head words for [MASK].
    guesses = page.get_by_role("heading", name="Words for each [MASK]")
    assert guesses.count() == 1 and page.locator("article").nth(1).locator(guesses).is_visible()
    assert not page.locator("#similarity").is_visible()


def test_two_texts_of_an_encoder_are_compared(page, expected, tmp_path):
    """Oracle: the cosine by hand. Parts of the two texts are side by side, or one on the other."""
    vectors = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
    texts = [expected | {"vector": vector} for vector in vectors]
    texts[1] |= {"tokens": expected["tokens"][:3]}
    (tmp_path / "page.html").write_text(page_of(texts, "run"), "utf-8")
    page.goto(f"file://{tmp_path}/page.html")
    similarity = page.locator("#similarity")
    assert similarity.inner_text() == "Cosine similarity of the two texts: 0.600"
    page.locator("select").nth(1).select_option("2")
    assert similarity.inner_text() == "Cosine similarity of the two texts: 0.000"
    left, right = page.get_by_role("heading", name="Attention").all()
    assert left.bounding_box()["y"] == right.bounding_box()["y"]
    maps, lines = page.locator(".maps").first, page.locator("svg").first
    assert lines.is_visible() and not maps.is_visible()
    page.get_by_text("Small maps of all heads").first.focus()
    page.keyboard.press("Enter")
    assert maps.bounding_box()["y"] > lines.bounding_box()["y"]
    page.set_viewport_size({"width": 390, "height": 800})
    assert right.bounding_box()["y"] > maps.bounding_box()["y"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_click_masks_a_token_and_the_address_keeps_it(page, file, expected):
    """Oracles: the exploration; a second visit to the address shows the same."""
    page.goto(f"file://{file}")
    panel, other = page.locator("article").all()
    other.locator("select").select_option("2")
    token = panel.locator(".tokens button", has_text="sat")
    token.click()
    assert shown_words(panel) == words_of(expected, 2) + words_of(expected, 3)
    column(panel, "to").nth(4).click()
    # Layer 1; the last of the three columns is the mean of the heads.
    panel.locator("summary").click()
    panel.locator("canvas").nth(5).click()
    panel.locator("summary").click()
    assert panel.locator(".head-value").inner_text() == "mean (0-1)"
    shares = [f"{share * 100:.1f}%" for share in attention_of(expected)[1, 2, :, 4]]
    assert [text.split("\n")[1] for text in column(panel, "from").all_inner_texts()] == shares
    view = "document.getElementById('panels').innerText"
    shown, address = page.evaluate(view), page.url
    page.goto("about:blank")
    page.goto(address)
    assert page.evaluate(view) == shown
    token.click()
    assert "masked=3" in address and "masked=3" not in page.url
    page.goto(f"{page.url[: page.url.index('#')]}#layer=99&head=x&text=unknown&kept=from+99")
    page.wait_for_function("document.querySelector('.layer').value === '2'")


def test_the_page_in_a_notebook(page, pretrained, expected, tmp_path):
    """Oracle: the exploration; the frame has a long page around it, as in Jupyter and Colab."""
    cell = notebook_page(pretrained[0], expected["text"], top_k=3)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><p>Cell</p>{cell}", "utf-8")
    page.goto(f"file://{tmp_path}/notebook.html")
    panel = page.frame_locator("iframe").locator("article")
    panel.locator(".tokens button", has_text="sat").click()
    assert shown_words(panel) == words_of(expected, 2) + words_of(expected, 3)


def test_attention_by_keyboard(page, file, expected):
    """Oracle: the probabilities, in percent, beside each token."""
    tokens = expected["tokens"]
    values = attention_of(expected)
    page.goto(f"file://{file}")
    panel = page.locator("article").first
    lines = panel.locator("svg path")
    assert lines.count() == (values[0, 0] >= 0.02).sum()
    panel.get_by_role("slider", name="Layer", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    panel.get_by_role("slider", name="Head", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert panel.locator(".layer-value").inner_text() == "2 (0-2)"
    assert page.locator("article").nth(1).locator(".head-value").inner_text() == "1 (0-1)"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    row = values[2, 1, 1]
    assert column(panel, "to").all_inner_texts() == [
        f"{token}\n{share * 100:.1f}%" for token, share in zip(tokens, row, strict=True)
    ]
    assert lines.count() == (row >= 0.02).sum()
    best = row.argmax()
    summary = panel.locator(".summary").inner_text()
    assert re.sub(r"[\u2068\u2069]", "", summary).startswith(
        f"the (1) attends most to {tokens[best]} ({best}) {row[best] * 100:.1f}%"
    )
    page.keyboard.press("Enter")
    assert column(panel, "from").nth(1).get_attribute("aria-pressed") == "true"
    page.keyboard.press("ArrowRight")
    shares = [text.split("\n")[1] for text in column(panel, "from").all_inner_texts()]
    assert shares == [f"{share * 100:.1f}%" for share in values[2, 1, :, 1]]
    page.keyboard.press("Escape")
    column(panel, "to").nth(1).evaluate("button => button.blur()")
    assert lines.count() == (values[2, 1] >= 0.02).sum()
    assert panel.locator(".summary").inner_text() == ""


def test_themes_and_narrow_screens(page, file):
    """Oracles: the system's theme, then the button; a screen of 400 pixels shows all columns."""
    page.goto(f"file://{file}")
    color = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(color)
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate(color)
    assert sum(map(int, dark[4:-1].split(", "))) < sum(map(int, light[4:-1].split(", ")))
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert page.evaluate(color) == dark
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate(color) == light
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    boxes = [panel.bounding_box() for panel in page.locator("article").all()]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]


def test_a_served_page_takes_new_texts(page, pretrained):
    """Oracle: the tokens of the text that was typed."""
    explorer = Explorer(Options(checkpoint=pretrained[0]))
    texts = [explorer.explore(b"the cat")]
    live = page_of(texts, "run", True, ["the ||| cat", "sat"])
    server = PageServer(0, live, explorer.explore)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        page.goto(server.url)
        first, panel = page.locator("article").all()
        # To be compared with itself, until there is another one.
        tokens = panel.locator(".tokens li")
        assert tokens.all_inner_texts() == texts[0]["tokens"]
        assert panel.get_by_label("Compare with").input_value() == "the cat"
        panel.locator("textarea").fill("the [MASK]<b>")
        panel.get_by_role("button", name="Explore").click()
        tokens.get_by_text("[MASK]").wait_for()
        assert tokens.all_inner_texts()[:3] == ["[CLS]", "the", "[MASK]"]
        assert panel.locator(".words li").count() == 5
        panel.locator("textarea").fill("on")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("the")
        page.keyboard.press("Enter")
        tokens.get_by_text("on").wait_for()
        assert tokens.all_inner_texts() == ["[CLS]", "on", "the", "[SEP]"]
        panel.locator("textarea").fill(" ")
        page.keyboard.press("Enter")
        assert panel.locator(".status").inner_text() == "Write a text first."
        assert first.locator(".tokens li").all_inner_texts() == texts[0]["tokens"]
        assert panel.locator(".examples button").all_inner_texts() == ["the ||| cat", "sat"]
        panel.get_by_role("button", name="the ||| cat").click()
        panel.locator(".tokens .second").first.wait_for()
        # A text that only the address has is explored again.
        page.reload()
        panel.locator(".tokens .second").first.wait_for()
        assert panel.locator("textarea").input_value() == "the ||| cat"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
