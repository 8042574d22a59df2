"""Batch norm of few values, which NumPy computes; its precision is tested in test_precision.py."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn.library import library
from dnnstack.backends.reference.backend import ReferenceBackend

from ...support.op_cases_norm import batch_norm_both
from ...support.op_draft import Draft
from ...support.outcomes import outcome


@pytest.mark.parametrize(
    ("shape", "few"),
    [((10, 6, 10, 10), True), ((60, 100), True), ((353, 17, 1, 1), False), ((353, 17), False)],
    ids=str,
)
def test_up_to_6000_values_are_few(onednn, shape, few):
    draft = Draft(np.random.default_rng(0), "normal")
    batch_norm_both(draft, shape, True, True, "relu")
    options = Options("fp32", fusion=False, tune=False)
    executable = onednn.compile({"one": draft.graph}, options)
    if few:
        calls = executable.calls("one")
        assert [call.library for call in calls] == ["numpy", "numpy"]
        reason = "in float64, because the roundings of few sums do not average out"
        assert {call.arguments["reason"] for call in calls} == {reason}
    elif library().isa() not in ("sse41", "avx"):
        assert not [call for call in executable.calls("one") if "reason" in call.arguments]
    executable.close()


def test_what_numpy_computes_is_in_float64(onednn):
    """Only the results are rounded, also where the terms of their sums are much larger."""
    draft = Draft(np.random.default_rng(0), "normal")
    batch_norm_both(draft, (300, 1), True, True, None)
    x, dy = (draft.values[draft.graph.results[name]] for name in ("x", "dy"))
    x[...] = np.tile([[1.0], [-1.0]], (150, 1))
    # Of four terms 2^-23 is left; times inverse_std, it is less than a last place of them.
    dy[...] = np.tile([[1.0 + 2.0**-23], [-1.0], [-1.0], [1.0]], (75, 1))
    ends = []
    for backend, precision in ((onednn, "fp32"), (ReferenceBackend(1), "fp64")):
        options = Options(precision, fusion=False, tune=False)
        executable = backend.compile({"one": draft.graph}, options)
        read = (*draft.graph.ops[0].writes(), draft.graph.results["weight.grad"])
        ends.append(outcome(executable, draft.values, read))
    got, want = ends
    # Backward takes inverse_std as forward rounded it.
    want["weight.grad"] = 75 * 2.0**-23 * got["inverse_std"].astype(np.float64)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value.astype(np.float32), name)
