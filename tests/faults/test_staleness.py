"""The picture of an asynchronous training: each of its calls on files fails once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from dnnstack.reports import plots, staleness
from dnnstack.training.records.formats.run_log import LOG

LINE = '{"event": "log", "staleness": {"0": 2, "3": 1}}\n'
CALLS = ("open", "fdopen", "fsync", "replace")
OLD, NEW = b"a picture", b"another picture"


def failing(real: Callable[..., Any], number: int, error: int, done: list[int]) -> Any:
    """The function, of which one call fails; ``done`` gets a number for each."""

    def call(*given: Any, **options: Any) -> Any:
        done.append(len(done))
        if len(done) == number + 1:
            raise OSError(error, os.strerror(error))
        return real(*given, **options)

    return call


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("name", CALLS)
def test_a_picture_is_whole_or_a_line_says_why_there_is_none(name, error, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "drawn", lambda draw, form: NEW)
    log, picture = tmp_path / LOG, tmp_path / staleness.STALENESS
    log.write_text(LINE)
    number, reached = 0, True
    while reached:
        picture.write_bytes(OLD)
        said: list[str] = []
        done: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), number, error, done))
            found = staleness.draw_staleness(tmp_path, said.append)
        reached, number = len(done) > number, number + 1
        if found is None:
            (line,) = said
            assert line.startswith(f"{picture}: the staleness was not drawn (")
            assert os.strerror(error) in line
        assert picture.read_bytes() in ((NEW,) if found else (OLD, NEW))
        assert log.read_text() == LINE
        assert {path.name for path in tmp_path.iterdir()} == {log.name, picture.name}
    assert number > 1
