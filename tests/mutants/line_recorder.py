"""Marks the lines of the package that a process executes. PYTEST_DONT_REWRITE

It lies, as ``sitecustomize``, beside a copy of the package on PYTHONPATH, so that every Python
process which a test starts begins with it. The marks are a byte a line, in a file that is mapped
into memory: they are there however the process ends, and marking makes no call of the system. The
file is in the folder that the environment names at that time, one folder for each test.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

FOLDER = "LINE_RECORDS"
# Of every file of the package: the mark of the line before its first one.
INDEX = "lines.json"
_HOME = os.path.dirname(os.path.abspath(__file__))

_starts: dict[str, int] = {}
_marks: Any = bytearray()
_size = 0
_forked = False


def begin() -> None:
    """Mark from now on, here and in children that are forked."""
    global _size
    with open(os.path.join(_HOME, INDEX), encoding="utf-8") as file:
        index = json.load(file)
    _size = index.pop("")
    _starts.update((os.path.join(_HOME, "dnnstack", name), at) for name, at in index.items())
    _open()
    os.register_at_fork(after_in_child=_after_fork)
    if sys.version_info >= (3, 12):
        _monitor()
    else:
        sys.settrace(_trace)
        threading.settrace(_trace)


def take() -> bytes:
    """The marks so far, which are then removed: every line counts anew."""
    marks = bytes(_marks)
    _marks[:] = bytes(_size)
    _again()
    return marks


def put(marks: bytes) -> None:
    """Go on with these marks."""
    _marks[:] = marks
    _again()


def _open() -> None:
    """A new file, or none if the folder is gone or this process may not write there."""
    global _marks
    try:
        name = os.path.join(os.environ[FOLDER], f"{os.getpid()}-{time.monotonic_ns()}")
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.ftruncate(file, _size)
        _marks = mmap.mmap(file, _size)
        os.close(file)
    except (OSError, KeyError):
        _marks = bytearray(_size)


def _after_fork() -> None:
    """The child may set its environment before it does anything else: see support/commands.py."""
    global _forked
    _forked = True
    _again()


def _mark(file: str, line: int) -> None:
    global _forked
    if _forked:
        _forked = False
        _open()
    _marks[_starts[file] + line] = 1


if sys.version_info >= (3, 12):
    _TOOL = sys.monitoring.COVERAGE_ID

    def _monitor() -> None:
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(_TOOL, "line_recorder")
        sys.monitoring.register_callback(_TOOL, events.PY_START, _started)
        sys.monitoring.register_callback(_TOOL, events.LINE, _reached)
        sys.monitoring.set_events(_TOOL, events.PY_START)

    def _started(code: CodeType, offset: int) -> object:
        if code.co_filename in _starts:
            sys.monitoring.set_local_events(_TOOL, code, sys.monitoring.events.LINE)
        return sys.monitoring.DISABLE

    def _reached(code: CodeType, line: int) -> object:
        _mark(code.co_filename, line)
        return sys.monitoring.DISABLE

    def _again() -> None:
        sys.monitoring.restart_events()

else:

    def _trace(frame: FrameType, event: str, argument: object) -> Any:
        return _trace_lines if frame.f_code.co_filename in _starts else None

    def _trace_lines(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            _mark(frame.f_code.co_filename, frame.f_lineno)
        return _trace_lines

    def _again() -> None:
        pass


if FOLDER in os.environ:
    begin()
