"""Work that need not be waited for."""

from __future__ import annotations

import threading
import time

import pytest
from dnnstack.common.errors import DatasetError, Interrupted
from dnnstack.training.signals import check, interruptible


def test_the_result_and_the_error_are_those_of_the_work():
    assert interruptible(lambda: 7, lambda: False) == 7

    def fail() -> None:
        raise DatasetError("missing")

    with pytest.raises(DatasetError, match="missing"):
        interruptible(fail, lambda: False)


def test_a_stop_does_not_wait_for_the_work():
    go = threading.Event()
    began = time.perf_counter()
    with pytest.raises(Interrupted, match="nothing to save"):
        interruptible(lambda: go.wait(60), lambda: True)
    assert time.perf_counter() - began < 50
    go.set()


def test_check():
    check(lambda: False)
    with pytest.raises(Interrupted):
        check(lambda: True)
