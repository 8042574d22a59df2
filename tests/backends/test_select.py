from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.backends import select
from dnnstack.backends.cuda import backend as cuda
from dnnstack.backends.onednn import backend as onednn
from dnnstack.backends.select import open_backend
from dnnstack.common.errors import BackendUnavailableError, UsageError
from dnnstack.common.machine import available_threads


def test_numpy():
    assert open_backend("numpy", 2).name == "numpy"


def test_threads_below_one():
    with pytest.raises(UsageError, match="--threads: expected a whole number of at least 1"):
        open_backend("numpy", 0)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_onednn_numpy_takes_over_and_says_so(device, monkeypatch):
    def missing() -> None:
        raise BackendUnavailableError("libgomp.so.1 is missing; install libgomp1")

    monkeypatch.setattr(onednn, "library", missing)
    monkeypatch.setattr(select, "NVIDIA_DRIVER", Path("/nowhere"))
    notices: list[str] = []
    backend = open_backend(device, 1, notices.append)  # type: ignore[arg-type]
    assert backend.name == "numpy"
    assert notices == [
        "libgomp.so.1 is missing; install libgomp1; computing with NumPy, which is slower"
    ]


def test_without_a_graph_the_cpu_says_that_nothing_changes(monkeypatch):
    notices: list[str] = []
    open_backend("numpy", 1, notices.append, capture=False)
    assert notices == ["--no-graph has no effect here: the CPU makes every call separately"]


def test_more_threads_than_cores_are_noted(monkeypatch):
    monkeypatch.setattr(select, "available_threads", lambda: 2)
    notices: list[str] = []
    open_backend("numpy", 2, notices.append)
    assert notices == []
    open_backend("numpy", 3, notices.append)
    assert notices == [
        "3 threads on 2 cores: they wait for each other and may be many times slower; --threads 2 "
        "uses every core"
    ]


@pytest.mark.parametrize("capture", [True, False])
def test_cuda_is_told_whether_to_capture(capture, monkeypatch):
    monkeypatch.setattr(cuda, "CudaBackend", lambda wanted: wanted)
    assert open_backend("cuda", capture=capture) is capture  # type: ignore[comparison-overlap]


def test_threads_available_to_this_process():
    assert available_threads() >= 1
