"""The whole suite runs in half as many processes again as there are cores, a part of it in one."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import pytest

from .conftest import pytest_cmdline_main, pytest_xdist_auto_num_workers

ALONE: dict[str, object] = {
    "numprocesses": None,
    "dist": "no",
    "usepdb": False,
    "trace": False,
    "capture": "fd",
    "collectonly": False,
    "long": False,
}


@pytest.mark.parametrize("paths", [False, True])
@pytest.mark.parametrize(
    ("given", "processes", "dist"),
    [
        ({}, "logical", "worksteal"),
        ({"dist": "loadfile"}, "logical", "loadfile"),
        ({"numprocesses": 0}, 0, "no"),
        ({"numprocesses": 3}, 3, "no"),
        ({"usepdb": True}, None, "no"),
        ({"trace": True}, None, "no"),
        ({"capture": "no"}, None, "no"),
        ({"collectonly": True}, None, "no"),
    ],
)
def test_how_many(paths: bool, given: dict[str, object], processes: object, dist: str) -> None:
    source = pytest.Config.ArgsSource
    config = SimpleNamespace(
        option=Namespace(**{**ALONE, **given}),
        args_source=source.INVOCATION_DIR if paths else source.TESTPATHS,
    )
    pytest_cmdline_main(config)  # type: ignore[arg-type]
    wanted = (given.get("numprocesses"), given.get("dist", "no")) if paths else (processes, dist)
    assert (config.option.numprocesses, config.option.dist) == wanted
    # What is named is run as a whole.
    assert config.option.long == paths


@pytest.mark.parametrize(
    ("cores", "chosen", "processes"), [(1, None, 1), (2, None, 3), (5, None, 7), (2, "2", 2)]
)
def test_there_are_more_than_cores_where_nobody_chose(
    cores: int, chosen: str | None, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", chosen)
    counting = pytest_xdist_auto_num_workers()
    next(counting)
    with pytest.raises(StopIteration) as ended:
        counting.send(cores)
    assert ended.value.value == processes
