"""The figures, compared with the numbers and words given."""

import io
import itertools
import sys

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

import bert_tf
from bert_tf import plots
from bert_tf.finetuning.predictions import draw_confusion
from bert_tf.plots.compression import Compressed, compressed_models
from bert_tf.plots.scores import ScoredModel, draw_lines, draw_scores

RNG = np.random.default_rng(0)
TOKENS = "[CLS] my dog is $ 5 $ [SEP]".split()
S = len(TOKENS)
PROBABILITIES = RNG.dirichlet(np.ones(S), (3, 2, S))
VECTORS = RNG.normal(size=(3, S, 9))
NAMED = "12 × 768, 12 heads, 109M"
BASE, LARGE = bert_tf.preset_config("base"), bert_tf.preset_config("large")

# Each draws its picture, into given axes if it takes any.
PICTURES = {
    "attention": lambda **ax: plots.attention(PROBABILITIES[0, 0], TOKENS, **ax),
    "embedding_map": lambda **ax: plots.embedding_map(VECTORS[0], TOKENS, **ax),
    "embedding_sum": lambda **ax: plots.embedding_sum(TOKENS, [0] * S, VECTORS, **ax),
    "word_probabilities": lambda **ax: plots.word_probabilities(TOKENS, [0.1] * S, **ax),
    "masked_example": lambda **ax: plots.masked_example(TOKENS, TOKENS, [2], **ax),
    "confusion_matrix": lambda **ax: plots.confusion_matrix([0, 1], [1, 1], ["$a", "b$"], **ax),
    "task_example": lambda **ax: plots.task_example(TOKENS, {0: "positive"}, **ax),
}
WITHOUT_AXES = {
    "attention_heads": lambda: plots.attention_heads(PROBABILITIES),
    "pretraining_and_finetuning": lambda: plots.pretraining_and_finetuning(BASE),
    "encoder_layers": lambda: plots.encoder_layers({"base": BASE}),
    "learning_curves": lambda: plots.learning_curves([{"step": 1, "loss": 2.0}]),
}


def texts(figure) -> list[str]:
    """Returns all that can be read in a figure."""
    found = figure.findobj(matplotlib.text.Text)
    return [text.get_text() for text in found if text.get_text() and text.get_visible()]


def test_every_picture_is_public_and_listed_here():
    """Oracle: the names of the package."""
    assert bert_tf.plots is plots
    assert sorted(plots.__all__) == sorted(PICTURES | WITHOUT_AXES)


@pytest.mark.parametrize("name", PICTURES | WITHOUT_AXES)
def test_a_notebook_shows_each_figure_once(name):
    """Oracles: IPython's name of the method; pyplot's figures, which it would show as well; the
    parameters of matplotlib before."""
    before = dict(matplotlib.rcParams)
    figure = (PICTURES | WITHOUT_AXES)[name]()
    png = figure._repr_png_()
    pixels = matplotlib.image.imread(io.BytesIO(png))
    assert pixels.shape[:2] == tuple(int(size * 110) for size in figure.get_size_inches()[::-1])
    assert pixels[0, 0].tolist() == [1, 1, 1, 1] and pixels[..., :3].min() < 0.5
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert not pyplot or pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_in_given_axes(name):
    """Oracle: the figure of the axes, where the other axes stay empty."""
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert PICTURES[name](ax=right) is figure
    figure.savefig(io.BytesIO())
    assert left.get_title("left") == "" and right.get_title("left")
    assert not left.has_data()


def test_attention_is_the_probabilities_given():
    """Oracle: the probabilities and tokens."""
    axes = plots.attention(PROBABILITIES[1, 1], TOKENS, title="Layer 1").axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), PROBABILITIES[1, 1])
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == TOKENS
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("attended to", "attending")
    with pytest.raises(ValueError, match=r"probabilities has the shape \[8, 8\]: it must be \[2,"):
        plots.attention(PROBABILITIES[1, 1], ["a", "b"])


def test_all_heads_share_a_scale():
    """Oracle: the roots of the probabilities, with layers as rows."""
    figure = plots.attention_heads(PROBABILITIES)
    assert len(figure.axes) == 6
    for axes, expected in zip(figure.axes, PROBABILITIES.reshape(6, S, S), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), np.sqrt(expected))
        assert axes.images[0].get_clim() == (0, 1)
    assert {"head 0", "head 1", "layer 0", "layer 2"} <= set(texts(figure))


def test_an_embedding_map_keeps_the_largest_variances():
    """Oracle: the singular values of the centered vectors."""
    vectors = RNG.normal(size=(6, 9)) * np.arange(9)
    groups = ["fruit"] * 4 + ["firm"] * 2
    axes = plots.embedding_map(vectors, list("abcdef"), groups).axes[0]
    variances = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2
    shares = variances / variances.sum()
    points = np.concatenate([group.get_offsets() for group in axes.collections])
    np.testing.assert_allclose((points**2).sum(axis=0), variances[:2])
    assert axes.get_xlabel() == f"component 1 ({shares[0]:.0%} of the variance)"
    assert axes.get_ylabel() == f"component 2 ({shares[1]:.0%} of the variance)"
    assert [len(group.get_offsets()) for group in axes.collections] == [4, 2]
    axes.figure.draw_without_rendering()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fruit", "firm"]
    for text, point in zip(axes.texts, axes.transData.transform(points), strict=True):
        box = Text.get_window_extent(text)
        assert not box.contains(*point) and np.abs(box.min - point).max() < 60
    assert [text.get_text() for text in axes.texts] == list("abcdef")


def test_labels_do_not_cover_each_other(capfd):
    """Oracle: the boxes of the labels, and the lines between them and their points."""
    # Its own generator: few places suit such labels, so other points may leave none.
    vectors = np.random.default_rng(1).normal(size=(8, 2)) * [1.0, 0.05]
    labels = ["this is as long as a sentence that one draws " * (i < 3) + str(i) for i in range(8)]
    axes = plots.embedding_map(vectors, labels).axes[0]
    axes.figure.draw_without_rendering()
    for a, b in itertools.combinations(map(Text.get_window_extent, axes.texts), 2):
        assert not a.overlaps(b)
    for text, other in itertools.permutations(axes.texts, 2):
        if text.arrow_patch.get_visible():
            start, end = axes.transData.transform(text.xy), Text.get_window_extent(text)
            line = np.linspace(start, (end.min + end.max) / 2, 50)
            assert not any(Text.get_window_extent(other).contains(*point) for point in line)
    assert capfd.readouterr().err == ""


def test_many_labels_are_where_their_points_are():
    """Oracle: the points and the labels."""
    labels = [str(i) for i in range(300)]
    axes = plots.embedding_map(RNG.normal(size=(300, 4)), labels).axes[0]
    points = axes.collections[0].get_offsets()
    assert [text.get_text() for text in axes.texts] == labels
    np.testing.assert_allclose([text.xy for text in axes.texts], points, atol=1e-5)


def test_discs_are_drawn_whole():
    """Oracle: the box of the axes. The published BiLSTM is 434 times as fast as BERT."""
    models, published = [Compressed("pd", 1.3, 0.98)], [Compressed("bilstm", 110, 0.91, None, 434)]
    axes = compressed_models(models, published).axes[0]
    axes.figure.draw_without_rendering()
    box = axes.get_window_extent()
    groups = (x for x in axes.collections if isinstance(x, PathCollection))
    discs = [group for group in groups if len(group.get_offsets())]
    assert len(discs) == 3  # with that of the teacher
    for disc in discs:
        (center,) = axes.transData.transform(disc.get_offsets())
        radius = np.sqrt(disc.get_sizes()[0]) / 2 * axes.figure.dpi / 72
        assert box.contains(*(center - radius)) and box.contains(*(center + radius))
    assert [text.get_text() for text in axes.texts] == ["original", "pd", "bilstm"]


def test_unknown_speeds_are_hollow():
    """Oracle: the speeds."""
    models = [Compressed("known", 2.0, 0.9, None, 3.0), Compressed("unknown", 4.0, 0.9)]
    axes = compressed_models(models).axes[0]
    discs = next(group for group in axes.collections if len(group.get_offsets()) == 2)
    assert [alpha > 0 for *_, alpha in discs.get_facecolors()] == [True, False]
    assert "unknown speed" in texts(axes.figure)
    assert "unknown speed" not in texts(compressed_models(models[:1]))


def test_equal_vectors_share_a_point_and_a_label():
    """Oracle: vectors without any variance, such as those of one word before the first layer."""
    axes = plots.embedding_map(np.ones((3, 5), np.float32), ["x", "y", "z"]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["x\ny\nz"]
    assert axes.get_xlabel() == "component 1 (0% of the variance)"


def test_embeddings_add_up():
    """Oracle: the three vectors of each token, and their sum."""
    vectors = RNG.normal(size=(3, S, 40))
    figure = plots.embedding_sum(TOKENS, [0, 0, 0, 0, 1, 1, 1, 1], vectors)
    cells = [image.get_array() for image in figure.axes[0].images]
    rows = [*vectors, vectors.sum(axis=0)]
    expected = np.concatenate([row[:, :32].reshape(S, 4, 8) for row in rows])
    np.testing.assert_allclose(np.stack(cells), expected)
    shown = texts(figure)
    assert [shown.count(f"$E_{name}$") for name in "AB"] == [4, 4]
    assert (shown.count("+"), shown.count("=")) == (2 * S, S)


def test_words_have_bars():
    """Oracle: the probabilities, the first on top."""
    figure = plots.word_probabilities(["paris", "$"], [0.5, 0.125], title="France")
    axes = figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.125]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert {"paris", "$", "50.0%", "12.5%", "France"} <= set(texts(figure))


def test_what_became_of_each_token():
    """Oracle: the tokens before and after, and which of them are to be predicted."""
    before = [f"w{index}" for index in range(40)]
    after = [*before]
    after[3], after[17] = "[MASK]", "other"
    figure = plots.masked_example(before, after, [3, 17, 30])
    shown = texts(figure)
    assert sorted(text for text in shown if text in (*before, *after)) == sorted(before + after)
    kinds = [text for text in shown if text in ("masked", "random", "unchanged")]
    assert kinds == ["masked", "random", "unchanged"]
    axes = figure.axes[0]
    right = max(box.get_x() + box.get_width() for box in axes.patches)
    assert right <= axes.get_xlim()[1] and shown.count("before") > 1


def test_what_a_model_predicts_of_chinese_text():
    """Oracles: the prediction, below what it is for; a Chinese character is as wide as two."""
    figure = plots.masked_example([*"哈尔滨"], ["哈", "[MASK]", "滨"], [1], predicted={1: "冰"})
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["before", "after", "predicted"]
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert places["冰"][0] == places["[MASK]"][0] and places["冰"][1] > places["[MASK]"][1]
    widths = [
        plots.masked_example([x], [x], []).axes[0].patches[0].get_width() for x in ("滨", "ab")
    ]
    assert widths[0] == widths[1]


def test_sizes_are_those_of_the_configuration():
    """Oracles: L, H and A of BERT's base and large; the widths of the boxes, one per layer."""
    layer, stacks = plots.encoder_layers({"base": BASE, "large": LARGE}).axes
    shown = [text.get_text() for text in layer.texts]
    assert "attention: 12 heads of 64\n2.36M parameters" in shown
    assert "feed-forward: 768 → 3,072 → 768, gelu\n4.72M parameters" in shown
    names = [label.get_text() for label in stacks.get_xticklabels()]
    assert names == [f"base\n{NAMED}", "large\n24 × 1,024, 16 heads, 335M"]
    widths = [box.get_width() for box in stacks.patches]
    assert len(widths) == 13 + 25 and widths[0] / widths[-1] == pytest.approx(768 / 1024)


def test_predictions_are_above_their_tokens():
    """Oracle: the indices; figure 1 of the paper predicts [CLS] and both [MASK]."""
    before, after = plots.pretraining_and_finetuning(BASE).axes
    places = {text.get_position()[0]: text.get_text() for text in before.texts}
    assert (places[0], places[3], places[7]) == ("IsNext", "bought", "carried")
    assert [text.get_text() for text in before.texts].count("[MASK]") == 2
    assert before.texts[0].get_text() == after.texts[0].get_text() == f"{NAMED} parameters"


def test_a_confusion_matrix_counts_pairs():
    """Oracle: the pairs."""
    axes = plots.confusion_matrix([0, 0, 0, 2], [0, 1, 1, 2], ["a", "b", "c"]).axes[0]
    cells = [text.get_text() for text in axes.texts]
    assert cells[:3] == ["1\n33.3%", "2\n66.7%", "0\n0.0%"] and cells[8] == "1\n100.0%"
    np.testing.assert_allclose(axes.images[0].get_array()[2], [0, 0, 1])


def test_text_on_colored_cells_is_readable():
    """Oracle: the contrast of WCAG 2.2, 4.5 or more, for all shares and all kinds of tokens."""

    def luminance(color) -> float:
        rgb = np.array(matplotlib.colors.to_rgb(color))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    def contrast(*colors) -> float:
        low, high = sorted(map(luminance, colors))
        return (high + 0.05) / (low + 0.05)

    for right in range(201):
        axes = plots.confusion_matrix([0] * 200, [0] * right + [1] * (200 - right), "ab").axes[0]
        image = axes.images[0]
        for cell, share in zip(axes.texts, image.get_array().flat, strict=True):
            assert contrast(cell.get_color(), image.to_rgba(share)[:3]) >= 4.5, share
    axes = plots.masked_example(TOKENS, [*"abc", *TOKENS[3:]], [0, 4]).axes[0]
    for box, text in zip(axes.patches, axes.texts[::2], strict=True):
        assert contrast(text.get_color(), box.get_facecolor()) >= 4.5


@pytest.mark.parametrize("name", ["not_equivalent", "$a$", r"a\$b"])
def test_names_are_written_as_they_are(name):
    """Oracles: the names; matplotlib's flag for formulas in "$"."""
    curves = plots.learning_curves([], [{"step": 1, f"eval_f1/{name}": 0.5}])
    map_ = plots.embedding_map(RNG.normal(size=(2, 9)), TOKENS[:2], [name, "b"])
    matrix = plots.confusion_matrix([0, 1], [1, 1], [name, "b"])
    for figure, text in (curves, f"f1/{name}, held out"), (map_, name), (matrix, name):
        found = [x for x in figure.findobj(matplotlib.text.Text) if x.get_text() == text]
        assert found and not any(x.get_parse_math() for x in found)


def test_characters_without_a_glyph_are_drawn_without_a_warning(tmp_path):
    """Oracle: warnings are errors; a label may hold anything."""
    for name in ("\U0001f642 中", "x" * 900):
        draw_confusion(np.array([0, 1]), np.array([0, 0]), ["a", name], str(tmp_path / "a.png"))
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_scores_are_bars_or_points():
    """Oracles: lengths, places and names, by hand; a panel without scores stays empty."""
    ours = [
        ScoredModel("large", 4_000_000, {"F1": (80.0, 1.0), "loss": (2.0, None)}),
        ScoredModel("small", 1_000_000, {"F1": (70.0, None)}),
    ]
    groups = {"measured": ours, "paper": [ScoredModel("base", 9_000_000, {"F1": (90.0, None)})]}
    first, other, second, empty = draw_scores(["F1", "loss"], groups, "$").axes
    assert [bar.get_width() for bar in first.patches] == [80, 70]
    assert [label.get_text() for label in first.get_yticklabels()] == ["large", "small"]
    assert {"80.0", "F1, measured"} <= {*texts(first)} and "base" in texts(other)
    assert (len(second.patches), empty.get_visible()) == (1, False)
    first = draw_scores(["F1"], groups, "", by_size=True).axes[0]
    np.testing.assert_array_equal(first.lines[0].get_xydata(), [[4, 80], [1, 70]])
    assert {"large", "small", "1", "4"} <= {*texts(first)} and first.get_xscale() == "log"


def test_scores_are_lines_over_sizes():
    """Oracles: the points, by hand; what is unknown has no point."""
    lines = {
        "bilstm": [
            ScoredModel("a", 100, {"F1": (50.0, 1.0)}),
            ScoredModel("b", 10_000, {"F1": (70.0, 2.0)}),
        ],
        "scratch": [ScoredModel("c", 100, {"F1": (55.0, None)}), ScoredModel("d", 10_000, {})],
        "$": [],
    }
    axes, empty = draw_lines(["F1", "loss"], lines, "", "labels").axes
    found = {bars.get_label(): bars for bars in axes.containers}
    points = [bars.lines[0].get_xydata().tolist() for bars in found.values()]
    assert points == [[[100, 50], [10_000, 70]], [[100, 55]], []]
    (spread,) = found["bilstm"].lines[2]
    ends = [[[100, 49], [100, 51]], [[10_000, 68], [10_000, 72]]]
    np.testing.assert_array_equal(spread.get_segments(), ends)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*lines]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "10,000"]
    assert (axes.get_xscale(), empty.get_xlabel()) == ("log", "labels")
    steps = {"mlm": [ScoredModel("a", x, {"F1": (1.0, None)}) for x in (20, 200)]}
    assert draw_lines(["F1"], steps, "", "step").axes[0].get_xscale() == "linear"
