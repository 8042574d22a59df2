"""A search beside other programs on the same cores is noticed, and done again when it is quiet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn import backend as backend_module
from dnnstack.backends.onednn.convolution import candidate_layouts
from dnnstack.backends.settling import DISTURBED
from dnnstack.common import machine_load


class Cores:
    """Two cores as /proc/stat shows them; ``busy`` of them with other programs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ticks, self._at = 0.0, time.monotonic()
        self.busy = 0.0

    def read_text(self, encoding: str) -> str:
        now = time.monotonic()
        # This process's own work is part of what is read, and is subtracted.
        self._ticks += 100 * self.busy * (now - self._at)
        self._at = now
        own = machine_load.os.times()
        ticks = round(self._ticks + 100 * (own.user + own.system))
        return f"cpu {ticks} 0 0 0 0 0 0 0\ncpu0 {ticks} 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n"


@pytest.fixture
def cores(tmp_path, monkeypatch):
    found = Cores(tmp_path)
    monkeypatch.setattr(machine_load, "_STAT", found)
    monkeypatch.setattr(machine_load.os, "sched_getaffinity", lambda pid: {0, 1})
    return found


@pytest.fixture
def searches(monkeypatch):
    """The layouts that one search after another finds."""
    found: list[str] = []

    def search(graph: object, defaults: dict[str, str], seconds: object) -> dict[str, str]:
        time.sleep(0.2)
        layouts = candidate_layouts()
        found.append(layouts[len(found) % len(layouts)])
        return dict.fromkeys(defaults, found[-1])

    monkeypatch.setattr(backend_module, "search", search)
    return found


def test_only_the_first_of_many_trainings_waits_for_a_quiet_moment(
    make, cores, searches, monkeypatch
):
    """Those that follow in this process have its choices, also once it is quiet."""
    asked: list[int] = []
    real = backend_module.crowded
    monkeypatch.setattr(backend_module, "crowded", lambda n: asked.append(n) or real(n))
    cores.busy = 1.9
    found = [make(options=Options())[2] for _ in range(3)]
    cores.busy = 0.0
    found.append(make(options=Options())[2])
    assert asked == [1]
    assert len(searches) == 1
    assert all(each.tuning == found[0].tuning for each in found)
    assert all(each.notices == (DISTURBED,) for each in found)


def test_a_load_that_is_unknown_marks_nothing(make, searches, monkeypatch):
    monkeypatch.setattr(machine_load, "_STAT", Path("nowhere"))
    _, _, executable = make(options=Options())
    assert executable.notices == ()
    assert not machine_load.crowded(64)


def test_a_checkpoint_s_choices_are_kept_beside_a_marked_table(make, cores, searches):
    cores.busy = 1.9
    _, _, first = make(options=Options())
    cores.busy = 0.0
    _, _, again = make(options=Options(tuning=first.tuning))
    assert (again.tuning, again.notices) == (first.tuning, ())
    assert len(searches) == 1
