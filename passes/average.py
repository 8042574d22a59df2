"""Averages of what is trained: EMA and SWA, which evaluation uses, and lookahead's slow weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import Graph, Tensor
from ..graph.ops import Average
from ..optimizers.rules import state_of
from .section import Section

EMA, LOOKAHEAD, SWA = "ema", "lookahead", "swa"
KINDS = (LOOKAHEAD, EMA, SWA)


def averaged(section: Section, kind: str, values: Sequence[Tensor]) -> Section:
    """Behind the updates, ``<kind>/<value>`` moves towards each value; see ops.Average.

    values: parameters and running statistics. Lookahead's values also become the averages. The
    decay of every step is in the result ``<kind>.decays``.
    """
    if not values:
        return section
    decays = section.table(f"{kind}.decays")
    average = Average(
        decays=decays,
        step=section.step,
        averages=tuple(state_of(value, kind) for value in values),
        values=tuple(values),
        pull=kind == LOOKAHEAD,
    )
    results = {**section.results, decays.name: decays}
    return replace(section, after=(*section.after, average), results=results)


def evaluated(graphs: Iterable[Graph]) -> dict[Tensor, Tensor]:
    """What these sections train, with the average that evaluation takes in its place."""
    found = (op for graph in graphs for op in graph.ops if isinstance(op, Average) and not op.pull)
    return {v: a for op in found for v, a in zip(op.values, op.averages, strict=True)}


def swa_decays(start: int, every: int, total_steps: int) -> NDArray[np.float32]:
    """The decay of every step: (total_steps,) float32; -1 if the average stays the same.

    After step ``start`` and every ``every`` steps from there on, it is n / (n + 1), n being the
    number of steps that are in the average already; before, it is 0: the average is the weights.
    Source: Izmailov et al. 2018, algorithm 1.
    """
    since = np.arange(1, total_steps + 1) - start
    count = since.clip(0) // every
    decays = np.where(since % every == 0, count / (count + 1.0), -1.0)
    decays[since < 0] = 0.0
    return decays.astype(np.float32)


def lookahead_decays(
    every: int, decay: float, power: float, total_steps: int
) -> NDArray[np.float32]:
    """The decay of every step: (total_steps,) float32; -1 if the slow weights stay the same.

    After step t, a multiple of ``every``, it is decay^every (t / T)^power. After the last step,
    unless that is such a multiple, it is 1: the weights become the slow ones.
    """
    t = np.arange(1, total_steps + 1, dtype=np.float64)
    decays = decay**every * (t / total_steps) ** power
    decays[t % every != 0] = -1.0
    if decays[-1] < 0:
        decays[-1] = 1.0
    return decays.astype(np.float32)
