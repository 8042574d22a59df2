"""What the rest takes from CUDA, in one place, so that tests can put a stand-in there."""

# ruff: noqa: F401  # what is imported is what the module offers

from __future__ import annotations

from cupy_backends.cuda.api import runtime

from . import driver
from .device_arrays import Pinned, asarray, at_address, empty, ones, pool, zeros, zeros_like
from .streams import Event, Module, Stream, use_device
