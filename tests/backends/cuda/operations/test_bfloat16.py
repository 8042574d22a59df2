"""Operations as kernels of ours compute them, with activations in float32 and in bfloat16.

Against the reference, on numbers that bfloat16 holds exactly.
"""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph

from ....support import op_cases
from ....support.op_cases import CASES
from ....support.op_cases_windows import POOLS
from ....support.op_draft import Draft
from ....support.outcomes import outcome

KINDS = ("batch_norm", "add-", "concat", "slice", "pad_channels", "dropout", "scale", "activation")
KINDS = (*KINDS, "Lrn")
# Half a unit in the last place of eight digits, and several of 24: as in the table of all backends.
ROUNDING = {"bf16": 2.0**-9, "fp32": 2.0**-21}


@pytest.mark.cuda
@pytest.mark.parametrize("rounded", ROUNDING)
@pytest.mark.parametrize("kind", ["sigmoid", "softplus", "gelu"])
@pytest.mark.parametrize("name", ["batch_norm", "batch_norm_inference"])
def test_channels_that_do_not_count_stay_zero_whatever_is_f_of_0(cuda, name, kind, rounded):
    draft = CASES[f"{name}-picture-{kind}"](np.random.default_rng(3), "normal")
    options = Options(precision=rounded, tune=False)
    executable = cuda.compile({draft.graph.name: draft.graph}, options)
    for tensor, value in draft.values.items():
        executable.write(tensor, value)
    executable.run(draft.graph.name, draft.steps)
    buffer = executable._buffer(draft.graph.results["y"])
    padding = buffer.layout.pack(np.ones(buffer.layout.shape, np.float32)) == 0
    assert padding.any()
    assert not buffer.array.get()[padding].any()
    executable.close()


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ops.ACTIVATIONS)
@pytest.mark.parametrize("name", ["activation", "activation_backward"])
def test_numbers_that_are_none_and_infinite_ones(cuda, name, kind, monkeypatch):
    """In bfloat16, where slopes and limits come from approximations: as in the reference.

    GELU's limits are the exception, which the reference has none of: a product of 0 and infinity.
    """
    extremes = (np.nan, np.inf, -np.inf, 1e10, -1e10)
    monkeypatch.setattr(op_cases, "EXTREMES", extremes)
    draft = CASES[f"{name}-{kind}-extremes"](np.random.default_rng(3), "ties")
    result = "dx" if name.endswith("backward") else "y"
    got, want = beside_the_reference(cuda, "bf16", draft, result)
    if kind == "gelu":
        (given,) = (v for t, v in draft.values.items() if t.name in ("x", "value"))
        hidden = np.isnan(want) & np.isinf(given)
        assert hidden.any()
        assert np.isfinite(got[hidden]).all()
        want[hidden] = got[hidden]
    np.testing.assert_allclose(got, want, rtol=2.0**-7, atol=2.0**-8)


@pytest.mark.cuda
@pytest.mark.parametrize("rounded", ROUNDING)
@pytest.mark.parametrize("name", POOLS)
def test_a_window_with_a_number_that_is_none_has_none(cuda, name, rounded):
    """Behind a batch norm pictures lie as the kernel that keeps an index wants them."""
    case, draw = POOLS[name], np.random.default_rng(3)
    draft = Draft(draw, "ties")
    x = draft.floats("x", *case.picture)
    for each in (np.nan, -np.inf, np.inf):
        draft.values[x][draw.random(x.shape) < 0.05] = each
    channels = x.shape[1]
    mean, var = (
        draft.given(name, np.full(channels, value, np.float32), "state")
        for name, value in (("mean", 0.0), ("var", 1.0))
    )
    lying, y = draft.out("same", *x.shape), draft.out("y", *case.output(channels))
    draft.graph.add(
        ops.BatchNormInference(x=x, y=lying, running_mean=mean, running_var=var, eps=1e-12)
    )
    draft.graph.add(ops.Pool2d(x=lying, y=y, window=case.window, kind="max"))
    got, want = beside_the_reference(cuda, rounded, draft, "y")
    assert 0 < np.isnan(want).sum() < want.size
    np.testing.assert_array_equal(got, want)


def beside_the_reference(backend, precision, draft, result):
    values = []
    for each, computed in ((backend, precision), (ReferenceBackend(1), "fp32")):
        options = Options(precision=computed, tune=False)
        executable = each.compile({draft.graph.name: draft.graph}, options)
        wanted = draft.graph.results[result]
        with np.errstate(all="ignore"):
            found = outcome(executable, draft.values, [wanted], draft.steps)
        values.append(found[wanted.name])
    return values


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_saturated_scaled_tanh_has_no_slope(cuda, precision):
    """In bfloat16 1.7159 is rounded to more, so that the plain formula has the wrong sign."""
    graph = Graph("one", 4)
    x = graph.tensor("x", (4, 16), role="input")
    w = graph.tensor("w", (8, 16), role="parameter")
    dy = graph.tensor("dy", (4, 8), role="input")
    c, y, dz, dx = (graph.tensor(name, (4, 8)) for name in ("c", "y", "dz", "dx"))
    graph.add(ops.MatMul(a=x, b=w, c=c, transpose_b=True))
    graph.add(ops.Activation(x=c, y=y, kind="scaled_tanh"))
    graph.add(ops.Scale(x=dy, y=dz, factor=1.0))
    graph.add(ops.ActivationBackward(value=y, dy=dz, dx=dx, kind="scaled_tanh"))
    graph.results.update(dx=dx)
    executable = cuda.compile({"one": graph}, Options(precision, tune=False))
    executable.write(x, np.full(x.shape, 2.0, np.float32))
    executable.write(w, np.tile(np.float32([[1.0], [-1.0]]), (4, 16)))
    executable.write(dy, np.full(dy.shape, 1000.0, np.float32))
    executable.run("one")
    binder = executable._sections["one"]
    assert (binder.home(y).dtype == "bfloat16") == (precision == "bf16")
    np.testing.assert_array_equal(executable.read(dx), 0.0)
    executable.close()
