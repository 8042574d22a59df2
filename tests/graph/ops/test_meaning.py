"""What every operation computes in float64, and what that costs, against stored numbers."""

from __future__ import annotations

from itertools import chain

import numpy as np
from dnnstack.backends.base import Array, Options
from dnnstack.backends.reference.backend import ReferenceBackend

from ...support.frozen import changed
from ...support.op_cases import CASES


def computed(name: str) -> dict[str, Array]:
    """Every result by its name, and "work": FLOPs and bytes of all operations."""
    draft = CASES[name](np.random.default_rng(len(name)), "normal")
    options = Options("fp64", fusion=False, tune=False)
    executable = ReferenceBackend(1).compile({draft.graph.name: draft.graph}, options)
    for tensor, value in draft.values.items():
        executable.write(tensor, value.copy())
    executable.run(draft.graph.name, draft.steps)
    written = dict.fromkeys(chain.from_iterable(op.writes() for op in draft.graph.ops))
    work = [sum(op.flops() for op in draft.graph.ops), sum(op.bytes() for op in draft.graph.ops)]
    return {tensor.name: executable.read(tensor) for tensor in written} | {"work": np.array(work)}


def test_results_are_what_they_were():
    assert changed(__file__, {name: computed(name) for name in CASES}) == []
