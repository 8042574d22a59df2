"""Device memory that is used again: CUDA would wait for the device wherever some is freed.

A segment is what CUDA gave for one request. Blocks are cut from segments, the smallest free one
that fits, and grow together again when neighbours are free. A block goes back to the stream that it
was asked for on, where what is launched next runs behind all that used it.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable

# Every block begins and ends at a multiple of so many bytes.
ALIGNMENT = 512


class _Block:
    """A part of a segment; ``before`` and ``behind``: its neighbours there."""

    def __init__(self, stream: int, address: int, size: int) -> None:
        self.stream, self.address, self.size = stream, address, size
        self.free = False
        self.before: _Block | None = None
        self.behind: _Block | None = None

    def __lt__(self, other: _Block) -> bool:
        return (self.size, self.address) < (other.size, other.address)

    @property
    def whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.before is None and self.behind is None


class Memory:
    """Bytes on the device, which go back to the pool with their last user; ``ptr``: the address."""

    def __init__(self, pool: Pool, block: _Block) -> None:
        self._pool, self._block = pool, block
        self.ptr = block.address

    def __del__(self) -> None:
        self._pool.give_back(self._block)


class Pool:
    """The memory of one device, of CUDA's functions ``allocate`` and ``free``.

    ``allocate`` raises MemoryError where there is too little; ``spare`` lets others free then what
    they hold in reserve.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], object],
        spare: Callable[[], object] = lambda: None,
    ) -> None:
        self._allocate, self._release = allocate, free
        self._spare = spare
        # By stream, the smallest first.
        self._free: dict[int, list[_Block]] = {}
        self._held = 0
        # A collection of garbage may give back in the middle of anything, so that only notes it.
        self._returned: deque[_Block] = deque()
        self._lock = threading.RLock()

    def take(self, size: int, stream: int) -> Memory:
        """Memory of at least so many bytes. Raises MemoryError if there is too little."""
        wanted = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        with self._lock:
            self._settle()
            known = self._free.setdefault(stream, [])
            at = bisect_left(known, wanted, key=lambda block: block.size)
            block = known.pop(at) if at < len(known) else self._segment(wanted, stream)
            block.free = False
            if block.size > wanted:
                self._cut(block, wanted)
            return Memory(self, block)

    def give_back(self, block: _Block) -> None:
        """Take a block back that nobody uses any more."""
        self._returned.append(block)

    def held_bytes(self) -> int:
        """What CUDA has given."""
        with self._lock:
            return self._held

    def free_bytes(self) -> int:
        """What of it nobody uses."""
        with self._lock:
            self._settle()
            return sum(block.size for blocks in self._free.values() for block in blocks)

    def used_bytes(self) -> int:
        with self._lock:
            return self.held_bytes() - self.free_bytes()

    def release(self) -> None:
        """Give CUDA back the segments that nobody uses, which waits for the device."""
        with self._lock:
            self._settle()
            for blocks in self._free.values():
                for block in [each for each in blocks if each.whole]:
                    self._release(block.address)
                    blocks.remove(block)
                    self._held -= block.size

    def _segment(self, size: int, stream: int) -> _Block:
        try:
            address = self._allocate(size)
        except MemoryError:
            # What nobody uses may lie in reference cycles.
            gc.collect()
            self.release()
            self._spare()
            try:
                address = self._allocate(size)
            except MemoryError as error:
                raise MemoryError(
                    f"{error}, asked for {size:,} bytes; this process uses {self.used_bytes():,}"
                ) from None
        self._held += size
        return _Block(stream, address, size)

    def _cut(self, block: _Block, size: int) -> None:
        """Leave the block so many bytes, and make the rest a free one."""
        rest = _Block(block.stream, block.address + size, block.size - size)
        rest.before, rest.behind = block, block.behind
        if rest.behind is not None:
            rest.behind.before = rest
        block.behind, block.size = rest, size
        self._add(rest)

    def _settle(self) -> None:
        """Make what has come back free, together with its free neighbours."""
        while self._returned:
            block = self._returned.popleft()
            before, behind = block.before, block.behind
            if behind is not None and behind.free:
                self._join(block, behind)
            if before is not None and before.free:
                self._free[before.stream].remove(before)
                self._grow(before, block)
                block = before
            self._add(block)

    def _join(self, block: _Block, behind: _Block) -> None:
        self._free[behind.stream].remove(behind)
        self._grow(block, behind)

    @staticmethod
    def _grow(block: _Block, behind: _Block) -> None:
        """Make one block of two neighbours that are in no list."""
        block.size += behind.size
        block.behind = behind.behind
        if block.behind is not None:
            block.behind.before = block

    def _add(self, block: _Block) -> None:
        block.free = True
        insort(self._free.setdefault(block.stream, []), block)
