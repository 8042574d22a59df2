"""Ranks that are processes which share memory, as GPUs of one machine do."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
from collections.abc import Callable
from typing import Any


def told(ranks: int, nbytes: int, times: int, work: Callable[..., None]) -> list[Any]:
    """What ranks say, each so many times; work: it is given the rank, the addresses of the memory
    of all, and a queue for what it has to say."""
    maps = [mmap.mmap(-1, nbytes) for _ in range(ranks)]
    memory = [ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in maps]
    forked = multiprocessing.get_context("fork")
    said = forked.Queue()
    started = [
        forked.Process(target=work, args=(rank, memory, said), daemon=True) for rank in range(ranks)
    ]
    for process in started:
        process.start()
    found = [said.get(timeout=100) for _ in range(ranks * times)]
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    return found
