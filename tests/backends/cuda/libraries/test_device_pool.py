"""The pool of device memory, on addresses that nobody writes to. Needs no GPU."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from dnnstack.backends.cuda.libraries.device_pool import ALIGNMENT, Memory, Pool

KB = 1 << 10


class Device:
    """Gives segments far from each other; ``room``: the bytes that it has."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room, self.next = room, 1 << 20
        self.segments: dict[int, int] = {}
        self.asked = 0

    def malloc(self, size: int) -> int:
        self.asked += 1
        if sum(self.segments.values()) + size > self.room:
            raise MemoryError("out of memory")
        address, self.next = self.next, self.next + size + (1 << 20)
        self.segments[address] = size
        return address

    def free(self, address: int) -> None:
        del self.segments[address]


def made(room: int = 1 << 40, spare: Callable[[], object] = lambda: None) -> tuple[Device, Pool]:
    device = Device(room)
    return device, Pool(device.malloc, device.free, spare)


def inside(device: Device, memory: Memory, size: int) -> bool:
    """Whether the device has given all of it, in one piece."""
    return any(
        start <= memory.ptr and memory.ptr + size <= start + length
        for start, length in device.segments.items()
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_two_users_share_a_byte(seed):
    dice, (device, pool) = random.Random(seed), made()
    held: list[tuple[int, int, Memory]] = []
    for _ in range(400):
        if held and dice.random() < 0.5:
            held.pop(dice.randrange(len(held)))
        else:
            size, stream = int(2 ** dice.uniform(0, 20)), dice.choice([0, 5, 7])
            memory = pool.take(size, stream)
            assert memory.ptr % ALIGNMENT == 0
            assert inside(device, memory, size)
            held.append((memory.ptr, size, memory))
            del memory
        places = sorted((ptr, size) for ptr, size, _ in held)
        for (ptr, size), (other, _) in pairwise(places):
            assert ptr + size <= other
        used = sum(-(-size // ALIGNMENT) * ALIGNMENT for _, size, _ in held)
        assert pool.used_bytes() == used
        assert pool.held_bytes() == sum(device.segments.values())
    held.clear()
    # Neighbours have grown together: every segment is whole again.
    pool.release()
    assert (pool.held_bytes(), pool.free_bytes(), device.segments) == (0, 0, {})


def test_what_comes_back_is_used_again():
    device, pool = made()
    first = pool.take(100 * KB, 1).ptr
    assert pool.take(100 * KB, 1).ptr == first
    small, other = pool.take(40 * KB, 1), pool.take(60 * KB, 1)
    assert {small.ptr, other.ptr} == {first, first + 40 * KB}
    del small, other
    assert pool.take(100 * KB, 1).ptr == first
    assert device.asked == 1


def test_the_smallest_that_fits_is_taken():
    device, pool = made()
    held = [pool.take(size * KB, 1) for size in (64, 16, 32)]
    wanted = held[2].ptr
    held.clear()
    assert pool.take(20 * KB, 1).ptr == wanted
    assert device.asked == 3


def test_each_stream_has_its_own():
    """What another stream has launched may still use it."""
    device, pool = made()
    first = pool.take(KB, 1).ptr
    assert pool.take(KB, 2).ptr != first
    assert pool.take(KB, 1).ptr == first
    assert device.asked == 2


def test_where_memory_runs_out_the_reserve_is_freed_first():
    spared: list[int] = []
    device, pool = made(100 * KB, lambda: spared.append(1))
    held = pool.take(10 * KB, 1)
    pool.take(60 * KB, 1)
    assert inside(device, pool.take(80 * KB, 2), 80 * KB)
    assert spared == [1]
    with pytest.raises(MemoryError, match=r"out of memory, asked for 102,400 bytes; .*uses 10,240"):
        pool.take(100 * KB, 1)
    del held


def test_a_part_that_is_used_keeps_its_segment():
    device, pool = made(100 * KB)
    pool.take(100 * KB, 1)
    part = pool.take(10 * KB, 1)
    with pytest.raises(MemoryError):
        pool.take(95 * KB, 2)
    assert inside(device, part, 10 * KB)


def test_where_it_runs_out_what_lies_in_circles_is_given_back():
    device, pool = made(room=100 * KB)
    gc.disable()
    try:
        circle: list[object] = [pool.take(60 * KB, 1)]
        circle.append(circle)
        del circle
        assert pool.used_bytes() == 60 * KB
        assert inside(device, pool.take(90 * KB, 1), 90 * KB)
    finally:
        gc.enable()


@pytest.fixture
def _often_collected():
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_often_collected")
def test_a_collection_may_give_back_at_any_moment():
    _, pool = made()

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(300):
            cycle: list[object] = [pool.take(dice.randrange(1, 64 * KB), seed % 2)]
            cycle.append(cycle)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    gc.collect()
    assert pool.used_bytes() == 0
    assert pool.free_bytes() == pool.held_bytes() > 0


def test_nothing_takes_a_block_all_the_same():
    _, pool = made()
    first, second = pool.take(0, 1), pool.take(0, 1)
    assert first.ptr != second.ptr
