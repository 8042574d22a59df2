"""Other programs on the cores: what is counted, and when it is worth a word."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from dnnstack.backends.settling import DISTURBED
from dnnstack.cli import console
from dnnstack.cli.progress import Lines
from dnnstack.common import machine_load
from dnnstack.common.machine_load import Others, Watch
from dnnstack.training.listener import Progress
from dnnstack.training.records.formats.state import Metrics

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets the clock, the cores' seconds of work and this process's; two of three cores are its."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(machine_load, "_STAT", stat)
    monkeypatch.setattr(machine_load.os, "sched_getaffinity", lambda pid: {0, 2})
    monkeypatch.setattr(machine_load.os, "sysconf", lambda name: 100)

    def show(at: float, own: float, first: float, third: float) -> None:
        lines = ["cpu 1 1 1 1 1 1 1 1 1 1"]
        for core, seconds in enumerate((first, 1000.0 * at, third)):
            half = round(50 * seconds)
            # user nice system idle iowait irq softirq steal guest guest_nice
            lines.append(f"cpu{core} {half} 0 {half} {at * 7:.0f} {at * 9:.0f} 0 0 0 {half} 0")
        stat.write_text("\n".join([*lines, "intr 1 2", ""]), encoding="ascii")
        monkeypatch.setattr(machine_load.time, "monotonic", lambda: at)
        monkeypatch.setattr(machine_load.os, "times", lambda: SimpleNamespace(user=own, system=0.0))

    return show


def test_own_work_idle_time_and_other_cores_do_not_count(machine):
    machine(10.0, own=1.0, first=100.0, third=50.0)
    others = Others()
    machine(12.0, own=2.0, first=101.5, third=51.5)
    assert others.cores() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("work", "threads", "free"),
    [(0.0, 2, 0), (0.4, 2, 0), (0.6, 2, 1), (1.0, 2, 1), (2.0, 2, 1), (1.0, 1, 0), (2.0, 1, 0)],
)
def test_advice_comes_where_threads_are_more_than_free_cores(machine, work, threads, free):
    machine(0.0, own=0.0, first=0.0, third=0.0)
    others = Others()
    machine(1.0, own=0.0, first=work / 2, third=work / 2)
    text = others.advice(threads)
    assert text.endswith(f"; --threads {free} may be faster") if free else text == ""
    assert (f"keep {work:.1f} of 2 cores" in text) == bool(free)


def test_a_remark_on_times(machine):
    machine(0.0, own=0.0, first=0.0, third=0.0)
    others = Others()
    machine(1.0, own=0.9, first=0.9, third=0.1)
    assert others.remark() == ""
    machine(1.0, own=0.9, first=0.9, third=0.5)
    assert others.remark().startswith(
        "other programs kept 0.5 of 2 cores busy during the measurement"
    )


def test_nothing_is_said_where_nothing_is_known(machine, monkeypatch):
    machine(0.0, own=0.0, first=0.0, third=0.0)
    others = Others()
    machine(0.05, own=0.0, first=0.1, third=0.1)
    assert others.cores() is None
    machine(1.0, own=0.0, first=2.0, third=2.0)
    monkeypatch.setattr(machine_load, "_STAT", Path("nowhere"))
    assert (others.cores(), others.advice(2), others.remark()) == (None, "", "")


def test_a_training_is_watched_in_stretches(machine):
    machine(0.0, own=0.0, first=0.0, third=0.0)
    watch = Watch(2)
    machine(4.9, own=0.0, first=4.9, third=4.9)
    assert watch() == ""
    machine(5.1, own=0.0, first=5.1, third=0.0)
    assert "keep 1.0 of 2 cores busy" in watch()
    machine(9.0, own=0.0, first=9.0, third=0.0)
    assert watch() == ""
    # The second stretch was quiet, whatever the first was; in the third they had a share.
    machine(10.2, own=0.0, first=5.9, third=0.0)
    assert watch() == ""
    machine(15.3, own=0.0, first=7.1, third=0.0)
    assert "keep 0.2 of 2 cores busy" in watch()


def test_advice_is_given_once(capsys):
    texts = ["", "", "take less", "never asked for"]
    lines = Lines()
    lines.advice = lambda: texts.pop(0)
    progress = Progress(1, 10, 0.1, 1.0, Metrics(0.5, 5, 10), 0.1, 100.0, 9.0)
    for _ in range(6):
        lines.logged(progress)
    out, err = capsys.readouterr()
    assert (out.count("step"), err) == (6, "dnnstack: take less\n")
    assert texts == ["never asked for"]


def test_a_note_of_a_busy_machine_comes_once_an_hour(monkeypatch, tmp_path):
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "new"))
    assert [console.hourly("load", text) for text in ("", "a", "", "b")] == ["", "a", "", ""]
    assert console.hourly("other", "c") == "c"
    an_hour_ago = time.time() - 3601.0
    os.utime(tmp_path / "new" / "told-load", (an_hour_ago, an_hour_ago))
    assert [console.hourly("load", text) for text in ("d", "e")] == ["d", ""]
    monkeypatch.setenv("DNNSTACK_CACHE", "/dev/null/nowhere")
    assert [console.hourly("load", text) for text in ("f", "g")] == ["f", "g"]


@pytest.mark.parametrize(
    ("work", "threads", "crowded"),
    [(0.0, 2, False), (0.1, 2, False), (0.3, 2, True), (1.0, 1, False), (1.3, 1, True)],
)
def test_other_programs_crowd_out_threads_that_need_their_cores(machine, work, threads, crowded):
    machine(0.0, own=0.0, first=0.0, third=0.0)
    others = Others()
    assert not others.crowd(threads)
    machine(1.0, own=0.0, first=work / 2, third=work / 2)
    assert others.crowd(threads) == crowded


def test_a_moment_is_enough_to_see_a_crowd(machine, monkeypatch):
    for busy in (0.0, 2.0):
        machine(0.0, own=0.0, first=0.0, third=0.0)

        def pass_by(seconds: float, busy: float = busy) -> None:
            work = seconds * busy / 2
            machine(seconds, own=0.0, first=work, third=work)

        monkeypatch.setattr(machine_load.time, "sleep", pass_by)
        assert machine_load.crowded(2) == (busy > 0)


def test_a_disturbed_search_is_told_once_an_hour(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "disturbed"))
    for text in (DISTURBED, "another note", DISTURBED, "another note"):
        console.note(text)
    said = capsys.readouterr().err
    assert said.count("other programs kept this device busy") == 1
    assert said.count("another note") == 2
