"""Opening a backend by the name of a device; what it makes of another device's precision."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ..common.errors import BackendUnavailableError, UsageError
from .base import Backend, Precision

_LOG = logging.getLogger("dnnstack.layers")
Device = Literal["auto", "cpu", "numpy", "cuda"]
# Present where an NVIDIA driver is loaded: CuPy is imported only then.
NVIDIA_DRIVER = Path("/dev/nvidiactl")


def open_backend(
    device: Device,
    threads: int | None = None,
    notice: Callable[[str], None] = lambda text: None,
    capture: bool = True,
) -> Backend:
    """The backend of a device: cpu is oneDNN, numpy the reference, auto the fastest there is.

    auto takes a GPU where there is one. What cannot be used is said through ``notice``, and the
    next is taken: CUDA (for auto), oneDNN, NumPy. Raises BackendUnavailableError where cuda was
    asked for and cannot be used, UsageError for a thread count below 1. ``capture``: False has CUDA
    launch every call by itself, for debugging.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"--threads must be at least 1, got {threads}")
    if device == "cuda" or (device == "auto" and NVIDIA_DRIVER.exists()):
        from .cuda.backend import CudaBackend

        try:
            return CudaBackend(capture)
        except BackendUnavailableError as error:
            if device == "cuda":
                raise
            notice(f"{error}; computing on the CPU")
    if not capture:
        notice("--no-graph changes nothing here: the CPU launches every call by itself")
    count = threads if threads is not None else available_threads()
    if device != "numpy":
        from .onednn.backend import OneDnnBackend

        try:
            return OneDnnBackend(count)
        except BackendUnavailableError as error:
            notice(f"{error}; computing with NumPy, which is slower")
    from .reference.backend import ReferenceBackend

    return ReferenceBackend(count)


def precision_or_fp32(backend: Backend, wanted: Precision) -> Precision:
    """``wanted``; where this device lacks it, fp32, with a warning.

    For what was trained elsewhere: a checkpoint is no device's own.
    """
    try:
        backend.precision(wanted)
    except BackendUnavailableError:
        device = "cpu" if backend.name == "onednn" else backend.name
        _LOG.warning("precision '%s' is not for device '%s': computing in fp32", wanted, device)
        return "fp32"
    return wanted


def available_threads() -> int:
    """Cores this process may use: its affinity, bounded by its cgroup's CPU quota."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(cores, _quota() or cores))


def _quota() -> int | None:
    """Whole cores of the cgroup's quota (version 2, then 1), rounded up; None without one."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        try:
            folder = Path("/sys/fs/cgroup/cpu")
            limit = (folder / "cpu.cfs_quota_us").read_text("ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text("ascii").strip()
        except OSError:
            return None
    if not limit.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return -(-int(limit) // int(period))
