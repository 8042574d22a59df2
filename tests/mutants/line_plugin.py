"""A plugin of pytest: which lines of the package each test executes, with what it starts.

It lies beside the recorder, ``sitecustomize``. A fixture that several tests share runs once; its
lines are those of each test that uses it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import sitecustomize  # type: ignore[import-not-found]  # the recorder, under this name

# Where the records are written, a file for each process of pytest.
INTO = "LINE_RECORDS_INTO"


class _Part:
    """The lines and seconds of a test, or of a fixture, until ``end``; those outside then go on."""

    def __init__(self) -> None:
        self._outer = os.environ[sitecustomize.FOLDER]
        self._before = sitecustomize.take()
        self._folder = tempfile.mkdtemp(dir=os.environ[INTO])
        self._begin = time.perf_counter()
        self.lines = 0
        os.environ[sitecustomize.FOLDER] = self._folder

    def end(self) -> float:
        seconds = time.perf_counter() - self._begin
        os.environ[sitecustomize.FOLDER] = self._outer
        self.lines |= _number(sitecustomize.take())
        for path in Path(self._folder).iterdir():
            self.lines |= _number(path.read_bytes())
        shutil.rmtree(self._folder)
        sitecustomize.put(self._before)
        return seconds


class Lines:
    def __init__(self) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        name = f"{worker}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._file = Path(os.environ[INTO], name)
        self._parts: list[_Part] = []
        self._shared: dict[int, tuple[int, float]] = {}
        self._kept: list[Any] = []
        self._passed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._passed = False
        self._parts = [_Part()]
        try:
            return (yield)
        finally:
            part = self._parts.pop()
            seconds = part.end()
            for fixture in _fixtures(item):
                lines, more = self._shared.get(id(fixture), (0, 0.0))
                part.lines |= lines
                seconds += more
            if self._passed:
                self._write(item.nodeid, seconds, part.lines)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        if fixturedef.scope == "function" or not self._parts:
            return (yield)
        self._parts.append(_Part())
        try:
            return (yield)
        finally:
            part = self._parts.pop()
            seconds = part.end()
            # Kept, as another object could have its identity later.
            self._kept.append(fixturedef)
            self._shared[id(fixturedef)] = part.lines, seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._passed = report.passed
        elif report.failed:
            self._passed = False

    def _write(self, test: str, seconds: float, lines: int) -> None:
        packed = zlib.compress(lines.to_bytes((lines.bit_length() + 7) // 8, "little"))
        record = {"test": test, "seconds": seconds, "lines": base64.b85encode(packed).decode()}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("numprocesses", None) or "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(Lines(), "lines of tests")


def _fixtures(item: pytest.Item) -> list[Any]:
    found = getattr(item, "_fixtureinfo", None)
    return [each for defs in found.name2fixturedefs.values() for each in defs] if found else []


def _number(marks: bytes) -> int:
    """The marks as bits, the first line's the lowest."""
    return int(marks[::-1].translate(_DIGITS), 2) if marks else 0


_DIGITS = bytes([ord("0"), *[ord("1")] * 255])
