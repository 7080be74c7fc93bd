"""The line that shows the progress of training. Oracle: a terminal's 100 columns."""

import io

import pytest

from bert_tf.training.reports import Reports, read_results

_MEASURES = ("masked_lm_loss", "next_sentence_loss", "masked_lm_accuracy", "next_sentence_accuracy")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("text", ["", "loss\n", "loss = x\nglobal_step = 1\n", "loss = 1.0\n"])
def test_damaged_results_are_named(text, tmp_path):
    path = tmp_path / "eval_results.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="eval_results.txt is damaged: remove it"):
        read_results(str(path))


def test_the_line_of_a_long_run_fits_100_columns(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr", _Terminal())
    reports = Reports(str(tmp_path), 0, 1_000_000, peak_flops=1e12)
    bar = reports._bar
    bar.dynamic_ncols, bar.ncols, bar.start_t = None, 100, bar.start_t - 50_000
    bar.smoothing = 0  # The time left is that of the mean rate.
    reports.begin_phase(32, 10**9)
    means = {"loss": 7.2139} | dict.fromkeys(_MEASURES, 0.123456)
    reports.steps_done(500_000, 500_000, 12_345.0, means)
    line = str(bar)
    assert len(line) == 100
    # The utilization, the last detail, has no room beside a bar.
    assert line.endswith(", loss 7.214, mlm 0.123, nsp 0.123, 1,296 seq/s]"), line
    bar.close()
