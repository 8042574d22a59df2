"""Nothing grows with the checkpoints, epochs, predictions and resumes that a process does."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ..support.ran import ran

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"
_SPEC = importlib.util.spec_from_file_location("soak", SCRIPT)
assert _SPEC is not None
assert _SPEC.loader is not None
soak: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["soak"] = soak  # dataclasses look their module up
_SPEC.loader.exec_module(soak)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("scenario", sorted(soak.SCENARIOS))
def test_nothing_grows(scenario, device, request):
    if device == "cuda":
        request.getfixturevalue("cuda")
    command = [sys.executable, SCRIPT, "--small"]
    done = ran(
        [*command, "--scenario", scenario, "--device", device],
        env={**os.environ, soak.SHARED: os.environ.get("PYTEST_XDIST_WORKER", "")},
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["operations"] >= 0.9 * soak.SMALL[scenario]
    assert found["grew"] == [], found
    assert done.returncode == 0, done.stderr


class Leak:
    """Keeps something of every operation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: list[Any] = []
        self.ended = threading.Event()

    def rss_kb(self, i: int) -> None:
        # Not from the heap, which may have room left by what was freed.
        block = mmap.mmap(-1, 8 * mmap.PAGESIZE)
        block.write(bytes([i % 256]) * len(block))
        self.kept.append(block)

    def descriptors(self, i: int) -> None:
        self.kept.append(os.open(self.folder, os.O_RDONLY))

    def threads(self, i: int) -> None:
        self.kept.append(threading.Thread(target=self.ended.wait))
        self.kept[-1].start()

    def files(self, i: int) -> None:
        (self.folder / f"{i}").touch()

    def bytes(self, i: int) -> None:
        with open(self.folder / "one", "ab") as file:
            file.write(bytes(100))

    def nothing(self, i: int) -> None:
        """The file of a run's log may grow, and a jump of memory is no slope."""
        with open(self.folder / "log.jsonl", "ab") as file:
            file.write(bytes(100))
        if i == 320:
            self.kept.append(b"1" * 5_000_000)

    def close(self) -> None:
        self.ended.set()
        for each in self.kept:
            if isinstance(each, int):
                os.close(each)
            elif isinstance(each, threading.Thread):
                each.join()


@pytest.fixture
def young_process():
    """What tests before have left is passed over by the many collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def leak(tmp_path):
    with contextlib.closing(Leak(tmp_path)) as leak:
        yield leak


@pytest.mark.usefixtures("young_process")
@pytest.mark.parametrize("what", ["rss_kb", "descriptors", "threads", "files", "bytes", "nothing"])
def test_what_grows_is_found(leak, what):
    meter = soak.Meter(leak.folder, 400)
    for i in range(401):
        getattr(leak, what)(i)
        meter.done(i)
    grew = soak.figures("checkpoints", meter.samples, 1.0)["grew"]
    # A thread takes memory too.
    assert grew == [] if what == "nothing" else what in grew


@pytest.mark.usefixtures("young_process")
@pytest.mark.parametrize(("each", "grew"), [(0, []), (50, []), (10_000, ["device_kb"])])
def test_growth_of_device_memory_is_found(tmp_path, each, grew):
    done = 0
    meter = soak.Meter(tmp_path, 400, lambda: 10**9 + each * done)
    for done in range(401):
        meter.done(done)
    assert soak.figures("checkpoints", meter.samples, 1.0)["grew"] == grew


def test_what_came_and_went_is_named(tmp_path):
    meter = soak.Meter(tmp_path, 3)
    meter.done(1)
    with (tmp_path / "open").open("w"):
        meter.done(2)
    meter.done(3)
    assert meter.came_and_went() == {str(tmp_path / "open"): 1}
