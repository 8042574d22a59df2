"""Small sums over ranks in each other's memory, and what is small beside them; else NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ....common.records import dataclass
from ...collectives import number
from ..binding.bind import Binder
from ..binding.launches import Launch, Step
from ..binding.small_sums import SmallSum, Stretch, size_of
from ..libraries.kernels import f32
from ..libraries.peers import BESIDE_BLOCKS, BLOCKS, memory_bytes, peers, size_for

FILE, FUNCTION, THREADS = "peers.cu", "add_over_ranks", 512


class Reached:
    """Asks, with the other ranks, whether they reach each other's memory, before the first launch.

    ``memory``: where the kernel finds the addresses; ``defines``: what it is compiled for. Appended
    next is what needs them.
    """

    def __init__(self, b: Binder, ranks: int, stretches: Sequence[Stretch]) -> None:
        size = size_for(ranks, 4 * size_of(stretches))
        assert size is not None
        self.memory, self._size = b.zeros(ranks, "uint64"), size
        self.defines = {"RANKS": ranks, "BLOCKS": BLOCKS, "SIZE": size}
        b.store.peer_memory[ranks, size] = memory_bytes(ranks, size)
        self._steps, self._at = b.steps, len(b.steps)
        self._ranks = ranks
        self._reached: bool | None = None

    def otherwise(self, others: Sequence[Step]) -> Callable[[Launch], Launch]:
        """What makes of a launch what to call instead: these, where memory is not reached."""

        def wrap(launch: Launch) -> Launch:
            def run() -> None:
                if self._reached is None:
                    self._reached = self._ask(others)
                if self._reached:
                    launch()
                    return
                for step in others:
                    step.launch()

            return run

        return wrap

    def _ask(self, others: Sequence[Step]) -> bool:
        found = peers(self._ranks, self._size)
        if found is not None:
            self.memory.set(found.addresses)
            return True
        step = self._steps[self._at]
        names = [each.call.function for each in others if each.call is not None]
        assert step.call is not None
        call = replace(step.call, library="NCCL", function=", ".join(names), implementation="")
        self._steps[self._at] = replace(step, call=call)
        return False


@dataclass(frozen=True)
class Summing:
    """What a kernel is given for a sum: ``numbers`` (6), ``metrics`` (6); and what it shows."""

    numbers: tuple[Any, ...]
    metrics: tuple[Any, ...]
    shown: dict[str, object]


def summing(b: Binder, small: SmallSum, stretches: Sequence[Stretch]) -> Summing:
    """Of one or two stretches of an arena."""
    ending, metrics = small.ending, small.metrics
    name, start, first_stop = stretches[0]
    _, last_start, stop = stretches[-1]
    values = b.store.arenas[name][start:stop]
    source, scale = values, 1.0
    tail: tuple[Any, ...] = (None, None, None, 0, None, 0)
    if ending is not None:
        source, scale = b.store.arenas[ending.gradients][start:stop], ending.accumulate.scale
    if metrics is not None:
        rows, skip = metrics.gather.rows, metrics.skip
        part, own = (None, 0) if ending is None or ending.keep is None else (ending.keep.sums, 1)
        tail = (part, rows, metrics.add.sums, rows.shape[0], skip.step, skip.parts + own)
    count, gap = size_of(stretches), last_start - first_stop if len(stretches) > 1 else 0
    shown: dict[str, object] = {"values": count}
    if small.merged:
        shown["with"] = ", ".join(op.label() for op in small.merged)
    places = (count // 4, (first_stop - start) // 4, gap // 4)
    return Summing((source, f32(scale), values, *places), tail, shown)


def sum_in_memory(
    b: Binder, small: SmallSum, stretches: Sequence[Stretch], otherwise: Sequence[Step]
) -> None:
    """Append the kernel that adds up one or two stretches of an arena, and does what is merged.

    otherwise: what does the same, by NCCL, where memory cannot be reached.
    """
    op, given = small.op, summing(b, small, stretches)
    reached = Reached(b, op.ranks, stretches)
    # Sums beside backward may run while another does.
    area = int(b.current >= b.lanes)
    workers = BESIDE_BLOCKS if area else BLOCKS
    arguments = (*given.numbers, reached.memory, number(op.ranks), area, *given.metrics)
    grid = (workers + (small.metrics is not None),)
    defines = (*reached.defines.items(), ("WORKERS", workers))
    kernel, wrap = (FILE, FUNCTION), reached.otherwise(otherwise)
    b.kernel(op, kernel, grid, arguments, given.shown, (THREADS,), defines=defines, wrap=wrap)
