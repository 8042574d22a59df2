"""The statistics of batch norm for averaged weights, measured anew over the training pictures.

Averages of the weights see other activations than the weights that they are averages of, so that
no average of running statistics fits them. A pass over the training pictures in training mode, with
the averaged weights, measures every batch; the statistics become the mean over all batches. Source:
Izmailov et al. 2018, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Executable
from ..common.records import dataclass
from ..graph.graph import Graph, Tensor
from ..graph.ops import Advance, MoveStatistics
from ..passes.parts import statistics_left

# Batches whose statistics are kept until they are read.
ROWS = 16
RENEW = "renew"
KEPT = f"{RENEW}.statistics"


@dataclass(frozen=True)
class Renewal:
    """The section that measures a batch, run ``steps`` times; due from step ``first`` on.

    ``move`` says where a row of what is measured has the values of each average, and by what they
    are multiplied: a weight makes the variance of a batch an unbiased one.
    """

    graph: Graph
    move: MoveStatistics
    steps: int
    first: int

    def run(
        self, executable: Executable, begin: int, count: int, total: NDArray[np.float64]
    ) -> None:
        """Measure ``count`` batches, at most ROWS, from number ``begin`` on, and add them up."""
        executable.run(self.graph.name, count)
        rows = executable.read(self.move.kept).astype(np.float64)
        for number in range(begin, begin + count):
            total += rows[number % ROWS]

    def begin(self, executable: Executable, order: NDArray[np.int32]) -> NDArray[np.float64]:
        """Begin with the first batch of ``order``; returns the sums, of nothing yet."""
        executable.write(self.graph["order"], order)
        executable.write(self.graph["step"], np.zeros(1, np.int64))
        return np.zeros(self.move.kept.shape[1])

    def end(self, executable: Executable, total: NDArray[np.float64]) -> None:
        """Write the means of all batches."""
        factors = zip(self.move.weight, self.move.momentum, strict=True)
        for (average, place), (weight, momentum) in zip(self.move.spans(), factors, strict=True):
            mean = total[place] * (weight / momentum / self.steps)
            executable.write(average, mean.astype(np.float32))


def make_renewal(
    plain: Graph, averages: Mapping[Tensor, Tensor], rule: str, steps: int, first: int
) -> Renewal | None:
    """What measures the statistics of batch norm for averaged weights, if there are any.

    plain: a training step called RENEW, in ``steps`` steps. averages: of each parameter and running
    statistic; ``first``: the step from which on there are averages. Results: images, labels, order,
    step.
    """
    before = (op for op in plain.ops if op.origin[0].phase in ("data", "forward"))
    body, keep, move = statistics_left(tuple(before), plain["step"], KEPT, ROWS)
    if not averages or not keep.values:
        return None
    graph = plain.with_ops(body)
    with graph.at(rule, "update"):
        graph.add(keep)
        graph.add(Advance(step=keep.step))
    graph.results = {name: plain[name] for name in ("images", "labels", "order", "step")}
    graph.prune()
    # The counter and the order of the training stand still meanwhile.
    still = (plain["step"], plain["order"])
    own = {tensor: replace(tensor, name=f"{RENEW}.{tensor.name}") for tensor in still}
    graph = graph.substituted({**averages, **own})
    graph.results = {name: own.get(tensor, tensor) for name, tensor in graph.results.items()}
    return Renewal(graph, move.on(averages), steps, first)
