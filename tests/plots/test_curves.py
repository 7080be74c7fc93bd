"""The curves drawn, compared with the numbers given."""

import matplotlib.image
import numpy as np
import pytest

from bert_tf.plots.curves import learning_curves
from bert_tf.training.reports import draw_curves

MEASURES = ("loss", "masked_lm_accuracy", "next_sentence_accuracy")
MEASURES += ("learning_rate", "sequences_per_second")


def metrics(count: int, every: int = 10, keys=MEASURES) -> list[dict[str, float]]:
    random = np.random.default_rng(0)
    steps = [{"step": every * (index + 1)} for index in range(count)]
    return [step | dict(zip(keys, random.random(len(keys)), strict=True)) for step in steps]


def evaluations(count: int) -> list[dict[str, float]]:
    return metrics(count, every=100, keys=MEASURES[:3])


def lines(figure) -> dict[tuple[str, str], np.ndarray]:
    """(panel, label in the legend) -> [points, 2]."""
    return {
        (axes.get_title("left"), line.get_label()): line.get_xydata()
        for axes in figure.axes
        for line in axes.get_lines()
    }


def column(entries, key) -> np.ndarray:
    return np.array([(entry["step"], entry[key]) for entry in entries])


def test_the_curves_are_the_numbers_given():
    """Oracle: the numbers given."""
    training, held_out = metrics(50), evaluations(4)
    drawn = lines(learning_curves(training, held_out))
    expected = {
        ("Loss", "training"): column(training, "loss"),
        ("Loss", "held out"): column(held_out, "loss"),
        ("Learning rate", "_child0"): column(training, "learning_rate"),
        ("Sequences per second", "_child0"): column(training, "sequences_per_second"),
    }
    for label, key in (("masked LM", "masked_lm"), ("next sentence", "next_sentence")):
        for part, entries in (("training", training), ("held out", held_out)):
            expected["Accuracy", f"{label}, {part}"] = column(entries, f"{key}_accuracy")
    assert drawn.keys() == expected.keys()
    for key, points in expected.items():
        np.testing.assert_array_equal(drawn[key], points, err_msg=str(key))


def test_all_metrics_of_an_evaluation_are_drawn():
    """Oracle: the numbers given, as fine-tuning names them."""
    training = [dict(step=1, loss=0.7, accuracy=0.5), dict(step=2, loss=0.6, accuracy=0.6)]
    held_out = [{"step": 2, "eval_loss": 0.65, "eval_accuracy": 0.55, "eval_matthews": -0.1}]
    figure = learning_curves(training, held_out)
    drawn = {key: points.tolist() for key, points in lines(figure).items()}
    assert drawn == {
        ("Loss", "training"): [[1, 0.7], [2, 0.6]],
        ("Loss", "held out"): [[2, 0.65]],
        ("Metrics", "accuracy, training"): [[1, 0.5], [2, 0.6]],
        ("Metrics", "accuracy, held out"): [[2, 0.55]],
        ("Metrics", "matthews, held out"): [[2, -0.1]],
    }
    assert figure.axes[1].get_ylim()[0] < -0.1
    del held_out[0]["eval_matthews"]
    figure = learning_curves(training, held_out)
    assert figure.axes[1].get_title("left") == "Accuracy" and figure.axes[1].get_ylim()[0] == 0


def test_steps_that_a_resumed_run_took_again_are_drawn_once():
    """Oracle: by hand; the run was killed after step 3, resumed from step 1 and logs less often."""
    entries = [{"step": step, "loss": loss} for step, loss in ((1, 5), (2, 4), (3, 3), (3, 2))]
    entries.insert(3, {"step": 2, "loss": 2.5})
    loss = learning_curves(entries).axes[0]
    assert loss.get_lines()[0].get_xydata().tolist() == [[1, 5], [2, 2.5], [3, 2]]


def test_a_long_curve_is_smoothed_and_one_of_a_single_point_is_visible():
    """Oracles: means of 20 of 1,000 points, computed one by one; matplotlib draws markers."""
    (line,) = learning_curves([{"step": 5, "learning_rate": 0.5}]).axes[2].get_lines()
    assert line.get_marker() == "o"
    training = metrics(1000)
    loss = learning_curves(training, []).axes[0]
    raw, smooth = (line.get_xydata() for line in loss.get_lines())
    np.testing.assert_array_equal(raw, column(training, "loss"))
    expected = [raw[start : start + 20, 1].mean() for start in range(981)]
    np.testing.assert_allclose(smooth[:, 1], expected)
    np.testing.assert_array_equal(smooth[:, 0], raw[10:991, 0])


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 3), (2, 18), (1, 20), (0, 250)])
def test_ticks_of_steps_are_whole_and_regular(first, last):
    """Oracle: whole numbers with one difference between them, of which none is printed twice."""
    figure = learning_curves([{"step": first, "loss": 2.0}, {"step": last, "loss": 1.0}])
    figure.canvas.draw()
    ticks = figure.axes[3].get_xticks()
    assert len({*np.diff(ticks)}) <= 1 and all(tick == round(tick) for tick in ticks)
    labels = [label.get_text() for label in figure.axes[3].get_xticklabels()]
    assert len(labels) == len({*labels})


def test_the_file_is_a_png_whole_or_not_at_all(tmp_path):
    """Oracle: matplotlib's reader; the message."""
    path = tmp_path / "curves.png"
    draw_curves(metrics(20), evaluations(2), str(path))
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[:2] == (704, 1210)
    assert pixels[..., :3].min() < 0.5
    assert [file.name for file in tmp_path.iterdir()] == ["curves.png"]
    with pytest.raises(OSError, match=f"cannot write {path}/below.png"):
        draw_curves(metrics(2), [], f"{path}/below.png")
