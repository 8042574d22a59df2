from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from dnnstack.configs import effective_yaml, load_config
from dnnstack.optimizers.groups import RATES
from dnnstack.optimizers.schedules.schedule import Length
from dnnstack.reports.plots import CURVES, draw_curves, figure_of, read_metrics
from dnnstack.reports.rate_curve import rate_curve
from dnnstack.reports.staleness import draw_staleness
from dnnstack.reports.staleness import figure_of as staleness_figure
from dnnstack.training.rate_tables import rate_tables
from dnnstack.training.records.formats.run_log import CSV, HEADERS, LOG

ROWS = """\
5,0.5,train,2.0,0.25,0.1
10,1.0,train,0.9,0.5,0.09
10,1.0,validation,0.8,0.625,0.09
20,2.0,train,0.1,0.875,0.05
20,2.0,validation,0.3,0.75,0.05
"""


def silent(text: str) -> None:
    raise AssertionError(text)


def run_folder(folder: Path, rows: str = ROWS) -> Path:
    (folder / CSV).write_text(HEADERS["accuracy"] + rows, encoding="utf-8")
    return folder


def test_a_renamed_run_has_escapes_of_what_the_font_lacks(tmp_path):
    figure = figure_of(read_metrics(run_folder(tmp_path) / CSV), "ü \u7d2b\x1b")
    ages = staleness_figure(Counter([0]), "ü \u7d2b\x1b")
    for each in (figure, ages):
        # What the font lacks is a warning of matplotlib, and so an error here.
        each.draw_without_rendering()
        assert each.get_suptitle().startswith("ü \\u7d2b\\x1b")


@pytest.mark.parametrize(
    "rows",
    [
        "5,0.5,train,2.0,0.25,0.1\n",
        "5,0.5,validation,2.0,0.25,0.1\n",
        "5,0.5,train,nan,0.25,0.1\n6,0.6,train,inf,0.25,0.1\n7,0.7,train,0.0,1.0,0.0\n",
        "".join(f"{i},{i / 9},train,{9.0 / i},0.5,0.1\n" for i in range(1, 2000)),
    ],
    ids=["one point", "validation alone", "not finite", "many points"],
)
def test_any_metrics_can_be_drawn(tmp_path, rows):
    assert draw_curves(run_folder(tmp_path, rows), silent) == tmp_path / CURVES


@pytest.mark.parametrize(
    ("last", "merged"),
    [(21, True), (29, True), (30, False), (45, False)],
    ids=["one step", "almost a window", "a window", "a longer window"],
)
def test_a_short_last_window_does_not_bend_the_curve(tmp_path, last, merged):
    """Its mean becomes a part of that of the window before, in proportion to their steps."""
    rows = f"10,1.0,train,2.0,0.5,0.3\n20,2.0,train,1.0,0.7,0.2\n{last},3.0,train,5.0,0.1,0.1\n"
    figure = figure_of(read_metrics(run_folder(tmp_path, rows) / CSV), "short")
    loss, accuracy, rate = (axes.lines[0] for axes in figure.axes)
    rest = last - 20
    expected = [2.0, (10 * 1.0 + rest * 5.0) / (10 + rest)] if merged else [2.0, 1.0, 5.0]
    np.testing.assert_allclose(np.asarray(loss.get_ydata(), float), expected)
    ends = [1.0, 3.0] if merged else [1.0, 2.0, 3.0]
    for line in (loss, accuracy):
        assert np.asarray(line.get_xdata(), float).tolist() == ends
    # The rate is that of a step, not a mean.
    assert np.asarray(rate.get_ydata(), float).tolist() == [0.3, 0.2, 0.1]


def test_the_settings_of_a_program_that_trains_are_neither_used_nor_changed(tmp_path):
    import logging

    import matplotlib

    draw_curves(run_folder(tmp_path), silent)
    plain = (tmp_path / CURVES).read_bytes()
    log = logging.getLogger("matplotlib")
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "lines.marker": "x"}):
        before, level = dict(matplotlib.rcParams), log.level
        draw_curves(tmp_path, silent)
        assert dict(matplotlib.rcParams) == before
        assert log.level == level
    assert (tmp_path / CURVES).read_bytes() == plain


def test_nothing_logged_is_nothing_drawn(tmp_path):
    assert draw_curves(run_folder(tmp_path, ""), silent) is None
    assert not (tmp_path / CURVES).exists()


@pytest.mark.parametrize("fault", ["no metrics", "torn metrics", "no place"])
def test_a_failure_is_said_and_goes_no_further(tmp_path, fault):
    if fault == "torn metrics":
        run_folder(tmp_path, ROWS + "21,2.1,tr")
    elif fault == "no place":
        run_folder(tmp_path)
        (tmp_path / CURVES).mkdir()
    heard: list[str] = []
    assert draw_curves(tmp_path, heard.append) is None
    (text,) = heard
    assert text.startswith(f"{tmp_path / CURVES}: the curves were not drawn (")


def test_a_long_cell_is_not_repeated(tmp_path):
    run_folder(tmp_path, f"{ROWS}21,2.1,train,{'x' * 100_000},0.5,0.1\n")
    heard: list[str] = []
    assert draw_curves(tmp_path, heard.append) is None
    _, _, reason = heard[0].partition("the curves were not drawn (")
    assert len(reason.removesuffix(")")) == 200


def test_matplotlib_is_loaded_when_it_draws_and_not_before(tmp_path):
    run_folder(tmp_path)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from dnnstack.training import trainer\n"
        "from dnnstack.reports import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"assert plots.draw_curves(Path({str(tmp_path)!r}), print)\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _with_config(folder: Path, schedule: str) -> Path:
    """A run of 40 steps, 10 an epoch, whose log has every fourth rate."""
    config = load_config(
        "digits.yaml", ["train={max_steps: 40}", f"schedule={schedule}", "optimizer.lr=0.5"]
    ).config
    (folder / "config.yaml").write_text(effective_yaml(config), encoding="utf-8")
    chosen = rate_tables(config)[RATES]
    rates = chosen.schedule.table(chosen.lr, Length(40, 10))
    rows = [f"{n},{n / 10},train,1.0,0.5,{rates[n - 1]}\n" for n in range(4, 37, 4)]
    return run_folder(folder, "".join(rows))


def test_every_rate_of_the_schedule_is_drawn(tmp_path):
    """The log has no step at which the rate jumps up again."""
    run = _with_config(tmp_path, "{type: cosine_restarts, cycles: 4}")
    points = read_metrics(run / CSV)
    logged = [
        (int(n), epoch, rate)
        for n, epoch, rate in zip(
            *(points["train"][key] for key in ("step", "epoch", "learning_rate")), strict=True
        )
    ]
    curve = rate_curve(run, logged)
    assert [epoch for epoch, _ in curve] == [n / 10 for n in range(1, 37)]
    assert max(rate for _, rate in curve) == pytest.approx(0.5)
    assert max(rate for _, _, rate in logged) < 0.499
    (line,) = figure_of(points, "a", curve).axes[2].lines
    assert line.get_xydata().tolist() == [list(pair) for pair in curve]
    # After a rollback the rates are others than the config says.
    assert rate_curve(run, [*logged[:-1], (36, 3.6, 0.1)]) == []
    assert rate_curve(run, []) == []
    assert draw_curves(run, silent) is not None
    (run / "config.yaml").write_text("x", encoding="utf-8")
    assert rate_curve(run, logged) == []
    assert draw_curves(run, silent) is not None


def test_a_log_without_ages_has_no_picture_of_them_and_no_note(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text('{"event": "train", "step": 1}\n', encoding="utf-8")
    assert draw_staleness(tmp_path, silent) is None
    (tmp_path / LOG).write_text("torn\n", encoding="utf-8")
    heard: list[str] = []
    assert draw_staleness(tmp_path, heard.append) is None
    assert len(heard) == 1
