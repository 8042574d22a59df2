"""The GPU that a thread opens: taken once, and its errors raised where it is taken."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dnnstack.backends import ahead, select
from dnnstack.common.errors import BackendUnavailableError


class Opened:
    """As CudaBackend."""

    name = "cuda"
    error: Exception | None = None

    def __init__(self, capture: bool) -> None:
        self.capture, self.ready = capture, False
        self.thread = threading.get_ident()

    def make_ready(self) -> None:
        if Opened.error is not None:
            raise Opened.error
        self.ready = True


BEGUN: list[str] = []


@pytest.fixture(autouse=True)
def _driver(monkeypatch, tmp_path):
    """A machine with a driver, and a backend that opens nothing."""
    driver = tmp_path / "nvidiactl"
    driver.touch()
    for module in (ahead, select):
        monkeypatch.setattr(module, "NVIDIA_DRIVER", driver)
    found = SimpleNamespace(CudaBackend=Opened)
    monkeypatch.setitem(sys.modules, "dnnstack.backends.cuda.backend", found)
    for name in ("_make_context", "_import_all", "_begin_libraries"):
        monkeypatch.setattr(ahead, name, lambda name=name: BEGUN.append(name))
    BEGUN.clear()
    monkeypatch.setattr(Opened, "error", None)
    yield
    assert ahead.taken(True) is None


def opened(**how: Any) -> Any:
    return select.open_backend("cuda", 1, **how)


def test_what_a_thread_has_opened_is_taken_once():
    ahead.begin(True)
    ahead.begin(True)
    first, second = opened(), opened()
    assert {*BEGUN} == {"_make_context", "_import_all", "_begin_libraries"}
    assert first.ready
    assert first.thread != threading.get_ident() == second.thread
    assert not second.ready


def test_it_is_not_taken_for_launches_of_another_kind():
    ahead.begin(True)
    found = opened(capture=False)
    assert (found.capture, found.ready) == (False, False)


def test_its_error_is_raised_where_it_is_taken(monkeypatch):
    told = BackendUnavailableError("device 'cuda': no GPU")
    monkeypatch.setattr(Opened, "error", told)
    ahead.begin(True)
    with pytest.raises(BackendUnavailableError) as caught:
        opened()
    assert caught.value is told
    monkeypatch.setattr(Opened, "error", RuntimeError("a bug"))
    ahead.begin(True)
    with pytest.raises(RuntimeError, match="a bug"):
        opened()


def test_auto_goes_on_where_it_failed(monkeypatch):
    monkeypatch.setattr(Opened, "error", BackendUnavailableError("too old"))
    ahead.begin(True)
    notices: list[str] = []
    assert select.open_backend("auto", 1, notices.append).name in ("onednn", "numpy")
    assert notices[0] == "too old; computing on the CPU"


def test_without_a_driver_nothing_begins(monkeypatch):
    monkeypatch.setattr(ahead, "NVIDIA_DRIVER", Path("/nowhere"))
    ahead.begin(True)
    assert not opened().ready


def test_the_asking_thread_imports_before_another_opens(monkeypatch):
    """Two that import at once would hinder each other."""
    order: list[tuple[str, bool]] = []

    def noted(name: str) -> Callable[[], None]:
        return lambda: order.append((name, threading.current_thread() is threading.main_thread()))

    for name in ("_import_all", "_begin_libraries"):
        monkeypatch.setattr(ahead, name, noted(name))
    ahead.begin(True)
    assert opened().ready
    assert order == [("_import_all", True), ("_begin_libraries", False)]


def test_what_cannot_be_imported_is_left_to_the_opening(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "dnnstack.backends.cuda.libraries.runtime", None)
    ahead._import_all()


def test_a_driver_that_is_missing_is_left_to_the_runtime(monkeypatch):
    import ctypes

    def missing(_: str) -> None:
        raise OSError("no such library")

    monkeypatch.undo()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    ahead._make_context()


def test_cublas_lt_is_prepared_beside_the_rest(monkeypatch):
    monkeypatch.undo()
    asked: list[tuple[bool, bool]] = []
    ready = threading.Event()

    def warm(tf32: bool) -> None:
        asked.append((tf32, threading.current_thread() is threading.main_thread()))
        ready.set()

    library, device = SimpleNamespace(warm=warm), SimpleNamespace(has_tf32=True)
    for module, name, found in (("cublas_lt", "cublas_lt", library), ("runtime", "device", device)):
        stub = SimpleNamespace(**{name: lambda found=found: found})
        monkeypatch.setitem(sys.modules, f"dnnstack.backends.cuda.libraries.{module}", stub)
    ahead._begin_libraries()
    assert ready.wait(60)
    assert asked == [(True, False)]
