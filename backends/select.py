"""Opens a backend by the name of a device; handles the precision of another device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from ..common.errors import BackendUnavailableError, UsageError
from ..common.machine import available_threads
from ..common.native import keep_freed_memory
from .ahead import NVIDIA_DRIVER, taken
from .base import Backend, Precision
from .cuda.cards import USUAL

_LOG = logging.getLogger("dnnstack.layers")
Device = Literal["auto", "cpu", "numpy", "cuda"]


def open_backend(
    device: Device,
    threads: int | None = None,
    notice: Callable[[str], None] = lambda text: None,
    capture: bool = True,
) -> Backend:
    """The backend of a device: cpu is oneDNN, numpy the reference, auto the fastest available.

    auto selects a GPU if there is one. A backend that cannot be used is reported to ``notice``, and
    the next one is tried: CUDA (for auto), oneDNN, NumPy. Raises BackendUnavailableError if cuda
    was requested and cannot be used, UsageError for a thread count below 1. ``capture``: False
    makes CUDA launch every call separately, for debugging.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"--threads: expected a whole number of at least 1 (got {threads})")
    if device == "cuda" or (device == "auto" and NVIDIA_DRIVER.exists()):
        try:
            return _cuda(capture)
        except BackendUnavailableError as error:
            if device == "cuda":
                raise
            notice(f"{error}; computing on the CPU")
    if not capture:
        notice("--no-graph has no effect here: the CPU makes every call separately")
    keep_freed_memory()
    cores = available_threads()
    count = threads if threads is not None else cores
    if count > cores:
        notice(
            f"{count} threads on {cores} core{'s' * (cores > 1)}: they wait for each other and may "
            f"be many times slower; --threads {cores} uses every core"
        )
    if device != "numpy":
        from .onednn.backend import OneDnnBackend

        try:
            return OneDnnBackend(count)
        except BackendUnavailableError as error:
            notice(f"{error}; computing with NumPy, which is slower")
    from .reference.backend import ReferenceBackend

    return ReferenceBackend(count)


def foreseen_card(
    card: str | None, device: Device | None, configured: Device, measure: bool
) -> str | None:
    """The card whose calls are foreseen: the one named, or the usual one where cuda is wanted and
    there is no GPU; None where a backend is opened. ``device``: in place of the config's.

    Raises UsageError for what no card alone can do.
    """
    if card is not None and device not in (None, "cuda"):
        raise UsageError(f"card {card} is a GPU: it does not go with the device {device}")
    if card is not None and measure:
        raise UsageError(f"nothing can be measured on card {card}, which need not be there")
    wanted = (device or configured) == "cuda" and not measure and not NVIDIA_DRIVER.exists()
    return USUAL if card is None and wanted else card


@contextmanager
def own_streams(device: str) -> Iterator[None]:
    """In this block the backends of a device that this thread opens work beside those of others.

    ``device``: a backend's name. For several trainings on one GPU; on a CPU nothing changes.
    """
    if device != "cuda":
        yield
        return
    from .cuda.libraries.runtime import device as gpu

    with gpu().own_streams():
        yield


def room(device: str) -> int:
    """How many more trainings fit, each with as much memory as this process uses on the device.

    ``device``: a backend's name. On a CPU the system decides, and the answer is 0.
    """
    if device != "cuda":
        return 0
    from .cuda.memory_plan import free_bytes, used_bytes

    return free_bytes() // max(1, used_bytes())


def _cuda(capture: bool) -> Backend:
    """The GPU, which a thread may have opened already."""
    opening = taken(capture)
    if opening is not None:
        return opening.backend()
    from .cuda.backend import CudaBackend

    return CudaBackend(capture)


def precision_or_fp32(backend: Backend, wanted: Precision) -> Precision:
    """``wanted``, or fp32 with a warning if this device does not have it.

    For checkpoints, which may have been trained on another device.
    """
    try:
        backend.precision(wanted)
    except BackendUnavailableError:
        device = "cpu" if backend.name == "onednn" else backend.name
        _LOG.warning("device '%s' does not have precision '%s': computing in fp32", device, wanted)
        return "fp32"
    return wanted
