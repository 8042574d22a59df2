"""How far float32 is from float64, beside how far PyTorch's is on the same numbers.

``support/precision/errors.json`` holds PyTorch's errors; ``make_errors.py`` beside it makes it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.graph import ops
from dnnstack.graph.graph import Tensor

from ..support.opened import opened
from ..support.operations import OPERATIONS
from ..support.precision.hard import MOST, Hard, errors, exact, floor, results
from ..support.precision.precision_cases import CASES, mnist

FOLDER = Path(__file__).parents[1] / "support" / "precision"
PYTORCH = json.loads((FOLDER / "errors.json").read_text(encoding="utf-8"))["errors"]
# What only moves or draws numbers, counts, or has no counterpart in PyTorch.
WITHOUT = set((FOLDER / "without.txt").read_text("utf-8").split())

# Error allowed where a library's own function is taken as it is, in place of MOST: cuDNN raises to
# a power in local normalisation by its own means.
LIBRARIES = {
    "cuda": dict.fromkeys(
        (ops.Lrn, ops.LrnBackward, ops.DivisiveNorm, ops.DivisiveNormBackward), 16.0
    )
}


@lru_cache(maxsize=1)
def drafted(name: str) -> tuple[Hard, dict[Tensor, Array]]:
    """A case, which takes longer to draw than to compute, and its right values."""
    draft = CASES[name]()
    return draft, exact(draft)


# By the name of the backend and the number of its threads.
BACKENDS = ["numpy", "cpu-1", "cpu-2", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_error(name, backend):
    """At most MOST times PyTorch's, or half a unit in the last place, row by row."""
    kind, _, threads = backend.partition("-")
    check(name, opened(kind, int(threads or 1)), fusion=False)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(("activated_sums", "bias_grad", "Lrn"))]
)
def test_error_of_kernels_that_fusion_takes(name):
    """Sums on the way and local normalisation by kernels of ours."""
    check(name, opened("cuda"), fusion=True)


def check(name: str, backend: Backend, fusion: bool) -> None:
    if name == "batch_norm-mnist" and not mnist().exists():
        pytest.skip("DNNSTACK_DATA is not set: it names the folder that has mnist/")
    draft, want = drafted(name)
    options = Options("fp32", fusion=fusion, tune=False)
    executable = backend.compile({draft.graph.name: draft.graph}, options)
    got = results(executable, draft)
    executable.close()
    assert {tensor.name for tensor in want} == PYTORCH[name].keys()
    allowed = {} if fusion else LIBRARIES.get(backend.name, {})
    for tensor in want:
        ours = np.array(errors(draft, tensor, got[tensor], want))
        theirs = np.array(PYTORCH[name][tensor.name])
        writers = [type(op) for op in draft.graph.ops if tensor in op.writes()]
        most = max(allowed.get(writer, MOST) for writer in writers)
        bound = most * np.maximum(theirs, floor(draft, tensor))
        over = [
            f"row {row}: {ours[row]:.3g}, PyTorch {theirs[row]:.3g}"
            for row in np.flatnonzero(~(ours <= bound))
        ]
        assert not over, f"{tensor.name}: {'; '.join(over)}"


def test_every_operation_that_pytorch_has_is_measured():
    drafts = [make() for name, make in CASES.items() if name != "batch_norm-mnist"]
    every = [op for draft in drafts for op in draft.graph.ops]
    tried = {type(op).__name__ for op in every}
    known = {kind.__name__ for kind in OPERATIONS}
    assert not tried & WITHOUT
    assert tried | WITHOUT == known
    losses = {op.name for op in every if isinstance(op, ops.RowLoss)}
    assert losses == {"CrossEntropy", "MeanSquaredError", "MultiMargin"}
