"""Memory of every rank's GPU that the GPUs of the others write to, by CUDA's interprocess handles.

It is made at the first call that needs it, by all ranks together, as the connection of NCCL is.
Where one of them cannot, none does: a GPU on another machine or behind a virtual one, or GPUs that
no link lets reach each other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...base import Array
from ...collectives import Communicator, joined
from .runtime import cuda_api, device_errors

# As peers.cuh has them.
BLOCKS, TAIL, AREAS = 128, 192, 2
# Bytes that the other ranks send at once, in powers of two: of more, NCCL is as fast.
LEAST, MOST = 4 << 20, 32 << 20
# Bytes of a rank's numbers with their turns, and how many of the numbers alone go so: as many as
# are soon sent twice over.
LINE_ROOM, FEW = 512 << 10, 256 << 10
# Blocks of a sum that others compute beside: fewer, for each waits for the other ranks.
BESIDE_BLOCKS = 32
# Ranks whose values a thread holds at once.
MOST_RANKS = 8
# CUDA_IPC_HANDLE_SIZE and cudaIpcMemLazyEnablePeerAccess of driver_types.h.
HANDLE_BYTES, ENABLE = 64, 1
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_BYTES = 36
_found: dict[tuple[int, int], Peers | None] = {}


def room(ranks: int, size: int) -> int:
    """The most bytes of a sum: with more ranks fewer, for every one brings its own."""
    return size // (ranks - 1) // 16 * 16


def size_for(ranks: int, nbytes: int) -> int | None:
    """The size of a memory in which ranks add up so many bytes; None if there is none."""
    size = LEAST
    while size <= MOST:
        if nbytes <= room(ranks, size):
            return size
        size *= 2
    return None


def memory_bytes(ranks: int, size: int) -> int:
    """What a rank's memory takes; see the layout in peers.cuh."""
    told = BLOCKS + 1
    turns = 4 * AREAS * ranks * told
    tails = -(-(turns + 4 * AREAS * told) // 128) * 128
    boxes = AREAS * 2 * (ranks - 1) * (LINE_ROOM + room(ranks, size))
    return tails + 8 * AREAS * 2 * ranks * TAIL + boxes


class Peers:
    """The ranks' memory: ``addresses``, of each where this process finds it; uint64."""

    def __init__(self, ranks: Communicator, addresses: NDArray[np.uint64]) -> None:
        # Kept, so that no other communicator gets its id.
        self.ranks, self.addresses = ranks, addresses


def peers(ranks: int, size: int) -> Peers | None:
    """Memory of the ranks of which this process is one; None if they cannot reach it."""
    communicator = joined(ranks)
    if any(known != id(communicator) for known, _ in _found):
        _found.clear()
    key = id(communicator), size
    if key not in _found:
        _found[key] = _met(communicator, size)
    return _found[key]


def _met(ranks: Communicator, size: int) -> Peers | None:
    runtime, errors = cuda_api().runtime, device_errors()
    own, handle = 0, bytes(HANDLE_BYTES)
    try:
        # Not from the pool: a handle stands for a whole allocation.
        own = runtime.malloc(memory_bytes(ranks.size, size))
        runtime.memset(own, 0, memory_bytes(ranks.size, size))
        runtime.deviceSynchronize()
        handle = runtime.ipcGetMemHandle(own)
    except errors:
        # No error yet: the others wait for an answer, and a handle of zeros is one.
        pass
    mine = np.frombuffer(_machine() + handle, np.uint8)
    rows = _gathered(ranks, mine)
    opened: dict[int, int] = {ranks.rank: own} if any(handle) else {}
    alike = (rows[:, :_MACHINE_BYTES] == mine[:_MACHINE_BYTES]).all()
    try:
        for rank in range(ranks.size) if alike and opened else ():
            if rank != ranks.rank:
                other = rows[rank, _MACHINE_BYTES:].tobytes()
                opened[rank] = runtime.ipcOpenMemHandle(other, ENABLE)
    except errors:
        # What is missing among the opened tells all of them to take NCCL.
        pass
    # Nobody writes before all have opened what they write to.
    reached = _gathered(ranks, np.array([len(opened) == ranks.size], np.uint8))
    if reached.all():
        return Peers(ranks, np.array([opened[rank] for rank in range(ranks.size)], np.uint64))
    for rank, address in opened.items():
        if rank != ranks.rank:
            runtime.ipcCloseMemHandle(address)
    # Nobody frees what another has still opened.
    _gathered(ranks, np.zeros(1, np.uint8))
    if own:
        runtime.free(own)
    return None


def _gathered(ranks: Communicator, mine: Array) -> Array:
    rows = np.zeros((ranks.size, len(mine)), np.uint8)
    rows[ranks.rank] = mine
    ranks.gather(rows)
    return rows


def _machine() -> bytes:
    """What no two machines have alike, and none after it has started anew."""
    text = _BOOT.read_text("ascii").strip() if _BOOT.exists() else ""
    return text.encode()[:_MACHINE_BYTES].ljust(_MACHINE_BYTES, b"-")
