"""Small sums over ranks in each other's memory, and what is small beside them; else NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...collectives import number
from ..binding.bind import Binder
from ..binding.launch_list import Step
from ..binding.small_sums import SmallSum, Stretch, size_of
from ..libraries.kernels import f32
from ..libraries.peers import BESIDE_BLOCKS, BLOCKS, peers

FILE, FUNCTION, THREADS = "peers.cu", "add_over_ranks", 512


class _Sum:
    """A sum that first asks, with the other ranks, whether they reach each other's memory."""

    def __init__(self, b: Binder, ranks: int, memory: Any, otherwise: Sequence[Step]) -> None:
        self._steps, self._at = b.steps, len(b.steps)
        self._ranks, self._memory, self._otherwise = ranks, memory, otherwise
        self._reached: bool | None = None

    def wrap(self, launch: Callable[[], None]) -> Callable[[], None]:
        """What to launch instead of the kernel."""

        def run() -> None:
            if self._reached is None:
                self._reached = self._ask()
            if self._reached:
                launch()
                return
            for step in self._otherwise:
                step.launch()

        return run

    def _ask(self) -> bool:
        found = peers(self._ranks)
        if found is not None:
            self._memory.set(found.addresses)
            return True
        step = self._steps[self._at]
        names = [each.call.function for each in self._otherwise if each.call is not None]
        assert step.call is not None
        call = replace(step.call, library="NCCL", function=", ".join(names), implementation="")
        self._steps[self._at] = replace(step, call=call)
        return False


def sum_in_memory(
    b: Binder, small: SmallSum, stretches: Sequence[Stretch], otherwise: Sequence[Step]
) -> None:
    """Append the kernel that adds up one or two stretches of an arena, and does what is merged.

    otherwise: what does the same, by NCCL, where memory cannot be reached.
    """
    op, ending, metrics = small.op, small.ending, small.metrics
    memory = b.zeros(op.ranks, "uint64")
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
    # Sums beside backward may run while another does.
    area = int(b.current >= b.lanes)
    workers = BESIDE_BLOCKS if area else BLOCKS
    places = (count // 4, (first_stop - start) // 4, gap // 4)
    numbers = (source, f32(scale), values, *places)
    arguments = (*numbers, memory, number(op.ranks), area, *tail)
    grid = (workers + (metrics is not None),)
    defines = (("RANKS", op.ranks), ("BLOCKS", BLOCKS), ("WORKERS", workers))
    wrap = _Sum(b, op.ranks, memory, otherwise).wrap
    b.kernel(op, (FILE, FUNCTION), grid, arguments, shown, (THREADS,), defines=defines, wrap=wrap)
