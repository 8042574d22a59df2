"""What makes the start of a command short: the GPU is opened while the config is still read."""

from __future__ import annotations

import gc
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ..common.surroundings import elsewhere

# A key called device, in a block or in braces; what it is of does not matter.
_DEVICE = re.compile(r"\bdevice['\"]?\s*:\s*['\"]?(\w+)")
_LONGEST = 1 << 20
# One for each block that is left of those of a start: later ones may leave garbage.
_left = [None] * 4


@contextmanager
def without_collection() -> Iterator[None]:
    """Look for no cycles among new objects, such as those of imported modules, which stay.

    One search through them takes as long as many imports. In the first blocks of a process, those
    of a command's start, this holds for good.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _left:
            _left.pop()
            gc.freeze()
        if was:
            gc.enable()


def without_settings_beside() -> None:
    """If this folder has a file of matplotlib's settings, maybe a stranger's, leave it unread.

    matplotlib looks for it in the current folder, once, when it is imported.
    """
    if os.path.lexists("matplotlibrc") and "matplotlib" not in sys.modules:
        with elsewhere(), suppress(ImportError):
            import matplotlib  # noqa: F401


def open_gpu(device: str | None, reference: str, overrides: Sequence[str], capture: bool) -> None:
    """Begin to open the GPU if there is one and nothing says that it is not wanted.

    A guess: that of ``run.device`` counts, once the config has been read.
    """
    from ..backends.ahead import NVIDIA_DRIVER, begin

    if NVIDIA_DRIVER.exists() and _may_be_gpu(device, reference, overrides):
        begin(capture)


def _may_be_gpu(device: str | None, reference: str, overrides: Sequence[str]) -> bool:
    if device is not None:
        return device in ("auto", "cuda")
    named = [
        text.strip("\"' ")
        for key, _, text in (each.partition("=") for each in overrides)
        if key.strip() == "run.device"
    ] or _DEVICE.findall(_text(reference))
    return all(each in ("auto", "cuda") for each in named[-1:])


def _text(reference: str) -> str:
    """The config's text if that is a file; a pipe could be read only once."""
    from ..configs.find import find_config

    with suppress(Exception):
        path = find_config(reference).path
        if stat.S_ISREG(os.stat(path).st_mode):
            with path.open(encoding="utf-8", errors="replace") as file:
                return file.read(_LONGEST)
    return ""
