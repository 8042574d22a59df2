"""The report of a sweep: best trials, importance, pictures, and what is not one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import load_config
from dnnstack.configs.search import Dimension, Search
from dnnstack.many.group import create_group
from dnnstack.many.journal import Journal, Trial
from dnnstack.many.sweeping import begin_sweep
from dnnstack.reports.sweep_plots import (
    Scale,
    draw_sweep,
    front_figure,
    parallel_figure,
    trials_figure,
)
from dnnstack.reports.sweep_report import report_sweep
from dnnstack.reports.sweep_text import as_text, listed, report_text, short_names, trial_line
from dnnstack.training.records.group import Group

RATE = Dimension("optimizer.lr", 1e-3, 1.0, log=True)
KIND = Dimension("schedule", values=("fixed", {"type": "poly", "power": 2}, None))
POWER = Dimension("power", 1, 3, whole=True, when={"schedule": ("fixed",)})


def sweep(folder: Path, objective: tuple[str, ...], count: int = 12) -> Path:
    """Trials that are the better, the nearer the rate is to 0.1; some are pruned or open."""
    config = load_config("digits.yaml", [f"run.dir={folder}"]).config
    path = begin_sweep(config, Search((RATE, KIND, POWER), objective, trials=count))
    journal = Journal(path)
    for number in range(count):
        kind = KIND.values[number % 3]
        power = {"power": 1 + number % 2} if kind == "fixed" else {}
        rate = 10.0 ** (-3 * number / count)
        trial = Trial(number, {"optimizer.lr": rate, "schedule": kind, **power})
        journal.begin(trial)
        values = (1 - abs(rate - 0.1), 2.0 + number)[: len(objective)]
        if number == 1:
            journal.end(Trial(number, trial.params, "pruned", why="worse than the median"))
        elif number != count - 1 or count == 1:
            journal.end(Trial(number, trial.params, "complete", values, (), 1.0, 1.0))
    (path / "trial-1").mkdir()
    lines = [
        {"event": "validation", "step": step, "accuracy": 0.5, "loss": 1.0} for step in (10, 20)
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (path / "trial-1" / "log.jsonl").write_text(text, encoding="utf-8")
    return path


def one_validation(path: Path) -> Path:
    """The same sweep, whose trials were validated once."""
    log = path / "trial-1" / "log.jsonl"
    log.write_text(log.read_text("utf-8").splitlines()[0] + "\n", encoding="utf-8")
    return path


def test_the_best_trials_and_what_matters(tmp_path: Path) -> None:
    found = report_sweep(sweep(tmp_path, ("accuracy",)))
    assert found.best[0].name == "trial-5"
    (shares,) = found.importance.values()
    assert shares["optimizer.lr"] > 0.5
    assert sum(shares.values()) == pytest.approx(1.0)
    text = report_text(found)
    assert "12 trials, 10 complete, 1 pruned, 1 open" in text
    rows = text.splitlines()
    assert rows[3].split()[:4] == ["trial-5", "100.00%", "0.1", "{type:"]
    assert any(row.startswith("optimizer.lr  ") and row.endswith("%") for row in rows)
    assert "best config" not in text
    json.dumps(found.to_json())
    rows = listed(found.path, found.search, found.trials).splitlines()[3:]
    states = ["complete", "pruned", *["complete"] * 9, "open"]
    assert [row.split()[1] for row in rows] == states


def test_two_objectives_have_a_front_and_pictures(tmp_path: Path) -> None:
    path = sweep(tmp_path, ("accuracy", "seconds"))
    (path / "best.yaml").write_text("x", encoding="utf-8")
    found = report_sweep(path)
    assert sorted(trial.name for trial in found.best) == [
        "trial-1",
        "trial-3",
        "trial-4",
        "trial-5",
    ]
    said = "the Pareto front, 4 of 10 complete trials: no other one is better in both objectives"
    assert f"{said};\ndnnstack runs --sweep {path.name} lists all" in report_text(found)
    assert "(on the Pareto front); lr " in trial_line(found.search, found.best[0], True)
    assert set(found.importance) == {"accuracy", "seconds"}
    assert found.to_json()["best_config"] == str(path / "best.yaml")
    drawn = draw_sweep(found, tmp_path / "plots")
    names = ["trials.png", "parallel.png", "importance.png", "front.png"]
    assert [each.name for each in drawn] == names
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in drawn)
    for figure in (trials_figure, parallel_figure, front_figure):
        assert figure(found).get_suptitle() == path.name
    front = front_figure(found).axes[0]
    assert [len(line.get_xdata()) for line in front.lines] == [10, 4, 4]
    # A line through five axes for each complete trial; a key that a trial lacks is below its own.
    lines = [line for line in parallel_figure(found).axes[0].lines if len(line.get_xdata()) == 5]
    assert len(lines) == 10
    assert sum(line.get_ydata()[2] < 0 for line in lines) == 6
    parallel = parallel_figure(found).axes[0]
    assert [text.get_text() for text in parallel.texts].count("unset") == 1
    # An opaque box: no line is seen behind a text.
    for axes in (parallel, front):
        assert axes.texts
        assert all(text.get_bbox_patch().get_alpha() is None for text in axes.texts)
    assert len(trials_figure(found).axes) == 3
    low, high = (axes := trials_figure(report_sweep(one_validation(path))).axes[-1]).get_xlim()
    steps = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert steps
    assert all(step == round(step) for step in steps)


def test_heads_tell_keys_apart() -> None:
    keys = ["optimizer.lr", "layers.dense_1.units", "layers.dense_2.units", "seed", "data.seed"]
    assert short_names(keys) == {
        "optimizer.lr": "lr",
        "layers.dense_1.units": "dense_1.units",
        "layers.dense_2.units": "dense_2.units",
        "seed": "seed",
        "data.seed": "data.seed",
    }


@pytest.mark.parametrize("count", [3, 5, 9])
def test_every_key_is_told_in_a_narrow_terminal(tmp_path: Path, count: int) -> None:
    """As a table with whole heads; of many keys, as a paragraph for each trial."""
    keys = [f"layers.dense_{number}.units" for number in range(1, count + 1)]
    search = Search((*(Dimension(key, 1, 9, step=1, whole=True) for key in keys), KIND))
    chosen = {key: number for number, key in enumerate(keys, 1)}
    trials = [
        Trial(0, {**chosen, "schedule": KIND.values[1]}, "complete", (0.5,), (), 1.0, 1.0),
        Trial(1, chosen, "failed", why="one line\n  another"),
    ]
    text = as_text(tmp_path, search, trials, 80)
    assert max(map(len, text.splitlines()[1:])) <= 80
    for key in keys:
        assert text.count(key.removeprefix("layers.")) == 1
    states = listed(tmp_path, search, trials, 80)
    assert max(map(len, states.splitlines()[1:])) <= 80
    assert re.search(r"trial-2 +failed", states)
    if count == 9:
        assert "trial-1  accuracy 50.00%; dense_1.units 1, dense_2.units 2," in text
        assert "trial-2  failed; dense_1.units 1," in states
    line = trial_line(search, trials[1], False)
    assert line.startswith("trial-2: failed: one line; another; dense_1.units 1, dense_2.units 2")


@pytest.mark.parametrize(
    ("low", "high", "step", "ticks"),
    [
        (32, 128, 32, ["32", "64", "96", "128"]),
        (1, 3, 1, ["1", "2", "3"]),
        (0.1, 0.7, 0.3, ["0.1", "0.4", "0.7"]),
        (0.0, 1.0, 0.0, ["0", "0.25", "0.5", "0.75", "1"]),
        # Round values between the ends, which are those of the search.
        (0.2, 0.97, 0.0, ["0.2", "0.4", "0.6", "0.8", "0.97"]),
        (8, 300, 4, ["8", "100", "200", "300"]),
    ],
)
def test_ticks_are_values_that_a_trial_can_have(
    low: float, high: float, step: float, ticks: list[str]
) -> None:
    scale = Scale.of_key(Dimension("layers.dense_1.units", low, high, step=step))
    assert [text for _, text in scale.ticks()] == ticks
    assert [scale.place(float(text)) for text in ticks] == pytest.approx(
        [place for place, _ in scale.ticks()]
    )


def test_ticks_of_results_and_of_logarithms() -> None:
    texts = [text for _, text in Scale.of_numbers("accuracy", [0.0835, 0.891, 0.4]).ticks()]
    assert texts == ["8.35%", "25%", "50%", "75%", "89.10%"]
    scale = Scale.of_key(Dimension("optimizer.lr", 0.001, 0.5, log=True))
    assert [text for _, text in scale.ticks()] == ["0.001", "0.01", "0.1", "0.5"]
    assert {text: place for place, text in scale.ticks()}["0.1"] == scale.place(0.1)
    near = Scale.of_key(Dimension("optimizer.lr", 0.01, 0.3, log=True))
    assert [text for _, text in near.ticks()] == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.3"]


def test_a_legend_tells_the_best_from_the_last(tmp_path: Path) -> None:
    path = sweep(tmp_path, ("accuracy",), 3)
    lines = [
        {"event": "validation", "step": step, "accuracy": accuracy, "loss": 1.0}
        for step, accuracy in ((10, 0.2), (20, 0.099), (30, 0.05))
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (path / "trial-1" / "log.jsonl").write_text(text, encoding="utf-8")
    figure = trials_figure(report_sweep(path))
    figure.draw_without_rendering()
    axes = figure.axes[-1]
    first, ring = (text.get_text() for text in axes.get_legend().get_texts())
    assert first == "trial-1: best 10.00%, last 5.00%"
    assert ring == "best accuracy"
    (marked,) = [each for each in axes.lines if each.get_marker() == "o" and len(each.get_xdata())]
    assert (list(marked.get_xdata()), list(marked.get_ydata())) == ([10], [0.2])
    for axes in figure.axes:
        assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1


def test_few_trials_and_none(tmp_path: Path) -> None:
    one = report_sweep(sweep(tmp_path / "one", ("accuracy",), 1))
    assert "the importance of keys needs 10 complete trials" in report_text(one)
    assert [path.name for path in draw_sweep(one, tmp_path)] == ["trials.png", "parallel.png"]
    config = load_config("digits.yaml", [f"run.dir={tmp_path}"]).config
    none = report_sweep(begin_sweep(config, Search((RATE,))))
    assert report_text(none).endswith("digits-sweep: 0 trials, none")
    assert draw_sweep(none, tmp_path) == []


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    path = create_group(tmp_path, "a-seeds", Group("seeds", ""))
    with pytest.raises(CheckpointError, match="a group of seeds, no sweep; dnnstack runs --group"):
        report_sweep(path)
    path = create_group(tmp_path, "a-sweep", Group("sweep", "", (), '{"dimensions": [1]}'))
    with pytest.raises(CheckpointError, match=r"group.json: its search cannot be read: dimensions"):
        report_sweep(path)
