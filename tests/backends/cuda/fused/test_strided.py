"""Gradients of convolutions of stride 2 on tensor cores: where they are offered, and results."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.cuda.fused.tensor_conv import ALONE
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.ops import Conv2dBackwardData, Conv2dBackwardFilter

from ....support.described_cuda import described, drawn_choices
from ....support.goldens import compare
from ....support.op_draft import Draft
from ....support.tensor_convs import close_to_the_reference, right_in_every_way
from ..taped import bind, tape

__all__ = ["tape"]

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
KERNELS = {"data": "tensor_conv", "filter": "tensor_filter"}
RESNET = Window((3, 3), (2, 2), padding=(1, 1, 1, 1))
# Pictures (C, H, W), filters, window and groups of convolutions whose gradients they compute.
SERVED = {
    "resnet": ((16, 32, 32), 32, RESNET),
    "odd channels": ((13, 12, 8), 21, RESNET),
    "a projection": ((16, 8, 12), 32, Window((1, 1), (2, 2))),
    "lopsided": ((24, 8, 14), 8, Window((4, 3), (2, 2), padding=(2, 1, 1, 1))),
    "no padding": ((8, 12, 16), 40, Window((5, 3), (2, 2))),
}
# Others; an odd number of rows or columns is not halved by windows of 2 by 2.
LEFT = {
    "odd rows": ((16, 15, 16), 32, RESNET),
    "odd columns": ((16, 16, 15), 32, RESNET),
    "same": ((16, 16, 16), 32, Window((3, 3), (2, 2), padding=(0, 1, 0, 1))),
    "stride 2 by 1": ((16, 16, 16), 32, Window((3, 3), (2, 1), padding=(1, 1, 1, 1))),
    "stride 4": ((16, 16, 16), 32, Window((3, 3), (4, 4), padding=(1, 1, 1, 1))),
    "dilated": ((16, 16, 16), 32, Window((3, 3), (2, 2), (2, 2, 2, 2), (2, 2))),
    "many channels": ((72, 16, 16), 80, RESNET),
    "groups": ((16, 32, 32), 32, RESNET, 2),
}


def section(case, kind, n=6, bias=True):
    """One gradient alone, on values that bfloat16 holds, and what it gives."""
    x, filters, window, groups = (*case, 1)[:4]
    draft = Draft(np.random.default_rng(n), "normal")
    weights, y = (filters, x[0] // groups, *window.kernel), (filters, *window.output(*x[1:]))
    dy, rest = draft.floats("dy", n, *y), {"window": window, "groups": groups}
    if kind == "data":
        w, found = draft.floats("w", *weights, role="parameter"), [draft.out("dx", n, *x)]
        draft.graph.add(Conv2dBackwardData(dy=dy, w=w, dx=found[0], **rest))
    else:
        dw, db = draft.gradient("w", *weights), draft.gradient("b", filters) if bias else None
        found = [dw, db] if bias else [dw]
        pictures = draft.floats("x", n, *x)
        draft.graph.add(Conv2dBackwardFilter(x=pictures, dy=dy, dw=dw, bias_grad=db, **rest))
    for value in draft.values.values():
        value.view(np.uint32)[...] &= 0xFFFF0000
    return draft, found


def offered(executable):
    """The candidates beside cuDNN's, by what choices of them begin with."""
    return {
        mark: make for every in executable.binders()[0].variants.values() for mark, make in every
    }


def test_goldens_of_where_they_are_offered_and_launched(tape):
    def every():
        cases = SERVED | LEFT
        for name, kind, precision in product(cases, KERNELS, ("tf32", "bf16", "fp32")):
            yield f"# {kind} of {name}"
            graphs, choices = {"one": section(cases[name], kind)[0].graph}, CHOICES
            for _ in range(2):
                executable = bind(graphs, precision, choices)
                yield from described(tape, executable)
                choices = drawn_choices(executable, f"{name} {precision}", choices)
                executable.close()

    compare("cuda/strided convolutions", every())


@pytest.mark.parametrize("kind", KERNELS)
def test_trials_compute_that_of_stride_1(bound, kind):
    """Of other operands, for which the result is known."""
    executable, _ = bound({"one": section(SERVED["resnet"], kind)[0].graph}, "bf16", CHOICES)
    candidates = offered(executable)["t"]()
    assert candidates.plans() >= 4
    assert all(map(candidates.build, range(candidates.plans())))
    candidates.launch(1, 0)()
    candidates._launch(0, {"x": 16, "w": 32, "y": 48}, **ALONE)()
    assert dict(candidates._fixed(0, **ALONE))["STRIDED"] == 0
    assert candidates._window == Window((3, 3), padding=(1, 1, 1, 1))
    assert candidates._ends["y"].layout.shape == (6, 32, 32, 32)


@pytest.mark.parametrize("choice", ["t", "t1-2", "tx", "tw2-2-2-2", "w2-2-2-2"])
@pytest.mark.parametrize("kind", KERNELS)
def test_a_choice_that_cannot_be_had_is_an_error(bound, kind, choice):
    graphs = {"one": section(SERVED["resnet"], kind)[0].graph}
    with pytest.raises(ValueError, match=r"tuning's tiling .* is unknown|'.*' for 'one/"):
        bound(graphs, "bf16", CHOICES | {f"one//{kind}": choice})


# ---------------------------------------------------------------- on a device


def as_timed(precision, **choices):
    table = {**DEFAULT_CHOICES[precision], "pad": "8", **choices}
    return Options(precision, tuning=Tuning("cuda", choices=table))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("name", SERVED)
def test_every_way_is_right(cuda, kind, precision, name):
    """On operands whose result is known, as a search finds out, and on its own."""
    draft, found = section(SERVED[name], kind, bias=name != "no padding")
    executable = cuda.compile({"one": draft.graph}, as_timed(precision))
    candidates = offered(executable)["t"]()
    count = right_in_every_way(candidates)
    assert count
    choices = [f"t{candidates.choice(index)}" for index in range(count)]
    executable.close()
    # Operands lose nothing: only sums, and a result in bfloat16, are rounded.
    limit = 2.0**-8 if kind == "data" and precision == "bf16" else 2e-5
    for choice in choices:
        options = as_timed(precision, **{f"one//{kind}": choice})
        assert KERNELS[kind] in close_to_the_reference(cuda, draft, found, options, limit)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("name", ["odd rows", "odd columns", "same"])
def test_what_stays_with_cudnn(cuda, kind, precision, name):
    draft, found = section(LEFT[name], kind)
    limit = 2.0**-7 if precision == "bf16" else 1e-4
    functions = close_to_the_reference(cuda, draft, found, as_timed(precision), limit)
    assert "cudnnBackendExecute" in functions
