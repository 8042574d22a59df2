"""A stand-in for cuDNN: its frontend, the library, and what becomes of trials of plans."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dnnstack.backends.cuda.libraries import conv_graph, conv_plans, cudnn_library, plan_files
from dnnstack.backends.cuda.libraries.conv_graph import ConvGraph
from dnnstack.backends.cuda.libraries.cudnn_library import Cudnn
from dnnstack.common.errors import CudnnError

from ....support.fake_frontend import FakeFrontend


@pytest.fixture
def frontend(fake_cuda, monkeypatch):
    """The stand-in, and a library of cuDNN that only has a version."""
    made = FakeFrontend()
    for module in (conv_plans, cudnn_library, plan_files):
        monkeypatch.setattr(module, "frontend", lambda: made)

    def loaded(library, _):
        library.dll = SimpleNamespace(
            cudnnGetErrorString=lambda: b"",
            cudnnGetVersion=lambda: 91900,
            cudnnGetCudartVersion=lambda: 13000,
        )

    monkeypatch.setattr(cudnn_library.SharedLibrary, "__init__", loaded)
    monkeypatch.setattr(cudnn_library, "cudnn_library", lambda: "")
    monkeypatch.setattr(cudnn_library.device(), "cuda_version", 13000, raising=False)
    return made


@pytest.fixture
def library(frontend, fake_cuda):
    return Cudnn(fake_cuda.Stream())


@pytest.fixture
def trials(monkeypatch):
    """The plans that are tried, of which those in ``wrong`` fail; ``broken`` do not even run."""
    found = SimpleNamespace(tried=[], wrong=set(), broken=set())

    def is_right(kind, operands, window, run, memory):
        run(dict.fromkeys(operands, 7))
        return True

    def verify(graph, index, workspace):
        found.tried.append(index)
        if index in found.broken:
            raise CudnnError("cuDNN frontend", "pygraph", "no memory", {})
        return real(graph, index, workspace) and index not in found.wrong

    real = ConvGraph._verify
    monkeypatch.setattr(conv_graph, "is_right", is_right)
    monkeypatch.setattr(ConvGraph, "_repeats", lambda graph, run: True)
    monkeypatch.setattr(ConvGraph, "_is_exact", lambda graph, run: True)
    monkeypatch.setattr(ConvGraph, "_verify", verify)
    return found
