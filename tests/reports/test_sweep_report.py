"""The report of a sweep: best trials, importance, pictures, and what is not one."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import load_config
from dnnstack.configs.search import Dimension, Search
from dnnstack.many.group import create_group
from dnnstack.many.journal import Journal, Trial
from dnnstack.many.sweeping import open_sweep
from dnnstack.reports.plots import drawn
from dnnstack.reports.sweep_plots import draw_sweep, front_figure
from dnnstack.reports.sweep_report import SweepReport, report_sweep
from dnnstack.reports.sweep_text import as_text, listed, report_text, short_names, trial_line
from dnnstack.training.records.group import Group
from PIL import Image

RATE = Dimension("optimizer.lr", 1e-3, 1.0, log=True)
KIND = Dimension("schedule", values=("fixed", {"type": "poly", "power": 2}, None))
POWER = Dimension("power", 1, 3, whole=True, when={"schedule": ("fixed",)})


def sweep(folder: Path, objective: tuple[str, ...], count: int = 12) -> Path:
    """Trials that are the better, the nearer the rate is to 0.1; some are pruned or open."""
    config = load_config("digits.yaml", [f"run.dir={folder}"]).config
    path = open_sweep(config, Search((RATE, KIND, POWER), objective, trials=count))
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


def axes_of(draw, report):
    """The axes of a picture, which can be written, too."""
    made = []
    assert drawn(lambda: made.append(draw(report)) or made[0]).startswith(b"\x89PNG")
    return made[0].axes


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
    for trial in found.trials:
        line = trial_line(found.search, trial, found.trials)
        assert ("(on the Pareto front); " in line) == (trial in found.best)
    assert set(found.importance) == {"accuracy", "seconds"}
    assert found.to_json()["best_config"] == str(path / "best.yaml")
    pictures = draw_sweep(found, tmp_path / "plots")
    names = ["trials.png", "parallel.png", "validations.png", "importance.png", "front.png"]
    assert [each.name for each in pictures] == names
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in pictures)
    (front,) = axes_of(front_figure, found)
    assert front.get_title() == path.name
    assert (front.get_xlabel(), front.get_ylabel()) == ("accuracy", "seconds")
    assert [len(each.get_offsets()) for each in front.collections] == [6, 4]
    assert front.xaxis.get_major_formatter()(0.5) == "50%"
    assert front.yaxis.get_major_formatter()(0.5) != "50%"


NAMES = ("$x$_y", "\u6f22" * 40, "a\nb", *(f"a long name that ends with {n}" for n in (1, 2)))


@pytest.mark.parametrize("count", [1, 3, 12])
@pytest.mark.parametrize("objective", [("accuracy",), ("loss", "seconds")])
def test_names_and_equal_values_cannot_stop_a_picture(
    tmp_path: Path, count: int, objective: tuple[str, ...]
) -> None:
    keys = [Dimension(f"layers.conv2d_{n}.filters", 1, 9, whole=True) for n in range(11)]
    search = Search((Dimension("$a$", values=NAMES), *keys), objective, trials=count)
    chosen = {each.key: 3 for each in keys}
    trials = [
        Trial(n, {**chosen, "$a$": NAMES[n % len(NAMES)]}, "complete", (0.5,) * len(objective))
        for n in range(count)
    ]
    shares = {name: {"$a$": 1.0} for name in objective} if count == 12 else {}
    path, seen = tmp_path / "a $weird name$", {each.name: () for each in trials}
    pictures = draw_sweep(SweepReport(path, search, trials, trials[:1], shares, seen), tmp_path)
    wanted = ["trials.png", "parallel.png", *["importance.png"] * bool(shares)]
    assert [each.name for each in pictures] == wanted + ["front.png"] * (len(objective) - 1)
    for each in pictures:
        with Image.open(each) as picture:
            assert max(picture.size) < 3000


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
    assert "(best)" in trial_line(search, trials[0], trials)
    line = trial_line(search, trials[1], trials)
    assert line.startswith("trial-2: failed: one line; another; dense_1.units 1, dense_2.units 2")


@pytest.mark.parametrize("count", [3, 12])
def test_trials_are_told_without_optuna(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep(tmp_path, ("accuracy",), count)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["report", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert (len(json.loads(out)["trials"]), json.loads(out)["importance"]) == (count, {})
    assert main(["report", str(path)]) == 0
    out, again = capsys.readouterr()
    assert re.search("^trial-1 ", out, re.MULTILINE)
    assert ("the importance of keys needs 10" in out) == (count < 10)
    assert "drawn" not in out
    told = "the importance of keys and the pictures need Optuna; install it with python3 -m pip"
    assert err == again
    assert told in err
    assert err.count("\n") == 1
    assert not [*path.glob("*.png")]


def test_few_trials_and_none(tmp_path: Path) -> None:
    one = report_sweep(sweep(tmp_path / "one", ("accuracy",), 1))
    assert "the importance of keys needs 10 complete trials" in report_text(one)
    names = ["trials.png", "parallel.png", "validations.png"]
    assert [path.name for path in draw_sweep(one, tmp_path)] == names
    config = load_config("digits.yaml", [f"run.dir={tmp_path}"]).config
    none = report_sweep(open_sweep(config, Search((RATE,))))
    assert report_text(none).endswith("digits-sweep: 0 trials, none")
    assert draw_sweep(none, tmp_path) == []


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    path = create_group(tmp_path, "a-seeds", Group("seeds", ""))
    with pytest.raises(CheckpointError, match="a group of seeds, no sweep; dnnstack runs --group"):
        report_sweep(path)
    path = create_group(tmp_path, "a-sweep", Group("sweep", "", (), '{"dimensions": [1]}'))
    with pytest.raises(CheckpointError, match=r"group.json: its search cannot be read: dimensions"):
        report_sweep(path)
