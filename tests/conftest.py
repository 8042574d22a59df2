"""No test reaches beyond this machine; what tests have counted is summed up at the end."""

from __future__ import annotations

import gc
import ipaddress
import logging
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A machine that is busy with other things is no fault of the code.
settings.register_profile("patient", parent=settings(), deadline=None)
settings.load_profile("patient")


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


@pytest.fixture
def norms_by_onednn(monkeypatch):
    """Batch norms of few values go the way of large ones, for which they stand."""
    monkeypatch.setattr("dnnstack.backends.onednn.norm.FEW", 0)


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
