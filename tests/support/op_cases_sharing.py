"""Cases of shared weights."""

from __future__ import annotations

import numpy as np
from dnnstack.graph.graph import Shape
from dnnstack.graph.ops import Accumulate, Advance, SgdUpdate, ShareWeights, SumShared

from .op_draft import Draft, case

SHAPES: list[Shape] = [(3, 2, 2, 3), (40, 50)]
COUNTS = (4, 32)


def shared(d: Draft) -> None:
    """Two steps: sums of gradients move the centroids, which the weights then are."""
    step = d.given("step", np.array([0], np.int64), "state")
    rates = d.given("rates", np.full(2, 0.1, np.float32), "data")
    d.steps, d.length = 2, 2000
    numbered = list(enumerate(SHAPES))
    codes = tuple(
        d.given(f"code/p{i}", d.rng.integers(0, COUNTS[i] + 1, s).astype(np.float32), "state")
        for i, s in numbered
    )
    centroids = tuple(d.floats(f"c{i}", COUNTS[i], role="parameter") for i, _ in numbered)
    weights = tuple(d.floats(f"p{i}", *s, role="parameter") for i, s in numbered)
    gradients = tuple(d.floats(f"g{i}", *s) for i, s in numbered)
    summed = tuple(d.floats(f"sum{i}", *s, role="state") for i, s in numbered)
    d.graph.add(Accumulate(gradients=gradients, step=step, sums=summed, parts=1))
    moves = tuple(d.graph.gradient(c) for c in centroids)
    d.graph.results.update({move.name: move for move in moves})
    d.graph.add(SumShared(gradients=summed, codes=codes, sums=moves))
    d.graph.add(
        SgdUpdate(
            gradients=moves,
            rates=rates,
            step=step,
            parameters=centroids,
            buffers=(),
            weight_decay=(0.0, 0.1),
        )
    )
    d.graph.add(ShareWeights(codes=codes, centroids=centroids, parameters=weights))
    d.graph.add(Advance(step=step))


case("shared-weights", shared)
