"""Curves while the training goes on: what they show, and that they cost little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dnnstack.reports import live_curves
from dnnstack.reports.live_curves import SHARE, LiveCurves
from dnnstack.training.listener import Listener, Started
from dnnstack.training.records.formats.state import START, Metrics

FOUND = Metrics(0.5, 3, 4)


class _Drawing:
    """Stands for ``draw_curves``; each drawing takes ``cost`` seconds of a clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.cost, self.fails = 1000.0, 0.5, False
        self.drawn: list[float] = []
        patch.setattr(live_curves, "perf_counter", lambda: self.now)
        patch.setattr(live_curves, "draw_curves", self._draw)

    def _draw(self, run: Path, notice: Any, durable: bool) -> None:
        assert (run, durable) == (Path("runs/x"), False)
        self.drawn.append(self.now - 1000.0)
        self.now += self.cost
        if self.fails:
            notice("no space")


@pytest.fixture
def drawing(monkeypatch):
    return _Drawing(monkeypatch)


def _begun(heard: Listener) -> LiveCurves:
    curves = LiveCurves(heard)
    plan: Any = None
    curves.started(Started(Path("runs/x"), "numpy", plan, START, None))
    return curves


def test_drawing_takes_no_more_than_its_share(drawing):
    curves = _begun(Listener())
    for step in range(3000):
        drawing.now += 0.5
        curves.validated(step, FOUND, False, 0.1)
    seconds = drawing.now - 1000.0
    assert len(drawing.drawn) * drawing.cost <= SHARE * seconds
    assert drawing.drawn[0] == pytest.approx(50.0, abs=1.0)
    assert drawing.drawn[1] - drawing.drawn[0] == pytest.approx(26.0, abs=1.0)
    # A slower machine, or a longer log, waits longer.
    drawing.cost = 3.0
    before = len(drawing.drawn)
    for step in range(2000):
        drawing.now += 0.5
        curves.validated(step, FOUND, False, 0.1)
    assert 5 <= len(drawing.drawn) - before <= 8


def test_what_fails_is_left_to_the_end(drawing):
    heard: list[str] = []

    class Notices(Listener):
        def notice(self, text: str) -> None:
            heard.append(text)

    curves = _begun(Notices())
    drawing.fails = True
    for step in range(1000):
        drawing.now += 1.0
        curves.validated(step, FOUND, False, 0.1)
    assert len(drawing.drawn) == 1
    assert heard == []


def test_a_short_training_draws_nothing_before_its_end(drawing):
    curves = _begun(Listener())
    for step in range(49):
        drawing.now += 1.0
        curves.validated(step, FOUND, False, 0.1)
    assert drawing.drawn == []


def test_everything_is_passed_on():
    """Every method that a listener has, and with what it was called."""
    names = [name for name in vars(Listener) if not name.startswith("_")]
    assert not [name for name in names if getattr(LiveCurves, name) is getattr(Listener, name)]
    calls: list[tuple[str, tuple[Any, ...]]] = []

    class Recorder(Listener):
        def __getattribute__(self, name: str) -> Any:
            if name in names:
                return lambda *given: calls.append((name, given))
            return super().__getattribute__(name)

    curves = LiveCurves(Recorder())
    plan: Any = None
    progress: Any = object()
    start: Any = object()
    given: dict[str, tuple[Any, ...]] = {
        "notice": ("text",),
        "prepared": (),
        "initialized": (start,),
        "started": (Started(Path("x"), "numpy", plan, START, None),),
        "progressed": (progress,),
        "logged": (progress,),
        "validating": (3,),
        "validated": (3, FOUND, True, 0.5),
        "saving": (3, Path("y")),
        "stop_requested": (),
        "ended": (progress, start),
        "close": (),
    }
    assert set(given) == set(names)
    for name in names:
        getattr(curves, name)(*given[name])
    assert calls == [(name, given[name]) for name in names]


def test_a_training_draws_while_it_goes_on(tmp_path, monkeypatch):
    """With a share of everything, the file is there after the first validation."""
    import dnnstack

    from ..support.training_fixtures import TINY

    monkeypatch.setattr(live_curves, "SHARE", 1e9)
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    there: list[bool] = []

    def look(logs: dict[str, Any]) -> None:
        there.append((tmp_path / "runs" / "tiny" / "curves.png").exists())

    dnnstack.train(
        tmp_path / "tiny.yaml", device="numpy", runs_dir=tmp_path / "runs", callbacks=[look]
    )
    assert not there[0]
    assert there[-1]
    assert [path.name for path in (tmp_path / "runs" / "tiny").glob(".*")] == []


def test_every_report_is_passed_on():
    names = [name for name, each in vars(Listener).items() if callable(each)]
    assert len(names) > 6
    assert not [name for name in names if getattr(LiveCurves, name) is getattr(Listener, name)]
