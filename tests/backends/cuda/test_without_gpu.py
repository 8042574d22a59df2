"""What must hold where there is no GPU."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path

import pytest
from dnnstack.backends import select
from dnnstack.backends.cuda.libraries import cublas_lt, cudnn_library, runtime
from dnnstack.common.errors import BackendUnavailableError, CublasError


@pytest.fixture
def without_cupy(monkeypatch):
    """CuPy cannot be imported, whatever is installed."""
    runtime.cuda_api.cache_clear()
    runtime.device.cache_clear()
    for name in ("cupy_backends", "cupy_backends.cuda.api.runtime"):
        monkeypatch.setitem(sys.modules, name, None)
    yield
    runtime.cuda_api.cache_clear()
    runtime.device.cache_clear()


def test_cuda_says_what_to_install(without_cupy):
    with pytest.raises(BackendUnavailableError, match=r"pip install 'dnnstack\[cuda13\]'"):
        select.open_backend("cuda", 1)


def test_auto_goes_on_without_cuda_and_says_so(without_cupy, monkeypatch, tmp_path):
    driver = tmp_path / "nvidiactl"
    driver.touch()
    monkeypatch.setattr(select, "NVIDIA_DRIVER", driver)
    notices: list[str] = []
    backend = select.open_backend("auto", 1, notices.append)
    assert backend.name in ("onednn", "numpy")
    assert "computing on the CPU" in notices[0]


def test_auto_does_not_try_cuda_without_a_driver(monkeypatch):
    monkeypatch.setattr(select, "NVIDIA_DRIVER", Path("/nowhere/nvidiactl"))
    monkeypatch.setitem(sys.modules, "dnnstack.backends.cuda.backend", None)
    assert select.open_backend("auto", 1).name in ("onednn", "numpy")


def test_torch_is_not_imported_along(monkeypatch):
    """The frontend would import torch where it is installed: it must find that refused."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with runtime._blocked("torch"), pytest.raises(ImportError):
        import torch  # noqa: F401
    assert "torch" not in sys.modules


def test_torch_is_refused_to_this_thread_alone(monkeypatch, tmp_path):
    """A plugin may import it meanwhile."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (tmp_path / "torch.py").write_text("found = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with runtime._blocked("torch"):
        thread = threading.Thread(target=importlib.import_module, args=("torch",))
        thread.start()
        thread.join()
        assert sys.modules["torch"].found
        del sys.modules["torch"]
        with pytest.raises(ImportError):
            importlib.import_module("torch")
    importlib.import_module("torch")
    monkeypatch.delitem(sys.modules, "torch")


def test_library_error_carries_the_call():
    error = CublasError("cuBLAS", "cublasSgemm_v2", "execution failed", {"m": 64, "n": 10})
    assert str(error) == "cuBLAS: cublasSgemm_v2(m=64, n=10) failed: execution failed"


def test_cudnn_and_cupy_must_be_of_one_cuda_version():
    cudnn_library._check_cuda(13, 13)
    with pytest.raises(BackendUnavailableError, match=r"CUDA 12, CuPy for CUDA 13.*\[cuda13\]"):
        cudnn_library._check_cuda(12, 13)


@pytest.mark.parametrize("version", ["1.27.0", "1.28.0", "2.0"])
def test_a_frontend_of_another_kind_is_refused_with_the_way_out(version):
    runtime.check_frontend("1.24.1")
    runtime.check_frontend("1.26.0.post1")
    with pytest.raises(BackendUnavailableError, match=rf"{version} .*pip install '.*<1\.27'"):
        runtime.check_frontend(version)


@pytest.mark.parametrize(
    ("pointer", "expected"), [(0, 256), (64, 64), (3 << 4, 16), (1 << 20, 256), (384, 128)]
)
def test_what_an_address_is_a_multiple_of(pointer, expected):
    assert cublas_lt.alignment(pointer) == expected
