"""The whole suite takes all cores; no test reaches beyond this machine; counts are summed up."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from .support import costly

# A machine that is busy with other things is no fault of the code.
settings.register_profile("patient", parent=settings(), deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        help="run the tests marked long, too, as is done with those of files that are named",
    )
    parser.addoption(
        "--turn",
        type=int,
        help="make a third of the cases of tests/support/turns.txt; this number and the next two"
        " make all",
    )


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Half as many processes again as there are cores: tests often wait for files and processes."""
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else cores + cores // 2


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """All cores run the suite, where neither paths nor another number of processes are asked for.

    A few files would be done before the processes have started. Neither a debugger nor what a test
    prints finds its way through one.
    """
    option = config.option
    if hasattr(config, "workerinput"):
        # It has the options of the process that has started it.
        return
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    option.long = option.long or chosen
    asked = getattr(option, "numprocesses", 0) is not None
    shown = option.usepdb or option.trace or option.capture == "no" or option.collectonly
    if not (chosen or asked or shown):
        option.numprocesses = "logical"
        if option.dist == "no":
            # Tests take from milliseconds to half a minute: who is done takes some of the others'.
            option.dist = "worksteal"


# What a shell starts in the background, or nohup starts, ignores these, and so would every process
# that a test starts and then sends them to.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _interrupts = _number == signal.SIGINT
        signal.signal(_number, signal.default_int_handler if _interrupts else signal.SIG_DFL)


def _loopback_alone(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: connections and names go no further than loopback."""
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    try:
        near = name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        near = False
    if not near:
        raise RuntimeError(f"a test wants to reach {name}; serve it on loopback")


sys.addaudithook(_loopback_alone)


@pytest.fixture(autouse=True, scope="session")
def _offline():
    """Missing data is an error at once, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSTACK_OFFLINE", "1")
        yield


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine():
    """Nothing that is chosen or told depends on what else this machine is doing."""
    from dnnstack.common import machine_load

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_load, "_STAT", Path("nowhere"))
        yield


@pytest.fixture(autouse=True)
def _default_loudness():
    """No test hears less because a command that ran before it in this process was to be quiet."""
    logging.getLogger("dnnstack").setLevel(logging.NOTSET)
    console = sys.modules.get("dnnstack.cli.console")
    if console is not None:
        console._quiet = False


@pytest.fixture(autouse=True, scope="module")
def _free_memory():
    """Networks that refer to themselves in circles are gone before the next file's are built."""
    yield
    gc.collect()


@pytest.fixture
def norms_by_onednn(monkeypatch):
    """Batch norms of few values go the way of large ones, for which they stand."""
    monkeypatch.setattr("dnnstack.backends.onednn.norm.FEW", 0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item, marks in costly.marks(items):
        for mark in marks:
            item.add_marker(mark)
    long, turn = config.option.long, config.option.turn

    def is_made(item: pytest.Item) -> bool:
        asked = long or not item.get_closest_marker("long")
        return asked and (turn is None or costly.has_turn(item, turn))

    config.hook.pytest_deselected(items=[item for item in items if not is_made(item)])
    items[:] = [item for item in items if is_made(item)]


def pytest_collection_finish() -> None:
    """A collection of garbage passes over the tests themselves, which are more than all else."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The sums of the numbers that tests recorded as properties."""
    sums: Counter[str] = Counter()
    for kind in ("passed", "failed"):
        for report in terminalreporter.stats.get(kind, ()):
            for name, value in getattr(report, "user_properties", ()):
                if isinstance(value, int):
                    sums[name] += value
    for name, value in sorted(sums.items()):
        terminalreporter.write_line(f"{name}: {value:,}")
