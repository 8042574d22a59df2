"""The sections of a training step, by stretches in which the same parameters are trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backends.base import Executable
from ..common.records import dataclass
from ..graph.graph import Graph
from .share import ALONE, RankShare


@dataclass(frozen=True)
class Stretch:
    """The sections of each step from ``first`` until the next stretch begins.

    ``train`` runs once for each of the ``parts`` of a batch that are this process's ``share``. If
    there are several parts, ``update`` follows; otherwise it is None, and ``train`` updates the
    parameters itself.
    """

    first: int
    train: Graph
    update: Graph | None
    parts: int
    share: RankShare = ALONE

    @property
    def own(self) -> int:
        """The number of parts that this process computes."""
        return self.parts // self.share.ranks

    def graphs(self) -> tuple[Graph, ...]:
        return (self.train,) if self.update is None else (self.train, self.update)

    def runs(self) -> list[Graph]:
        """The sections of one step in order, repetitions included."""
        return [self.train] * self.own + ([] if self.update is None else [self.update])

    def run(self, executable: Executable, steps: int, wait: bool = True) -> None:
        """Run ``steps`` steps; see ``Executable.run`` for ``wait``."""
        if self.update is None:
            executable.run(self.train.name, steps, wait)
            return
        executable.run_in_turn([graph.name for graph in self.runs()], steps, wait)

    def go_to(self, executable: Executable, step: int) -> None:
        """Set the counters to ``step`` updates done."""
        done = np.array([step * self.parts + self.share.rank * self.own], np.int64)
        executable.write(self.train["step"], done)
        if self.update is not None:
            executable.write(self.update["update.step"], np.array([step], np.int64))


def stretch_at(stretches: Sequence[Stretch], step: int) -> tuple[Stretch, float]:
    """The stretch of a step, and the first step after it."""
    index = max(i for i, each in enumerate(stretches) if each.first <= step)
    following = stretches[index + 1].first if index + 1 < len(stretches) else float("inf")
    return stretches[index], following
